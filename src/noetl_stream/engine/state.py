"""The folded state of one execution: an immutable value, cheap to copy, keyed by token and step run (DESIGN §3)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from operator import is_not
from typing import Any, Final, TypeVar

import msgspec

from noetl_stream.model import events
from noetl_stream.model.events import (
    ALL_SHARED,
    ChildCall,
    Fact,
    KeyScope,
    OnLimit,
    Origin,
    Parent,
    Path,
    SharedValue,
    TimerPurpose,
    Token,
    Wait,
)
from noetl_stream.model.ids import RunId
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome, Page, Payload, Reference, StepValue
from noetl_stream.model.priorities import DEFAULT_PRIORITY
from noetl_stream.model.status import ENDED, EndStatus, ExecutionStatus, FoldedStatus, RunStatus
from noetl_stream.template import Budget

Value = TypeVar("Value")

NOT_LOADED: Final = object()

EVALUATION: Final = "evaluation"
"""The subject that an execution awaits while another process evaluates its templates."""


class RecordedFact(msgspec.Struct, frozen=True, gc=False):
    """A recorded fact, with the run and number of a worker's event, else ``None``.

    ``at_ms`` is the fact's time (PROTOCOL §2 *Decide*). ``value`` is the value loaded for ``reference.resolved``; a
    replay lacks it, and the next decision that reads the reference loads it again. ``step_run_id`` comes from the
    worker's report and is empty in a replay.
    """

    fact: Fact
    run: RunId | None = None
    number: int = 0
    at_ms: int = 0
    value: Any = NOT_LOADED
    step_run_id: str = ""


LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999, the last that ISO 8601 can write; later times are due then."""


def due_ms(from_ms: int, seconds: float) -> int:
    return min(from_ms + round(min(seconds, LATEST_MS) * 1000), LATEST_MS)


class WaitingToken(msgspec.Struct, frozen=True, gc=False):
    """A token that no step run has consumed yet.

    Held: admission was denied, with these guards; ``keeps_alive`` if it may wait there (``admit.wait``). Joining: it
    waits at the join of its step. ``arrived`` is the position at which it was enqueued.
    """

    token: Token
    arrived: int = 0
    held: bool = False
    guards: tuple[events.EvaluatedGuard, ...] = ()
    keeps_alive: bool = False
    joining: bool = False


class RestingBranch(msgspec.Struct, frozen=True, gc=False):
    """A branch that waits at ``next`` since this position, when its guards had these values (LANGUAGE §7)."""

    arrived: int
    guards: tuple[events.EvaluatedGuard, ...]


class Evaluation(msgspec.Struct, frozen=True, gc=False):
    """Choices made by another process, from ``ctx`` and ``steps`` at ``position``."""

    position: int
    choices: tuple[str, ...]
    ctx: dict[str, Any]
    steps: dict[str, StepValue]


class Chosen(msgspec.Struct, frozen=True, gc=False):
    """The result of a choice, with the ``ctx`` and ``steps`` it was made from."""

    evaluated: events.Evaluated
    ctx: dict[str, Any]
    steps: dict[str, StepValue]


class Timer(msgspec.Struct, frozen=True, gc=False):
    """A timer that is set; Postgres holds a row for it while it is in the state."""

    purpose: TimerPurpose
    due_ms: int
    subject: str = ""
    path: Path = ()


class Slot(msgspec.Struct, frozen=True, gc=False):
    """A slot of ``key`` in a ``namespace``, held or awaited since a time.

    The slot of a ``task`` is for one attempt, in the iteration ``path`` of a step run; ``over``: the attempt has ended.
    ``partition``: it is a step run's turn among those of its step with the same key.
    """

    key: str
    since_ms: int
    granted: bool = False
    on_limit: OnLimit = "queue"
    warning: str = ""
    step_run_id: str = ""
    task: str = ""
    path: Path = ()
    over: bool = False
    namespace: str = ""
    partition: bool = False

    @property
    def is_held(self) -> bool:
        return self.granted and not self.over


