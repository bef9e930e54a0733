"""Wire messages: reports in, journal records out, commands to workers, claims and their answers.

Everything is JSON, so that ``nats`` and ``psql`` can read it (DESIGN §6). Source: PROTOCOL §1, §3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import msgspec

from noetl_stream.model import aggregates, events
from noetl_stream.model.events import Path, Wait
from noetl_stream.model.ids import RunId
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ErrorInfo, ItemPosition, Outcome, Page, Reference, StepValue
from noetl_stream.model.priorities import DEFAULT_PRIORITY
from noetl_stream.sealing.keys import Key

FORMAT = 2
"""The engine's format: the one this version writes, and the newest it reads (PROTOCOL §1, §5)."""

AGGREGATES_FORMAT: Final = 3
"""The format of messages to aggregates, and of starts by them, read by servers that know aggregates. It is also used
for executions that have limits by key, read ``execution``, or route or admit in ways unknown to version 0.3, and for
commands and reports of steps whose tasks have limits or read it. Other messages are written in :data:`FORMAT`.
"""

OLDEST_FORMAT: Final = 1
"""The format of a message without ``format``, as in version 0.2. Writers now always include theirs."""

NOTHING: Final = msgspec.Raw(b"[]")


class Request(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="request"):
    """A client's message to an execution. Msg-Id: ``request_id``.

    ``signature`` is by a gateway or the local operator, over the ids and the bytes of the fact; the ``principal``
    counts only with it (PROTOCOL §7 *Who says it*).
    """

    execution_id: str
    request_id: str
    fact: events.ClientFact
    signature: str = ""
    format: int = OLDEST_FORMAT


class AggregateRequest(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="aggregate"):
    """A client's message to an aggregate, whose id is its ``execution_id``. Otherwise as :class:`Request`."""

    execution_id: str
    request_id: str
    fact: aggregates.RequestedFact
    signature: str = ""
    format: int = OLDEST_FORMAT


ClientMessage = Request | AggregateRequest
"""A message that gateways and the local operator sign."""


class SignedRequest(msgspec.Struct, frozen=True):
    """A :data:`ClientMessage` in the form that is signed: the fact is the bytes that were sent."""

    execution_id: str
    request_id: str
    fact: msgspec.Raw
    signature: str = ""


class Report(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="report"):
    """A report by one run of a command: its next events, as encoded facts, numbered from ``first`` (PROTOCOL §3).

    ``number`` is the report's own number in the run and ends its Msg-Id (:func:`noetl_stream.model.ids.report_id`).
    ``capability`` is that of the command.
    """

    execution_id: str
    step_run_id: str
    command_id: str
    issue: int
    num_delivered: int
    nonce: str
    number: int
    first: int
    events: list[msgspec.Raw]
    capability: str = ""
    format: int = OLDEST_FORMAT

    @property
    def run(self) -> RunId:
        return RunId(self.command_id, self.issue, self.num_delivered, self.nonce)


class UnreadableCommand(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="unreadable"):
    """A worker's notice of a command that no worker of its pool could read, and that it removed from the queue.

    Msg-Id: ``<command_id>.unreadable.<time stored in the queue, in ms>``. The ids are those of the command's subject.
    ``body`` is the beginning of the command, in base64.
    """

    execution_id: str
    command_id: str
    reason: str
    body: bytes
    format: int = OLDEST_FORMAT


ReportedBody = Request | Report | UnreadableCommand | AggregateRequest
"""The body of an input of EVENTS."""


class RecordEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a journal in a record: the facts of an input, and the decisions that follow from the last of them.

    ``decisions`` and ``facts`` are arrays of encoded facts, as in the journal. Inputs of requests and reports are not
    repeated: they are found in EVENTS, ``count`` facts of ``report_id`` from ``index`` on. Otherwise the id is empty.
    """

    report_id: str
    index: int
    count: int
    decisions: msgspec.Raw = NOTHING
    facts: msgspec.Raw = NOTHING


class FullEntry(RecordEntry, frozen=True):
    """An entry with its input in full: no message of EVENTS carried it, or that message may be lost.

    ``source`` recorded the input; a worker's input has ``step_run_id``, its report's id and the first fact's ``number``
    in its run. ``at_ms`` is the entry's time; format 1 has 0.
    """

    at_ms: int = 0
    source: events.Source = "server"
    step_run_id: str = ""
    number: int = 0


class JournalRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ``decided`` message: one segment of an execution's journal, in fold order (PROTOCOL §1 *Journal*).

    ``entries`` are read by :func:`noetl_stream.model.json.codec.decode_entry`. ``through`` is the stream sequence of
    the last reported message of this execution folded before the record, with effect or without.
    """

    execution: str
    first_position: int
    entries: list[msgspec.Raw]
    through: int
    partition: int
    tick: int
    epoch: int
    format: int = OLDEST_FORMAT


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a pipeline after its last recorded task, from which another run can continue.

    ``task`` is the next task to run (``None``: the first); ``runs`` counts task runs so far (``max_task_runs``).
    ``delay_s`` is the delay before that task, counted from the record. ``before`` is the outcome of the task that ran
    before a retried task, ``None`` if none did; for a first attempt it is that of ``previous``. ``details`` are those
    of the task's last heartbeat.
    """

    task: str | None = None
    attempt: int = 1
    delay_s: float = 0.0
    runs: int = 0
    previous: str | None = None
    iter: dict[str, Any] = {}
    vars: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    results: dict[str, Outcome] = {}
    before: Outcome | None = None
    details: Any = None


class LoopProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of one level of a local loop: all iterations below ``low`` have ended, and those in ``above``.

    ``items`` are those of an inner level (the outermost level's are in the command), ``pages`` their places if there
    are many; ``inner`` the inner loops that have begun, by index.
    """

    low: int = 0
    above: list[int] = []
    ok: int = 0
    failed: int = 0
    failed_leaves: int = 0
    first_error: ErrorInfo | None = None
    items: list[Any] | None = None
    pages: list[Page] = []
    inner: dict[int, LoopProgress] = {}


class Go(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="answer", tag="go"):
    """The continuation of a command: the answer to a claim, and part of a command of a later segment.

    ``next_number`` is the number of this run's next event for the fold. ``progress`` holds the pipelines that have
    begun, by the iteration's path (:func:`path_key`). ``loop`` is the progress of a local loop, ``None`` before it
    began; ``ctx`` and ``vars`` are the step run's own so far. Of the iterations that waited, ``answers`` holds those
    that may continue (``None``: a delay has ended, or a slot is granted; else the outcome of the task they waited in),
    ``waits`` those still waiting. ``slots`` are the pipelines whose next attempt has the slot of its limit.
    ``returned`` counts the times that workers gave the command back because they could not begin a task of it.
    """

    next_number: int = 1
    progress: dict[str, Progress] = {}
    loop: LoopProgress | None = None
    ctx: dict[str, Any] = {}
    vars: dict[str, Any] = {}
    answers: dict[str, Outcome | None] = {}
    waits: dict[str, Wait] = {}
    slots: list[str] = []
    returned: int = 0


def path_key(path: Path) -> str:
    """An iteration's path as a key: ``""`` outside loops, ``"3"``, ``"3.0"`` in an inner loop."""
    return ".".join(map(str, path)) if path else ""


