"""The cluster that runs executions: workers, their pools, partitions, dead letters, limits by key (LANGUAGE §15); and
its health.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta

from noetl_stream.model.aggregates import MAX_KEY_CHARS
from noetl_stream.model.envelope import Time
from noetl_stream.model.rights import MAX_PATH_CHARS
from noetl_stream.ports.operations.verbs import Cursor, Document, DocumentPage, Inner, Limit, list_of, verb
from noetl_stream.ports.stores.dead_letters import LetterSource, LetterState


class RateDocument(Document, frozen=True):
    """``per_s`` on average, ``burst`` at once after a rest."""

    per_s: float
    burst: int


class SlotDocument(Document, frozen=True):
    """Who holds a key, or waits for it, ``since`` when: a run of ``step``, or a whole execution if that is null; with a
    ``task``, an attempt of it.
    """

    execution_id: str
    path: str
    step: str | None
    step_run_id: str | None
    task: str | None
    since: Time


class LimitDocument(Document, frozen=True):
    """A key that is held or waited for.

    Attributes:
        namespace: Whose it is: a path, or empty if namespaces share it.
        concurrency: How many may hold it at once; null if only its rate is limited.
        set_by: The playbook that last said how much it allows, at ``set_at``; empty if the caller may not see it.
        replaced: What it was before, if another playbook said otherwise; else empty.
        next_at: When its rate gives the next slot to who waits; null if it is not the rate that they wait for.
        catching_up: Whether it gives out nothing, since Postgres was restored and not all who hold it are known yet.
        used_by: The playbooks that asked for it, the newest last: a bounded number, of those that the caller may see.
    """

    key: str
    namespace: str
    concurrency: int | None
    rate: RateDocument | None
    held: int
    queued: int
    set_by: str
    set_at: Time
    replaced: str
    next_at: Time | None
    catching_up: bool
    used_by: list[str]


class LimitWithSlotsDocument(LimitDocument, frozen=True):
    """With those that have held it longest, and the first that wait, in order: a bounded number of each, of which the
    caller sees those that it may see. ``held`` and ``queued`` count all.
    """

    holders: list[SlotDocument]
    waiting: list[SlotDocument]


class LimitPage(DocumentPage[LimitDocument], frozen=True):
    """By key and namespace."""


class AwaitedSlotDocument(Document, frozen=True, omit_defaults=True):
    """A slot of a key in a ``namespace`` that is waited for. Only ``why`` gives more: its ``place`` among those that
    wait, how many these are, how many hold the key, and the first of them that the caller may see.
    """

    key: str
    namespace: str = ""
    place: int | None = None
    queued: int | None = None
    held: int | None = None
    concurrency: int | None = None
    next_at: Time | None = None
    catching_up: bool = False
    holders: list[SlotDocument] = msgspec.field(default_factory=list)


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
    child processes by kind, of kinds that have a bound of their own. ``unfit`` is why it could not begin a task; it
    takes no commands until a self-test passes. ``labels`` are those that the operator has given its pool.
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
    confinement: str = ""
    network: str = ""
    unfit: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class PoolDocument(Document, frozen=True):
    """``queued`` commands wait for a worker, ``running`` ones were delivered to one, ``again`` of them more than
    once. ``oldest`` is since when the longest of the queued ones waits; null if none waits, or no server says.
    ``by_priority`` are the queued ones, highest priority first, without those at which none waits. ``unreadable`` is
    why NATS gives out none of its commands; null if it does. ``labels`` are those that the operator has given it.
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
    unreadable: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class PartitionDocument(Document, frozen=True):
    """``behind`` messages of EVENTS are not folded yet."""

    partition: int
    owner: str | None
    epoch: int
    live: bool
    folded: int
    behind: int


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


Namespace = Annotated[str, Meta(max_length=MAX_PATH_CHARS, description="That of the key; empty: namespaces share it.")]
LetterId = Annotated[str, Meta(min_length=1, max_length=256)]


