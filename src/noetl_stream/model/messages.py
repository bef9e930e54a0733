"""The messages on the wire: reports in, journal records out, commands to workers, claims and their answers.

Everything is JSON so that ``nats`` and ``psql`` can read it (DESIGN §6). Source: PROTOCOL §1, §3.
"""

from __future__ import annotations

from typing import Any

import msgspec

from noetl_stream.model.events import (
    CancelRequested,
    ChildFinished,
    ClientFact,
    ExecutionRequested,
    Path,
    PauseRequested,
    ResumeRequested,
    Wait,
)
from noetl_stream.model.ids import RunId
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ErrorInfo, Outcome, StepValue
from noetl_stream.model.reference import ItemPosition, Page

FORMAT = 1
"""The engine's format: what it writes and the newest it understands (PROTOCOL §1, §5)."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="request"):
    """A client's message to an execution. Msg-Id: ``request_id``."""

    execution_id: str
    request_id: str
    fact: ClientFact
    format: int = FORMAT


class Report(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="report"):
    """What one run of a command reports: its next events, as encoded facts, numbered from ``first`` (PROTOCOL §3).

    ``number`` is the report's own number in the run and ends its Msg-Id (:func:`noetl_stream.model.ids.report_id`).
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
    format: int = FORMAT

    @property
    def run(self) -> RunId:
        return RunId(self.command_id, self.issue, self.num_delivered, self.nonce)


class InputByReport(msgspec.Struct, frozen=True, array_like=True):
    """A journal entry that is a reported fact: found in EVENTS by its report and index there."""

    report_id: str
    index: int


class JournalRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A ``decided`` message: one stretch of an execution's journal, in fold order (PROTOCOL §1 *Journal*).

    An entry is a decision (an encoded fact) or, as a two-element array, an :class:`InputByReport`. ``through`` is the
    stream sequence of the last reported message of this execution folded before the record, with effect or without.
    """

    execution: str
    first_position: int
    entries: list[msgspec.Raw]
    through: int
    partition: int
    tick: int
    epoch: int
    format: int = FORMAT


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a pipeline stands after its last recorded task: what a run that takes over needs to go on.

    ``task`` is the next task to run (``None``: from the first); ``runs`` counts task runs so far (``max_task_runs``).
    ``delay_s`` was owed before that task when it was recorded.
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


class LoopProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one level of a local loop stands: everything below ``low`` has ended, and so have ``above``.

    ``items`` are those of an inner level (the outermost level's stand in the command), ``pages`` where they stand if
    they are many; ``inner`` the inner loops that have begun, by index.
    """

    low: int = 0
    above: list[int] = []
    ok: int = 0
    failed: int = 0
    first_error: ErrorInfo | None = None
    items: list[Any] | None = None
    pages: list[Page] = []
    inner: dict[int, LoopProgress] = {}


class Go(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="answer", tag="go"):
    """Where to go on: the answer to a claim, and what a command of a later segment carries.

    ``next_number`` is the event number the fold expects next of this run. ``progress`` holds the pipelines that had
    begun, by the iteration's path (:func:`path_key`). ``loop`` is where a local loop stands, ``None`` before it began;
    ``ctx`` and ``vars`` the step run's own so far. Of the iterations that waited, ``answers`` holds those that may go
    on (``None``: a delay is over; else the outcome of the task they waited in), ``waits`` those that wait still.
    """

    next_number: int = 1
    progress: dict[str, Progress] = {}
    loop: LoopProgress | None = None
    ctx: dict[str, Any] = {}
    vars: dict[str, Any] = {}
    answers: dict[str, Outcome | None] = {}
    waits: dict[str, Wait] = {}


def path_key(path: Path) -> str:
    """An iteration's path as a key: ``""`` outside loops, ``"3"``, ``"3.0"`` in an inner loop."""
    return ".".join(map(str, path))


class StepCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """An order to a worker: run this step's pipeline once, or for each item of a local loop; or page a loop out.

    ``workload``, ``ctx`` and ``steps`` hold what the step's templates read, as they were when the token was claimed;
    ``vars`` what earlier iterations of the step run have set.
    ``path`` names the iteration of distributed loops, from the outermost level in: ``chain`` and ``counts`` are the
    element and the number of elements at each of these levels; ``places`` say where the element stands at those levels
    (by their depth) whose items were paged out. ``items`` are those of a local loop (``None``: no local loop), the
    outermost level that is not in ``path``, of which ``max_in_flight`` may run at once; ``pages`` where they stand if
    they were paged out. ``paging``: the order is not to run that level, but to page its items out.
    ``segment`` counts suspensions; from the first on ``resume`` says where to go on (LANGUAGE §8).
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
    trace_id: str = ""
    segment: int = 0
    resume: Go | None = None
    format: int = FORMAT


class Drop(msgspec.Struct, frozen=True, tag_field="answer", tag="drop"):
    """The claim is refused: acknowledge the copy and forget it."""

    reason: str


ClaimAnswer = Go | Drop


class Stop(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tells workers to end what they do for these commands. ``reason`` is shown to people.

    With a ``nonce`` only the run of that nonce is meant: the fold refused its report, so it ends without another word.
    Without one the commands are no longer wanted: their runs end and report ``cancelled``; or, if ``pausing``, local
    loops among them suspend before their next iteration.
    """

    execution_id: str
    command_ids: list[str]
    reason: str
    nonce: str = ""
    pausing: bool = False


InboxFact = ExecutionRequested | CancelRequested | PauseRequested | ResumeRequested | ChildFinished
"""What one execution says to another."""


class InboxMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one execution says to another, through Postgres (PROTOCOL §1 *Inbox*)."""

    execution_id: str
    fact: InboxFact
    format: int = FORMAT


class RunningCommand(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command that a worker holds now. ``delivered`` counts its deliveries since it was issued, this one included."""

    execution_id: str
    command_id: str
    step: str
    delivered: int = 1


class WorkerPresence(msgspec.Struct, frozen=True, omit_defaults=True):
    """A living worker. ``busy`` of its ``slots`` hold a command; ``since_ms`` is when it started, by its own clock.

    ``kinds`` are the tool kinds it has. One that is ``draining`` takes nothing new. ``running`` names the commands it
    has held longest, not more than a bounded number of them.
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


class SecretQuestion(msgspec.Struct, frozen=True):
    """Asks for a stored credential on behalf of an execution. ``public_key``: X25519, made for this question alone."""

    execution_id: str
    name: str
    public_key: bytes


class SecretAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value sealed to the question's key, or why there is none.

    Attributes:
        version: The stored version; 0 if no value is given.
        public_key: The server's, made for this answer alone.
        body: As :class:`noetl_stream.sealing.handover.Sealed` has it.
        refused: Why a stored value is not handed out; empty if the name is not stored.
        near: A stored name like the one that was asked for.
    """

    version: int = 0
    public_key: bytes = b""
    body: bytes = b""
    refused: str = ""
    near: str = ""


def subject_of(question: SecretQuestion, version: int) -> bytes:
    """What a sealed value is about: it opens for this execution, name and version only."""
    return f"{question.execution_id}\0{question.name}\0{version}".encode()