class LoopState(msgspec.Struct, frozen=True, gc=False):
    """A loop as counts and a window (DESIGN §3): no entry per iteration, except results while they are small.

    ``done`` is a bitmap of ended iterations at and above ``low``; everything below ``low`` has ended. ``results`` is a
    linked list ``(index, payload, rest)`` of at most ``limits.max_inline_bytes``; ``None`` and ``spilled`` above that.
    ``failed_leaves`` counts failures at any depth, except those caused by an inner one. ``inner`` holds the running
    loops of the level inside, by index. A long list has ``pages`` in place of ``items``; nothing follows from the pages
    until the level has ``begun``. ``local``: a worker runs the level as a whole.
    """

    items: list[Any]
    count: int
    local: bool
    max_in_flight: int
    next_index: int = 0
    low: int = 0
    done: int = 0
    ok: int = 0
    failed: int = 0
    skipped: int = 0
    failed_leaves: int = 0
    first_error: ErrorInfo | None = None
    results: tuple[Any, ...] | None = None
    results_bytes: int = 2
    spilled: bool = False
    inner: dict[int, LoopState] = {}
    pages: tuple[Page, ...] = ()
    begun: bool = True

    def has_ended(self, index: int) -> bool:
        return index < self.low or bool(self.done >> (index - self.low) & 1)

    @property
    def ended(self) -> int:
        return self.ok + self.failed + self.skipped


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """An issued or suspended command. ``run`` is the run it is bound to, ``next_number`` the number of that run's next
    event, ``taken`` the number of its issues that workers have taken.

    ``progress`` holds the pipelines that have begun, by the iteration's path key; ``cancelling`` is the reason why the
    server cancels it; ``discards_patches``: its patches are no longer applied. ``segment`` counts suspensions.
    ``waits`` holds the iterations still waiting, ``answers`` the outcomes of those that are not (``None``: the end of a
    delay), both by path key. ``paused``: it can resume without an answer (``step.suspended``). ``paging``: it only
    pages out the items of the level inside ``path``, after the task that makes its rows, if it has one.
    """

    command_id: str
    step_run_id: str
    path: Path = ()
    issue: int = 1
    run: RunId | None = None
    next_number: int = 0
    taken: int = 0
    cancelling: str = ""
    discards_patches: bool = False
    progress: dict[str, Progress] = {}
    segment: int = 0
    waits: dict[str, Wait] = {}
    answers: dict[str, Outcome | None] = {}
    paused: bool = False
    paging: bool = False


class StepRun(msgspec.Struct, frozen=True, gc=False):
    """One consumption of a token. ``ctx`` and ``steps`` are snapshots from when it was claimed (LANGUAGE §5).

    ``patches`` are the ``ctx`` keys it has set itself; ``shared`` the contributions of its loop's iterations to shared
    keys, a linked list ``(path, position, key, value, rest)``. ``ended`` is the name of the event it ended with, until
    that is routed, ``value`` its result then, ``error`` the error of a failure. ``claimed_at`` is a position;
    ``started_ms`` is 0 before the start. ``metadata`` was added to the token by its admission. ``unattended`` counts
    the iterations that ended since a worker last ended one, mostly empty inner loops.
    """

    step_run_id: str
    step: str
    token: Token
    ctx: dict[str, Any]
    steps: dict[str, StepValue]
    loop: LoopState | None = None
    vars: dict[str, Any] = {}
    patches: dict[str, Any] = {}
    shared: tuple[Path, int, str, SharedValue, Any] | None = None
    shared_bytes: int = 0
    ended: str = ""
    value: StepValue | None = None
    error: ErrorInfo | None = None
    refused: ErrorInfo | None = None
    claimed_at: int = 0
    started_ms: int = 0
    unattended: int = 0
    metadata: dict[str, Any] | None = None

    @property
    def place(self) -> str:
        """The place of its turn: the names of steps have no spaces."""
        return f"{self.step} {self.token.partition}"

    @property
    def token_seen(self) -> dict[str, Any]:
        """The ``token`` that templates read."""
        return {"cause": self.token.cause, "from_step": self.token.from_step, **(self.metadata or {})}


