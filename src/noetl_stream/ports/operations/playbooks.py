"""The catalog as people use it (LANGUAGE §9, §12 *playbook*)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from noetl_stream.model.envelope import Time
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.ports.operations.documents import Document, DocumentPage, OpenDocument
from noetl_stream.ports.operations.graphs import GraphDocument
from noetl_stream.ports.operations.statistics import PlaybookStatisticsDocument
from noetl_stream.ports.operations.verbs import verb


class PlaybookDocument(Document, frozen=True, kw_only=True):
    """A registered version of a playbook, or of a document of another ``kind``.

    ``known_as`` is what follows the ``@``: its version, or its revision if it has none.
    """

    path: str
    version: str | None
    revision: int
    digest: str
    name: str
    description: str | None
    labels: dict[str, Any]
    tags: list[str]
    registered_by: str
    registered: Time
    known_as: str
    kind: str = "Playbook"


class RegisteredDocument(PlaybookDocument, frozen=True):
    """``created``: whether it is new."""

    created: bool


class PlaybookWithSourceDocument(PlaybookDocument, frozen=True):
    source: str

    @property
    def entry(self) -> PlaybookDocument:
        """All but the text."""
        return PlaybookDocument(**{name: getattr(self, name) for name in PlaybookDocument.__struct_fields__})


class PlaybookPage(DocumentPage[PlaybookDocument], frozen=True):
    """The latest entry of each path, by path."""


class PlaybookVersionsDocument(Document, frozen=True):
    """Newest first."""

    items: list[PlaybookDocument]


class CheckedDocument(Document, frozen=True):
    """The diagnostics of a text. ``path``, ``version`` and ``digest`` are null if it has errors. ``graph`` is null
    unless it was asked for, and if there is no step to draw; errors or not, it has what can be read.
    """

    ok: bool
    path: str | None
    version: str | None
    digest: str | None
    diagnostics: list[Diagnostic]
    graph: GraphDocument | None = None


class ChangedNamesDocument(Document, frozen=True):
    """Names that only the second text has, only the first has, and that mean something else in the second."""

    added: list[str]
    removed: list[str]
    changed: list[str]


class ChangedArcDocument(Document, frozen=True):
    """``change`` is ``added``, ``removed`` or ``changed``. ``was``: the ``when`` of the first text; both are null
    without a guard.
    """

    source: str = msgspec.field(name="from")
    to: str
    change: Literal["added", "removed", "changed"]
    when: str | None
    was: str | None


class PlaybookDiffDocument(Document, frozen=True):
    """What differs between two texts. Layout and comments do not count as changes of steps and arcs.

    Attributes:
        same: Whether the texts are equal.
        before: The entry of the first text; null if there is no earlier one.
        after: The entry of the second text; null if it is not registered.
        text: A unified diff; empty if the texts are equal.
    """

    same: bool
    before: PlaybookDocument | None
    after: PlaybookDocument | None
    text: str
    steps: ChangedNamesDocument
    arcs: list[ChangedArcDocument]


class PlaybookSchemaDocument(OpenDocument, frozen=True):
    """A JSON Schema, draft 2020-12."""


class PlanDocument(OpenDocument, frozen=True):
    """What a playbook compiles to: for people; its form may change with a release."""


class Playbooks(Protocol):
    """A version of a playbook is named by ``metadata.version``, by its revision, or by ``None`` for the latest."""

    @verb("POST", "/playbooks/check", scope="special")
    async def check(
        self, source: bytes, name: str, paths: Sequence[str] = (), *, graph: bool = False
    ) -> CheckedDocument:
        """The diagnostics of a text; nothing is stored.

        Args:
            name: What diagnostics call the text.
            paths: Where schemas that it names are looked up; empty: everywhere.
            graph: Whether to draw it, too.
        """
        ...

    @verb("POST", "/playbooks", scope="special")
    async def register(self, source: bytes, name: str, by: str) -> RegisteredDocument:
        """The entry.

        Raises:
            PlaybookRefused: it has errors.
            Conflict: the version is registered with another text; or ``by`` may not start what a schedule starts.
            UsageError: the playbook that a schedule starts is not registered.
        """
        ...

    @verb("GET", "/playbooks", scope="items")
    async def page(
        self, prefix: str, labels: Mapping[str, str], limit: int, cursor: str | None, *, words: str = ""
    ) -> PlaybookPage:
        """The latest entry of each path, by path.

        Args:
            words: What is in the path, name, description, tags or labels, each word anywhere; at most eight.
        """
        ...

    @verb("GET", "/playbooks/{path}")
    async def get(self, path: str, version: str | None) -> PlaybookWithSourceDocument:
        """The entry with its text.

        Raises:
            NotFound: nothing is registered there; the hint lists what is.
        """
        ...

    @verb("GET", "/playbooks/{path}/versions")
    async def versions(self, path: str) -> list[PlaybookDocument]:
        """Every entry of a path, newest first."""
        ...

    @verb("GET", "/playbooks/{path}/plan")
    async def plan(self, path: str, version: str | None) -> dict[str, Any]:
        """What it compiles to (``playbook show --compiled``): a :class:`PlanDocument`, which has no keys of its own."""
        ...

    @verb("GET", "/playbooks/{path}/graph")
    async def graph(self, path: str, version: str | None, digest: str | None = None) -> GraphDocument:
        """Its steps and arcs, in the order of the playbook.

        Args:
            digest: Of a text of this path that was registered or run, in place of a version.
        """
        ...

    @verb("GET", "/playbooks/{path}/diff")
    async def diff(self, path: str, before: str | None, after: str | None) -> PlaybookDiffDocument:
        """What differs between two versions.

        Args:
            before: The first; ``None`` for the one registered before ``after``.
            after: The second; ``None`` for the latest.
        """
        ...

    @verb("POST", "/playbooks/{path}/diff")
    async def diff_text(self, path: str, before: str | None, source: bytes, name: str) -> PlaybookDiffDocument:
        """What differs between a version, ``None`` for the latest, and a text, which may have errors.

        Raises:
            UsageError: the text is not UTF-8.
        """
        ...

    @verb("GET", "/playbooks/{path}/statistics")
    async def statistics(self, path: str, since_ms: int | None = None) -> PlaybookStatisticsDocument:
        """How its executions ended and how long they took, of all versions, and of its steps.

        Args:
            since_ms: Of those that started then or later, in ms since the epoch; ``None`` for the last seven days.
        """
        ...

    @verb("GET", "/schema", scope="everyone")
    async def schema(self) -> dict[str, Any]:
        """The schema of playbooks, with the tool kinds there are: a :class:`PlaybookSchemaDocument`."""
        ...

    @verb("DELETE", "/playbooks/{path}")
    async def delete(self, path: str, version: str | None, by: str) -> None:
        """Deletes a version, or with ``None`` all of them, from the catalog. Executions keep their text.

        Raises:
            Conflict: it is a schedule or a trigger: their own `delete` stops it, too.
        """
        ...
