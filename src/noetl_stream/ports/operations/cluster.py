"""What runs the executions: workers, their pools, partitions, and letters that could not be delivered."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from noetl_stream.model.envelope import Time
from noetl_stream.ports.operations.documents import Document, DocumentPage
from noetl_stream.ports.operations.limits import LimitPage, LimitWithSlotsDocument
from noetl_stream.ports.operations.verbs import verb
from noetl_stream.ports.stores.dead_letters import LetterSource, LetterState


class RunningCommandDocument(Document, frozen=True):
    """A command that a worker holds; ``delivered`` counts its deliveries. ``waits_for`` says what keeps the worker from
    reporting a finished result, such as a missing store; ``task_waits_for`` what its task waits for at the worker.
    """

    execution_id: str
    command_id: str
    step: str
    delivered: int
    waits_for: str = ""
    task_waits_for: str = ""


class ChildUseDocument(Document, frozen=True):
    """The child processes of a tool kind: ``busy`` of at most ``most`` run a task, and ``waiting`` tasks want one."""

    busy: int
    most: int
    waiting: int


class WorkerDocument(Document, frozen=True):
    """A worker that is alive. ``running`` has those of its commands that it has held longest; ``children`` are the
    child processes by kind, of kinds that have a bound of their own.
    """

    name: str
    pool: str
    slots: int
    busy: int
    since: Time
    kinds: list[str]
    draining: bool
    version: str
    running: list[RunningCommandDocument]
    children: dict[str, ChildUseDocument] = msgspec.field(default_factory=dict)


class WorkersDocument(Document, frozen=True):
    items: list[WorkerDocument]


class PoolDocument(Document, frozen=True):
    """``queued`` commands wait for a worker, ``running`` ones were delivered to one, ``again`` of them more than
    once. ``oldest`` is since when the longest of the queued ones waits; null if none waits, or no server says.
    ``by_priority`` are the queued ones, highest priority first, without those at which none waits.
    """

    pool: str
    workers: int
    slots: int
    busy: int
    queued: int
    running: int
    again: int
    oldest: Time | None = None
    by_priority: dict[str, int] = msgspec.field(default_factory=dict)


class PoolsDocument(Document, frozen=True):
    items: list[PoolDocument]


class PartitionDocument(Document, frozen=True):
    """``behind`` messages of EVENTS are not folded yet."""

    partition: int
    owner: str | None
    epoch: int
    live: bool
    folded: int
    behind: int


class PartitionsDocument(Document, frozen=True):
    items: list[PartitionDocument]


class DeadLetterDocument(Document, frozen=True):
    """A message that could not be folded, or a command that was given up."""

    id: str
    at: Time
    source: LetterSource
    partition: int
    execution_id: str
    subject: str
    reason: str
    size: int
    sequence: int | None
    state: LetterState
    settled_at: Time | None
    settled_by: str | None


class DeadLetterWithBodyDocument(DeadLetterDocument, frozen=True):
    """``body`` as it is where it is text, else in base64."""

    body: str
    encoding: Literal["text", "base64"]


class DeadLetterPage(DocumentPage[DeadLetterDocument], frozen=True):
    """Newest first, without their bodies."""


class Cluster(Protocol):
    """Raises (any method): :class:`~noetl_stream.errors.Unreachable` when a store is away; with a letter's id
    :class:`~noetl_stream.errors.NotFound` if there is no such letter. A ``reason`` goes into the audit.
    """

    @verb("GET", "/workers", scope="everyone")
    async def workers(self) -> list[WorkerDocument]:
        """Those alive, by pool and name. ``busy`` counts the slots that hold a command; ``running`` names a bounded
        number of them.
        """
        ...

    @verb("GET", "/pools", scope="everyone")
    async def pools(self) -> list[PoolDocument]:
        """By name.

        ``queued`` commands wait; ``running`` ones were delivered to a worker: one that died keeps its own until their
        lease ends. ``again`` of these were delivered before. A pool with commands and no worker has ``workers: 0``.
        """
        ...

    @verb("GET", "/partitions", scope="everyone")
    async def partitions(self) -> list[PartitionDocument]:
        """``folded`` is the cursor that Postgres has committed; ``behind`` counts the reports and requests of this
        partition that EVENTS holds above it: neither decided records nor what others fold. Polled each second.
        """
        ...

    @verb("GET", "/limits", scope="everyone")
    async def limits(self, limit: int, cursor: str | None) -> LimitPage:
        """Keys that are held or waited for, by key."""
        ...

    @verb("GET", "/limits/{key}", scope="everyone")
    async def limit(self, key: str) -> LimitWithSlotsDocument:
        """One, with who holds it and who waits.

        Raises:
            NotFound: nobody holds it, and nobody waits for it.
        """
        ...

    @verb("GET", "/dead-letters", scope="everyone")
    async def dead_letters(self, limit: int, cursor: str | None) -> DeadLetterPage:
        """Those that wait, newest first, without their bodies."""
        ...

    @verb("GET", "/dead-letters/{letter_id}", scope="everyone")
    async def dead_letter(self, letter_id: str) -> DeadLetterWithBodyDocument:
        """One, settled or not, with its body."""
        ...

    @verb("POST", "/dead-letters/{letter_id}/requeue", scope="everyone")
    async def requeue(self, letter_id: str, by: str, reason: str = "") -> DeadLetterDocument:
        """Publishes it again where it came from, and takes it off the list; who did so, and when, stays on record.

        Raises:
            Conflict: it is settled already; it is of a command, whose step run has failed; or it was not kept whole.
        """
        ...

    @verb("DELETE", "/dead-letters/{letter_id}", scope="everyone")
    async def discard(self, letter_id: str, by: str, reason: str = "") -> None:
        """Takes it off the list for good and forgets its body; who did so, and when, stays on record.

        Raises:
            Conflict: it is settled already.
        """
        ...