class Compensable(msgspec.Struct, frozen=True, gc=False):
    """A step run that can be undone, with the inputs of its compensation: its result, ``args`` and ``vars``.

    ``value`` is ``None`` if it has failed. ``called`` are the executions it called that are to be undone. ``reason`` is
    the reason for not undoing it.
    """

    step: str
    args: dict[str, Any]
    value: StepValue | None = None
    vars: dict[str, Any] = {}
    called: tuple[ChildCall, ...] = ()
    begun: bool = False
    undone: bool = False
    reason: str = ""


class Closing(msgspec.Struct, frozen=True, gc=False):
    """The end of an execution, held until its work is undone (if it ``undoes``) and ``finally`` has run.

    ``timed_out``: undoing took longer than it may, and nothing more is undone. ``finally_begun``: the token of
    ``finally`` was enqueued.
    """

    status: EndStatus
    outcome: Outcome
    undoes: bool = False
    timed_out: bool = False
    finally_begun: bool = False


class Undoing(msgspec.Struct, frozen=True, gc=False):
    """The compensations of an execution before its end.

    ``undoes`` are the steps whose runs can be undone, as in ``execution.started``; ``compensable`` their runs that may
    have had an effect, in order of their end; ``calls`` the unfinished executions that such runs have called.
    ``closing`` is the end that is held meanwhile. ``at_once``: it is cancelled without compensations.
    """

    undoes: dict[str, bool] = {}
    compensable: dict[str, Compensable] = {}
    calls: dict[str, ChildCall] = {}
    closing: Closing | None = None
    at_once: bool = False


class Usage(msgspec.Struct, frozen=True, gc=False):
    """The use of an execution's quotas.

    ``reused`` counts the step runs that a rerun has taken over, ``bytes`` the bytes of values in the journal, without
    those kept by reference. ``exceeded`` is the use at which a quota was last exceeded.
    """

    quotas: events.Quotas
    reused: int = 0
    task_runs: int = 0
    task_seconds: float = 0.0
    bytes: int = 0
    exceeded: dict[str, float] = {}


