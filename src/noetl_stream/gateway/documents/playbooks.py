"""Shapes of what is read of the catalog."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from noetl_stream.gateway.documents.common import Diagnostic, Document, Next, OpenDocument, Time


class Playbook(Document):
    """A registered version. `known_as` is what stands after the `@`: its version, or its revision if it has none."""

    path: str
    version: str | None
    revision: int
    digest: str
    name: str
    description: str | None
    labels: dict[str, Any]
    tags: list[str]
    registered: Time
    registered_by: str
    known_as: str


class Registered(Playbook):
    """`created`: whether it is new."""

    created: bool


class PlaybookWithSource(Playbook):
    source: str


class PlaybookPage(Document):
    items: list[Playbook]
    next: Next


class PlaybookVersions(Document):
    """Newest first."""

    items: list[Playbook]


class Checked(Document):
    """What is to be said of a text. `path`, `version` and `digest` are null if it has errors."""

    ok: bool
    path: str | None
    version: str | None
    digest: str | None
    diagnostics: list[Diagnostic]


class Plan(OpenDocument):
    """What a playbook compiles to: for people; it may look otherwise in another release."""


class Arc(Document):
    source: Annotated[str, Field(alias="from")]
    to: str
    when: str | None


class Graph(Document):
    steps: list[str]
    arcs: list[Arc]