class NamespaceShare(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The part of shared resources that all executions of a namespace may use, as a server knew it at ``at_ms``.

    ``log_bytes``: the bytes that its tasks may write into LOGS in a minute, through one worker. ``stored_bytes`` are
    those of its executions in the object store, ``max_stored_bytes`` their bound. A bound of 0 means none.
    """

    namespace: str = ""
    at_ms: int = 0
    log_bytes: int = 0
    stored_bytes: int = 0
    max_stored_bytes: int = 0


class StepCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """An order to a worker: run this step's pipeline once, or for each item of a local loop; or page items out.

    ``workload``, ``ctx``, ``steps`` and ``execution`` hold what the step's templates read, as of the token's claim;
    ``vars`` what earlier iterations of the step run have set.
    ``path`` names the iteration of distributed loops, from the outermost level in: ``chain`` and ``counts`` are the
    element and the number of elements at each of these levels; ``places`` the element's place at levels (by depth)
    whose items were paged out. ``items`` are those of a local loop (``None`` without one), the outermost level that is
    not in ``path``, of which ``max_in_flight`` may run at once; ``pages`` their places if they were paged out.
    ``paging``: do not run that level, but page its items out, after the task that makes its rows, if it has one.
    ``schemas`` are the digests, by address, of the schemas in the catalog that its tasks name.
    ``principal`` is who started the execution, or the outermost one around it; ``caller_span`` is the caller's.
    ``segment`` counts suspensions; from the first on ``resume`` says where to continue (LANGUAGE §8).
    ``stored_bytes`` are those of the objects that the execution's workers have stored so far; ``share`` is what its
    namespace may take, from a server that knows namespaces.
    ``priority`` is the execution's. ``held_keys`` are those whose slots its tasks share, if any of them has a limit.
    ``token`` is what its templates read by that name, if its admission adds metadata. ``bundle`` names the packages
    that its Python tasks can import.
    ``capability`` proves to servers that a worker was given this command, ``object_keys`` are the keys, current first,
    of the executions whose objects it may read; its results are sealed with those of its own (PROTOCOL §7). Both are
    empty until it is issued. ``by_address``: objects may be outside NATS; workers use addresses that servers sign.
    """

    command_id: str
    execution_id: str
    partition: int
    step_run_id: str
    step: str
    digest: str
    pool: str
    issue: int = 1
    path: Path = ()
    chain: list[Any] = []
    counts: list[int] = []
    places: dict[int, ItemPosition] = {}
    items: list[Any] | None = None
    pages: list[Page] = []
    max_in_flight: int = 1
    paging: bool = False
    args: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    steps: dict[str, StepValue] = {}
    vars: dict[str, Any] = {}
    limits: Limits = Limits()
    schemas: dict[str, str] = {}
    trace_id: str = ""
    principal: str = ""
    segment: int = 0
    resume: Go | None = None
    capability: str = ""
    object_keys: dict[str, Sequence[Key]] = {}
    caller_span: str = ""
    priority: int = DEFAULT_PRIORITY
    execution: dict[str, Any] = {}
    held_keys: list[str] = []
    token: dict[str, Any] | None = None
    stored_bytes: int = 0
    share: NamespaceShare = NamespaceShare()
    bundle: str = ""
    by_address: bool = False
    format: int = OLDEST_FORMAT


def references_of(command: StepCommand) -> Iterator[Reference]:
    """The references to results that the command's templates may read, except those of its own run."""
    for value in command.steps.values():
        yield from _references((value.outcome, *value.results.values()))
    if command.resume is not None:
        yield from _references(command.resume.answers.values())
        for progress in command.resume.progress.values():
            yield from _references(progress.results.values())


def _references(outcomes: Iterable[Outcome | None]) -> Iterator[Reference]:
    for outcome in outcomes:
        if outcome is not None and outcome.result.reference is not None:
            yield outcome.result.reference


class ShownCommand(msgspec.Struct, frozen=True):
    """A command as its worker shows it to ask a server on its behalf."""

    execution_id: str
    step_run_id: str
    command_id: str
    issue: int
    capability: str

    @classmethod
    def from_command(cls, command: StepCommand) -> ShownCommand:
        return cls(command.execution_id, command.step_run_id, command.command_id, command.issue, command.capability)


class QueueFence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The owner and epoch whose commands of a partition the queue accepts (PROTOCOL §5 *Fence at the queue*)."""

    epoch: int
    owner: str
    format: int = OLDEST_FORMAT


class Drop(msgspec.Struct, frozen=True, tag_field="answer", tag="drop"):
    """The claim is rejected: acknowledge the copy and drop it."""

    reason: str


ClaimAnswer = Go | Drop


class Stop(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tells workers to stop their work for these commands. ``reason`` is shown to people.

    With a ``nonce`` only the run with that nonce is meant: the fold rejected its report, so it ends without a further
    report. Without one the commands are cancelled: their runs end and report ``cancelled``; or, if ``pausing``, local
    loops among them suspend before their next iteration.
    """

    execution_id: str
    command_ids: list[str]
    reason: str
    nonce: str = ""
    pausing: bool = False


InboxFact = (
    events.ExecutionRequested
    | events.CancelRequested
    | events.PauseRequested
    | events.ResumeRequested
    | events.ChildFinished
    | events.SlotGranted
    | events.SlotRefused
)
"""Facts that one execution sends to another, or an aggregate to an execution."""


class InboxMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message from one execution to another, through Postgres (PROTOCOL §1 *Inbox*)."""

    execution_id: str
    fact: InboxFact
    format: int = OLDEST_FORMAT


class AggregateMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to an aggregate, whose id is its ``execution_id``; otherwise as :class:`InboxMessage`."""

    execution_id: str
    fact: aggregates.SentFact
    format: int = OLDEST_FORMAT


class RunningCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command that a worker holds. ``delivered`` counts its deliveries since it was issued, this one included.

    ``waits_for`` is the reason why a finished result cannot be reported, ``task_waits_for`` what its task waits for at
    the worker before it begins; else empty.
    """

    execution_id: str
    command_id: str
    step: str
    delivered: int = 1
    waits_for: str = ""
    task_waits_for: str = ""


class ChildUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The child processes of a tool kind: ``busy`` of at most ``most`` run a task, and ``waiting`` tasks need one."""

    busy: int
    most: int
    waiting: int = 0


class WorkerPresence(msgspec.Struct, frozen=True, omit_defaults=True):
    """A live worker. ``busy`` of its ``slots`` hold a command; ``since_ms`` is when it started, by its own clock.

    ``kinds`` are its tool kinds. A ``draining`` worker takes no new commands. ``running`` names the commands it has
    held longest, up to a fixed number. ``children`` are those of tool kinds with a bound of their own. ``held_bytes``
    is the size of all that it holds. ``at_ms`` is the time of the answer, by its own clock; 0 from an older worker.
    ``confinement`` is the level of its tasks' confinement, and ``network`` the network access of their programs; empty
    from an older worker. ``unfit`` is the reason why it takes no commands until a self-test passes; else empty.
    """

    name: str
    pool: str
    slots: int
    busy: int
    since_ms: int
    kinds: list[str]
    version: str
    draining: bool = False
    running: list[RunningCommand] = []
    held_bytes: int = 0
    at_ms: int = 0
    children: dict[str, ChildUse] = {}
    confinement: str = ""
    network: str = ""
    unfit: str = ""


GrantsUse = Literal["", "unset", "everything", "restricted", "file"]


class MemoryUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The bounded memory that a process uses, in bytes, by kind; ``limits`` are the bounds.

    ``evictions``: the number of evicted states. ``snapshots_written``, ``snapshots_thrown_away``: their numbers so far.
    ``at_ms`` is the time of the answer, by the clock of the process; 0 if unknown. ``grants``: of a server, the rights
    of playbooks: everything (by default or by choice), ``restricted``, or those in a ``file``; empty if unknown.
    ``disagreements``: of the server that compares them, some of the differences between Postgres and EVENTS.
    ``stored``: of a server, the bytes in the object store of namespaces that are near ``max_stored_bytes``, the limit
    of each; 0: no limit. ``unstored``: of a server, the reasons why it cannot store its decisions, a line a store.
    ``pool_labels``: of a server, the labels of pools by which it places steps. ``untold``: of a server, the reason
    why it cannot send lineage. ``late_records``: of the server that reads all of EVENTS, the number of records it found
    that do not count, since their server had lost the partition.
    """

    role: str
    process: str
    held: dict[str, int]
    limits: dict[str, int] = {}
    evictions: int = 0
    snapshots_written: int = 0
    snapshots_thrown_away: int = 0
    at_ms: int = 0
    grants: GrantsUse = ""
    disagreements: list[str] = []
    stored: dict[str, int] = {}
    max_stored_bytes: int = 0
    unstored: list[str] = []
    pool_labels: dict[str, dict[str, str]] = {}
    untold: str = ""
    late_records: int = 0


class SecretQuestion(msgspec.Struct, frozen=True):
    """A request for a stored credential by ``worker``. ``public_key``: X25519, for this request only."""

    command: ShownCommand
    name: str
    public_key: bytes
    worker: str = ""


class WebhookQuestion(msgspec.Struct, frozen=True):
    """A delivery to the webhook of the trigger at ``path``. Names of headers are lower-case."""

    path: str
    method: str
    headers: dict[str, str]
    query: str
    body: bytes


class WebhookAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verdict on a delivery. A failed verification has no reason: anybody may have sent the delivery.

    ``event`` is the event for the trigger. ``identity`` is the same for repeated deliveries of one event; empty if
    nothing identifies them. ``challenge`` is to be returned to the sender; it is not an event.
    """

    is_verified: bool = False
    event: dict[str, Any] = {}
    identity: str = ""
    challenge: str | None = None


class PlaybookQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for the source of the command's playbook, or of the schema with this digest that it names."""

    command: ShownCommand
    schema: str = ""


class ResultQuestion(msgspec.Struct, frozen=True):
    """A request for the gathered result of a loop, by the key of its reference."""

    command: ShownCommand
    key: str


class CatalogQuestion(msgspec.Struct, frozen=True):
    """A request to resolve the address of a playbook, the latest without ``version`` (LANGUAGE §12)."""

    command: ShownCommand
    path: str
    version: str | None = None


class HideQuestion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to hide a value that the worker has read itself, wherever the command's execution is shown.

    Attributes:
        name: The name of the value: an entry of the keychain, or a credential of the worker's own.
        server_key: The public key of the server to which the value is sealed; without one, the question asks for it.
        public_key: The worker's key, for this value only.
        body: See :class:`noetl_stream.sealing.handover.Sealed`.
        worker: The name of the asking worker.
    """

    command: ShownCommand
    name: str
    server_key: bytes = b""
    public_key: bytes = b""
    body: bytes = b""
    worker: str = ""


WorkerQuestion = SecretQuestion | HideQuestion | PlaybookQuestion | ResultQuestion | CatalogQuestion
"""The questions of workers, each on behalf of a live command (PROTOCOL §7 *Capabilities*)."""


class SecretAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored credential, sealed to the request's key, or the reason for refusing it.

    Attributes:
        version: The stored version; 0 without a value.
        public_key: The server's key, for this answer only.
        body: See :class:`noetl_stream.sealing.handover.Sealed`.
        refused: The reason for refusing a stored value; empty if the name is not stored.
        near: A stored name similar to the requested one.
        is_operators: Whether the server's operator configured the credential; otherwise somebody stored it.
    """

    version: int = 0
    public_key: bytes = b""
    body: bytes = b""
    refused: str = ""
    near: str = ""
    is_operators: bool = False


class HideAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a :class:`HideQuestion`: hidden, the ``server_key`` to seal with, or the reason why it is
    ``refused``.
    """

    server_key: bytes = b""
    refused: str = ""


def hidden_as(question: HideQuestion) -> bytes:
    """The context to which a value to hide is bound: it opens only for this command and name."""
    return f"hide\0{question.command.execution_id}\0{question.command.command_id}\0{question.name}".encode()


def subject_of(question: SecretQuestion, version: int) -> bytes:
    """The context to which a sealed value is bound: it opens only for this execution, name and version."""
    return f"{question.command.execution_id}\0{question.name}\0{version}".encode()