class Execution(msgspec.Struct, frozen=True, gc=False):
    """The state of one execution after the entry at ``position``, with the time ``at_ms``.

    ``schemas`` are the digests of the schemas that its playbook names, by address. ``labels`` are ``None`` if they are
    the constant ones of its playbook. People find it by its ``labels``, ``key``, ``inputs`` and the first ``workers``
    that ran its steps.

    ``ctx``: ``ctx_version`` is the position of its last change, ``writers`` the last writer of each key and the time,
    ``ctx_notice`` the part of a task's patch that is still to be reported. ``requests`` are the client requests taken
    so far. ``stored_bytes`` are those of the objects that its workers have stored and named. ``returned`` counts the
    commands that workers gave back because they could not begin a task.

    Waiting: ``resting`` are branches at a ``next``, by step run; ``suspensions`` are suspended commands, ``children``
    the executions they wait for, ``orphaned`` the outcomes of children that nothing waited for at that moment;
    ``signals`` the queued ones, by name. ``waves`` counts the firings of each join. ``tolerated`` are failed
    iterations, by step; ``warnings`` those of tasks, by step, task and kind.

    ``sent`` are digests of the keys by which arcs have sent tokens that they do not send again, in groups.

    ``failed_step`` is the step whose failure is ``failing``. ``broken`` is an error of the fold that has yet to fail
    the execution; ``paused_at_ms`` is 0 while not paused; ``quarantined`` is the reason for its quarantine, in which it
    is paused and accepts only a cancel or a resume; ``awaited`` is the reference to be resolved before the next
    decision, ``resolved`` the values resolved so far, the last at position ``resolved_at``. ``evaluation`` is the work
    in templates to be done before the next decision, ``chosen`` what such work came to, by the id of the choice.
    ``budget`` pays for the templates of one fact: :func:`~noetl_stream.engine.advance.advance` refills it.

    ``slots`` are slots of limits by step run; a task's has its own id, the execution's ``""``. Nothing is decided
    before the execution has its slot. ``keys`` says whether each key is the namespace's or shared. A caller shares its
    slots of ``caller_keys`` in its namespace, and of ``shared_keys`` of all namespaces.

    ``turns`` are the unfinished step runs in the order of their turns, by place: a step and a key of the arcs into it.

    ``usage`` counts against its quotas, if it has any. ``pools`` are those of steps with a placement.

    ``due`` is the time of its schedule's occurrence; ``execution`` is the namespace of that name in templates, empty if
    none reads it.

    Start: ``request`` is the request, made at ``requested_ms``, until it is started or refused. ``awaited`` names the
    playbook while that is loaded, or the original of a rerun, ``rerun_of``, of which ``reused_pages`` have arrived.
    """

    execution_id: str
    request_id: str
    digest: str
    status: FoldedStatus = "pending"
    position: int = 1
    path: str = ""
    version: str | None = None
    trace_id: str = ""
    principal: str = ""
    limits: Limits = Limits()
    workload: dict[str, Any] = {}
    schemas: dict[str, str] = {}
    ctx: dict[str, Any] = {}
    ctx_bytes: int = 2
    steps: dict[str, StepValue] = {}
    ends: dict[str, Payload] = {}
    tokens: dict[str, WaitingToken] = {}
    runs: dict[str, StepRun] = {}
    resting: dict[str, RestingBranch] = {}
    assignments: dict[str, Assignment] = {}
    suspensions: dict[str, Assignment] = {}
    timers: dict[str, Timer] = {}
    signals: dict[str, tuple[Any, ...]] = {}
    children: dict[str, str] = {}
    orphaned: dict[str, Outcome] = {}
    waves: dict[str, int] = {}
    writers: dict[str, tuple[str, int]] = {}
    requests: frozenset[str] = frozenset()
    ctx_notice: events.CtxOverwrote | events.CtxPatchDiscarded | None = None
    step_runs: int = 0
    stored_bytes: int = 0
    discarded: int = 0
    tolerated: dict[str, events.ToleratedFailures] = {}
    warnings: dict[str, events.TaskWarning] = {}
    evaluated: bool = False
    refused: list[dict[str, Any]] = []
    broken: ErrorInfo | None = None
    failing: ErrorInfo | None = None
    failed_step: str = ""
    cancelling: str = ""
    outcome: Outcome | None = None
    processed: bool = False
    at_ms: int = 0
    ctx_version: int = 1
    parent: Parent | None = None
    paused_at_ms: int = 0
    quarantined: str = ""
    awaited: Reference | None = None
    resolved: dict[str, Any] = {}
    resolved_at: int = 0
    evaluation: Evaluation | None = None
    chosen: dict[str, Chosen] = {}
    budget: Budget = msgspec.field(default_factory=Budget)
    rerun_of: str = ""
    request: events.ExecutionRequested | None = None
    reused_pages: int = 0
    caller_span: str = ""
    priority: int = DEFAULT_PRIORITY
    origin: Origin | None = None
    slots: dict[str, Slot] = {}
    shared_keys: tuple[str, ...] = ()
    caller_keys: tuple[str, ...] = ()
    keys: KeyScope = ALL_SHARED
    returned: dict[str, int] = {}
    labels: dict[str, Any] | None = None
    key: str = ""
    inputs: dict[str, Any] = {}
    workers: tuple[str, ...] = ()
    due: str = ""
    execution: dict[str, Any] = {}
    requested_ms: int = 0
    undoing: Undoing = Undoing()
    usage: Usage | None = None
    pools: dict[str, str] = {}
    sent: dict[str, tuple[str, ...]] = {}
    turns: dict[str, tuple[str, ...]] = {}

    @property
    def closing(self) -> Closing | None:
        return self.undoing.closing

    @property
    def compensable(self) -> dict[str, Compensable]:
        return self.undoing.compensable

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def commands(self) -> tuple[Assignment, ...]:
        """Every issued or suspended command."""
        return (*self.assignments.values(), *self.suspensions.values())

    @property
    def ending(self) -> bool:
        """Whether the execution is failing or being cancelled: nothing is routed, retried or patched any longer."""
        return self.failing is not None or bool(self.cancelling)

    @property
    def halted(self) -> bool:
        """Whether facts are folded but nothing is decided, until a pause has ended, a reference resolved, templates are
        evaluated (PROTOCOL §2) or the execution has its slot.
        """
        waits = self.paused_at_ms or self.awaited is not None or self.evaluation is not None
        if self.slots and not waits:
            waits = self.is_queued
        return bool(waits) and not self.ending

    @property
    def is_queued(self) -> bool:
        """Whether the execution waits for a slot before it begins."""
        slot = self.slots.get("")
        return slot is not None and not slot.granted

    def slots_in(self, step_run_id: str, path: Path) -> list[tuple[str, Slot]]:
        """The slots of tasks, by id, in this iteration of a step run and in those inside it."""
        depth = len(path)
        return [
            (slot_id, slot)
            for slot_id, slot in self.slots.items()
            if slot.task and slot.step_run_id == step_run_id and slot.path[:depth] == path
        ]

    def priority_of(self, step_run_id: str) -> int:
        """The priority of a step run: that of its token, else the execution's."""
        run = self.runs.get(step_run_id)
        own = None if run is None else run.token.priority
        return self.priority if own is None else own

    def has_from_caller(self, key: str) -> bool:
        """Whether a caller holds a key and shares its slot."""
        if key in self.shared_keys:
            return True
        is_own = bool(self.keys.namespace_of(key)) or not self.keys.namespace
        return is_own and key in self.caller_keys

    @property
    def looks_into(self) -> str | None:
        """The subject that the execution awaits: the key of a reference, or :data:`EVALUATION`."""
        if self.awaited is not None:
            return self.awaited.key
        return EVALUATION if self.evaluation is not None else None

    @property
    def shown_status(self) -> ExecutionStatus:
        """The status people read (LANGUAGE §9). ``waiting``: something waits, and no command is queued or running."""
        if self.quarantined:
            return "quarantined"
        if self.status != "running":
            return self.status
        if self.paused_at_ms:
            return "paused"
        if self.is_compensating:
            return "compensating"
        if self.assignments:
            return "running"
        waits = self.suspensions or self.resting or any(waiting.keeps_alive for waiting in self.tokens.values())
        waits = waits or any(not slot.granted for slot in self.slots.values())
        return "waiting" if waits else "running"

    @property
    def undoes_another(self) -> bool:
        """Whether the execution was requested only to undo another."""
        return self.request is not None and self.request.rerun is not None and self.request.rerun.undoes

    @property
    def held_end(self) -> dict[str, Any]:
        """The execution's end as templates of ``finally`` read it before it has happened."""
        held = self.undoing.closing
        if held is None:
            return {}
        error = held.outcome.error
        return {"status": held.status, "error": None if error is None else msgspec.structs.asdict(error)}

    @property
    def is_compensating(self) -> bool:
        """Whether the execution undoes what it has done, before it ends."""
        closing = self.undoing.closing
        return closing is not None and closing.undoes and not closing.finally_begun

    def run_statuses(self) -> dict[str, RunStatus]:
        """The statuses of the unfinished step runs as people read them, by id (LANGUAGE §9): ``running`` if a command
        of it is queued or running, ``waiting`` if it waits for something, else the execution's status, since it is
        about to go on.
        """
        owed = {assignment.step_run_id for assignment in self.assignments.values()}
        waits = {suspended.step_run_id for suspended in self.suspensions.values()}
        waits |= {slot.step_run_id for slot in self.slots.values() if not slot.granted}
        goes_on: RunStatus = "running" if self.shown_status in ("running", "compensating") else "waiting"
        return {
            one: "running" if one in owed else "waiting" if one in waits else goes_on
            for one, run in self.runs.items()
            if not run.ended
        }


UNSETTLED: Final = Execution("", "", "")
"""An empty execution, from which every other state differs in all its entries."""


def changed_entries(before: Mapping[str, Value], after: Mapping[str, Value]) -> list[tuple[str, Value]]:
    """The entries of ``after`` that ``before`` lacks or has another value of."""
    if before is after:
        return []
    differs = map(is_not, after.values(), map(before.get, after))
    return list(compress(after.items(), differs))
