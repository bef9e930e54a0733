"""Shapes of what is read of the cluster."""

from __future__ import annotations

from typing import Literal

from noetl_stream.gateway.documents.common import Document, Next, Time


class RunningCommand(Document):
    """A command that a worker holds; `delivered` counts how often it was given out."""

    execution_id: str
    command_id: str
    step: str
    delivered: int


class Worker(Document):
    """A worker that is alive. `running` has those of its commands that it has held longest."""

    name: str
    pool: str
    slots: int
    busy: int
    since: Time
    kinds: list[str]
    draining: bool
    version: str
    running: list[RunningCommand]


class Workers(Document):
    items: list[Worker]


class Pool(Document):
    """`queued` commands wait for a worker, `running` ones were given to one, `again` of them not for the first time."""

    pool: str
    workers: int
    slots: int
    busy: int
    queued: int
    running: int
    again: int


class Pools(Document):
    items: list[Pool]


class Partition(Document):
    """`behind` messages of EVENTS are not folded yet."""

    partition: int
    owner: str | None
    epoch: int
    live: bool
    folded: int
    behind: int


class Partitions(Document):
    items: list[Partition]


class DeadLetter(Document):
    """A message that could not be folded, or a command that was given up."""

    id: str
    at: Time
    source: Literal["events", "inbox", "command"]
    partition: int
    execution_id: str
    subject: str
    reason: str
    size: int
    sequence: int | None
    state: Literal["waiting", "requeued", "discarded"]
    settled_at: Time | None
    settled_by: str | None


class DeadLetterWithBody(DeadLetter):
    """`body` as it is where it is text, else in base64."""

    body: str
    encoding: Literal["text", "base64"]


class DeadLetterPage(Document):
    items: list[DeadLetter]
    next: Next