class Cluster(Protocol):
    """Raises (any method): :class:`~noetl_stream.errors.Unreachable` when a store is away; with a letter's id
    :class:`~noetl_stream.errors.NotFound` if there is no such letter. A ``reason`` goes into the audit.
    """

    @verb("GET", "/workers", "listWorkers", scope="special", document=list_of("Workers", WorkerDocument))
    async def workers(self) -> list[WorkerDocument]:
        """List the workers that are alive.

        By pool and name. ``busy`` counts the slots that hold a command; ``running`` names a bounded
        number of them.
        """

    @verb("GET", "/pools", "listPools", scope="everyone", document=list_of("Pools", PoolDocument))
    async def pools(self) -> list[PoolDocument]:
        """List pools, with what is queued and running in each.

        By name. ``queued`` commands wait; ``running`` ones were delivered to a worker: one that died keeps its own till
        their lease ends. ``again`` of these were delivered before. A pool with commands and no worker has
        ``workers: 0``.
        """

    @verb("GET", "/partitions", "listPartitions", scope="everyone", document=list_of("Partitions", PartitionDocument))
    async def partitions(self) -> list[PartitionDocument]:
        """List partitions: which server folds them, and how far behind it is.

        ``folded`` is the cursor that Postgres has committed; ``behind`` counts the reports and requests of this
        partition that EVENTS holds above it: neither decided records nor what others fold. Polled each second.
        """

    @verb("GET", "/limits", "listLimits", scope="special")
    async def limits(
        self, limit: Limit, cursor: Cursor | None, paths: Annotated[Sequence[str], Inner] = ()
    ) -> LimitPage:
        """List the keys of limits that are held or waited for.

        Args:
            paths: Those whose limits are listed: of namespaces below them, and used by playbooks there; empty: all.
        """

    @verb("GET", "/limits/{key}", "getLimit", scope="special", refuses=("conflict",))
    async def limit(
        self,
        key: Annotated[str, Meta(min_length=1, max_length=MAX_KEY_CHARS)],
        namespace: Namespace | None = None,
        paths: Annotated[Sequence[str], Inner] = (),
    ) -> LimitWithSlotsDocument:
        """Get the limit of a key, with who holds it and who waits.

        Args:
            paths: As of :meth:`limits`.

        Raises:
            NotFound: nobody holds it, and nobody waits for it.
            Conflict: several namespaces have a key of this name, and none is given.
        """

    @verb("GET", "/dead-letters", "listDeadLetters", "admin", denied="read dead letters")
    async def dead_letters(self, limit: Limit, cursor: Cursor | None) -> DeadLetterPage:
        """List messages and commands that were given up, newest first, without bodies."""

    @verb("GET", "/dead-letters/{letter_id}", "getDeadLetter", "admin", denied="read dead letters")
    async def dead_letter(self, letter_id: LetterId) -> DeadLetterWithBodyDocument:
        """Get a dead letter with its body.

        Also one that is settled.
        """

    @verb(
        "POST",
        "/dead-letters/{letter_id}/requeue",
        "requeueDeadLetter",
        "admin",
        denied="settle dead letters",
        refuses=("conflict",),
    )
    async def requeue(self, letter_id: LetterId, by: str, reason: str = "") -> DeadLetterDocument:
        """Send it again where it came from, and take it off the list.

        Who did so, and when, stays on record.

        Raises:
            Conflict: it is settled already; it is of a command, whose step run has failed; or it was not kept whole.
        """

    @verb(
        "DELETE",
        "/dead-letters/{letter_id}",
        "discardDeadLetter",
        "admin",
        denied="settle dead letters",
        refuses=("conflict",),
    )
    async def discard(self, letter_id: LetterId, by: str, reason: str = "") -> None:
        """Take it off the list for good.

        Its body is forgotten; who did so, and when, stays on record.

        Raises:
            Conflict: it is settled already.
        """


Verdict = Literal["ok", "warning", "wrong", "skipped"]


class CheckDocument(Document, frozen=True):
    """``says`` is a sentence: what was found; of a skipped check, why nobody could look. ``mend`` is the command that
    mends it, or what to do; empty if there is nothing to do.
    """

    check: str
    verdict: Verdict
    says: str
    mend: str = ""


Store = Literal["stream", "objects", "account", "table", "database"]


class StoredDocument(Document, frozen=True):
    """What takes room. ``items`` are the messages or rows in it, those of a table as Postgres estimates them; null
    where nobody counts. ``max_bytes`` is its bound; null without one. ``account`` is all that NATS stores, ``objects``
    the stream with large results, ``database`` all of the database; a ``table`` has its indexes and partitions.
    """

    store: Store
    name: str
    bytes: int
    max_bytes: int | None
    items: int | None


class Diagnosis(Protocol):
    @verb(
        "GET",
        "/doctor",
        "examine",
        "admin",
        denied="look into the whole system",
        document=list_of("Checks", CheckDocument),
    )
    async def examine(self) -> list[CheckDocument]:
        """Look for what is wrong with the system, check by check, with what mends it.

        All checks, in a fixed order. What the caller may not see, or does not answer, is skipped and says why.
        """

    @verb(
        "GET",
        "/storage",
        "listStorage",
        "admin",
        denied="look into the whole system",
        document=list_of("Storage", StoredDocument),
    )
    async def storage(self) -> list[StoredDocument]:
        """List what streams and tables take on disk.

        By store, the largest first.

        Raises:
            Unreachable: NATS or Postgres does not answer.
        """
