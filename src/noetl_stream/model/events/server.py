"""Facts recorded by the server: its decisions and its own inputs (LANGUAGE §13)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from noetl_stream.model.events.client import CtxPatched
from noetl_stream.model.events.fact_parts import (
    ALL_SHARED,
    ChildCall,
    ChildOrder,
    Compensation,
    Evaluated,
    EvaluatedGuard,
    Fact,
    KeyScope,
    Kind,
    LoopCounts,
    OnExceeded,
    OnLimit,
    Path,
    Quotas,
    Rate,
    SharedValue,
    TaskWarning,
    TimerPurpose,
    Token,
    ToleratedFailures,
    status_by_end,
    status_by_ok,
    status_by_outcome,
)
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ErrorInfo, Outcome, Reference, StepValue
from noetl_stream.model.priorities import DEFAULT_PRIORITY
from noetl_stream.model.status import EndStatus, RunStatus


class ExecutionEvaluated(Fact, frozen=True, tag="execution.evaluated"):
    """The request was accepted, or rejected with diagnostics."""

    kind: ClassVar = Kind("playbook", status_by_ok)

    ok: bool
    diagnostics: list[dict[str, Any]] = []


class ExecutionStarted(Fact, frozen=True, tag="execution.started"):
    """The execution has started. Pins the inputs of all later decisions: digest, merged workload, limits, engine
    format, priority; the digests of the schemas that the playbook names in the catalog, by address; and the owner of
    the ``keys`` of its limits. ``labels`` are ``None`` if they are the constant ones of the playbook. No other
    execution of the playbook has a ``key`` that is ``unique``. ``execution`` is the namespace of that name in
    templates, if any reads it. ``undoes`` are the steps whose runs can be undone, by a compensation of their own or by
    undoing the executions they called. ``quotas`` are those of the execution, if it has any. ``pools`` are the chosen
    pools of steps with a placement.
    """

    kind: ClassVar = Kind("workflow")

    digest: str
    path: str
    version: str | None
    format: int
    workload: dict[str, Any]
    limits: Limits = Limits()
    trace_id: str = ""
    schemas: dict[str, str] = {}
    priority: int = DEFAULT_PRIORITY
    keys: KeyScope = ALL_SHARED
    labels: dict[str, Any] | None = None
    key: str = ""
    unique: bool = False
    execution: dict[str, Any] = {}
    undoes: dict[str, bool] = {}
    quotas: Quotas | None = None
    pools: dict[str, str] = {}
    tracing: dict[str, Any] = {}


class TokenEnqueued(Fact, frozen=True, tag="token.enqueued"):
    """A token was enqueued. ``joined`` are the tokens that a join has merged into it and that are consumed with it."""

    kind: ClassVar = Kind("token")

    token: Token
    joined: list[str] = []


class TokenJoined(Fact, frozen=True, tag="token.joined"):
    """The token has reached a join and waits there for the others of its wave (LANGUAGE §7)."""

    kind: ClassVar = Kind("token", "paused")

    token_id: str


class TokenAbsorbed(Fact, frozen=True, tag="token.absorbed"):
    """The token reached a join that had fired without it, and does not descend from that firing."""

    kind: ClassVar = Kind("token", "success")

    token_id: str
    reason: str


class TokenHeld(Fact, frozen=True, tag="token.held"):
    """Admission was denied for now; the token waits for a change of ``ctx`` or of a step's result (LANGUAGE §4).

    ``keeps_alive``: it may wait there (``admit.wait``), which keeps the execution running.
    """

    kind: ClassVar = Kind("token", "paused")

    token_id: str
    guards: list[EvaluatedGuard] = []
    keeps_alive: bool = False


class TokenClaimed(Fact, frozen=True, tag="token.claimed"):
    """The token was admitted: a new step run consumes it and sees the present ``ctx``.

    With ``refused`` the step run fails at once: its admission, deadline or join can no longer be satisfied.
    ``metadata`` was added to the token by its admission; ``tracing`` are attributes of its span.
    """

    kind: ClassVar = Kind("token", "success")

    token_id: str
    step_run_id: str
    guards: list[EvaluatedGuard] = []
    refused: ErrorInfo | None = None
    metadata: dict[str, Any] | None = None
    tracing: dict[str, Any] = {}


class TokenDiscarded(Fact, frozen=True, tag="token.discarded"):
    kind: ClassVar = Kind("token", "success", bounded=True)

    token_id: str
    reason: str


class StepScheduled(Fact, frozen=True, tag="step.scheduled"):
    """A command is issued to workers. An ``issue`` above 1 is a repetition, for ``reason``.

    ``items`` are those of a local loop (``None`` without one, or if paged out), of which ``max_in_flight`` may run at
    once; ``source`` names them instead if they are a value of ``workload`` or ``ctx``. ``paging``: the command
    evaluates ``in`` of the level inside the iteration ``path``, or makes its rows, and pages its items out.
    """

    kind: ClassVar = Kind("step", bounded=True)

    step_run_id: str
    command_id: str
    path: Path = ()
    issue: int = 1
    reason: str = ""
    items: list[Any] | None = None
    max_in_flight: int = 1
    paging: bool = False
    source: list[str | int] = []


class StepCancelled(Fact, frozen=True, tag="step.cancelled"):
    """The server cancels this command (fail-fast loops, an execution that ends).

    ``discards_patches``: patches of ``ctx`` by its tasks are not applied from here on (LANGUAGE §9 *Cancel*).
    """

    kind: ClassVar = Kind("step", "error", bounded=True)

    step_run_id: str
    command_id: str
    reason: str
    discards_patches: bool = False


class StepResumed(Fact, frozen=True, tag="step.resumed"):
    """A suspended pipeline resumes: its next segment is the command ``command_id`` (LANGUAGE §8)."""

    kind: ClassVar = Kind("step", bounded=True)

    step_run_id: str
    suspended: str
    command_id: str
    path: Path = ()


class LoopPaged(Fact, frozen=True, tag="loop.paged"):
    """The next items of a loop with a long list. Only earlier versions record it."""

    kind: ClassVar = Kind("loop", bounded=True)

    step_run_id: str
    items: list[Any]
    path: Path = ()


class TimerSet(Fact, frozen=True, tag="timer.set"):
    """A timer was set. ``subject`` is its token, step run, suspended command or the execution."""

    kind: ClassVar = Kind("workflow", bounded=True)

    timer_id: str
    purpose: TimerPurpose
    due_ms: int
    subject: str = ""
    path: Path = ()


class TimerFired(Fact, frozen=True, tag="timer.fired"):
    """A server input: the timer is due by the database's clock."""

    kind: ClassVar = Kind("workflow", "success")

    timer_id: str
    purpose: TimerPurpose
    subject: str = ""
    path: Path = ()


class ChildRequested(Fact, frozen=True, tag="child.requested"):
    """The child of a suspended command is started, through the inbox of its partition (PROTOCOL §1 *Inbox*).

    Without a ``command_id`` it undoes the execution in ``call``, which the step run had called.
    """

    kind: ClassVar = Kind("workflow", bounded=True)

    step_run_id: str
    command_id: str
    execution_id: str
    call: ChildCall
    path: Path = ()


class ChildOrdered(Fact, frozen=True, tag="child.ordered"):
    """A child is ordered to end, pause or resume with its parent. ``awaited``: the parent, which undoes its work, waits
    for the end; ``now``: it ends without undoing anything.
    """

    kind: ClassVar = Kind("workflow", bounded=True)

    execution_id: str
    order: ChildOrder
    reason: str = ""
    awaited: bool = False
    now: bool = False


class ChildFinished(Fact, frozen=True, tag="child.finished"):
    """A child has ended, as reported through the inbox."""

    kind: ClassVar = Kind("workflow", status_by_outcome)

    execution_id: str
    command_id: str
    outcome: Outcome
    path: Path = ()


class SlotRequested(Fact, frozen=True, tag="slot.requested"):
    """A slot of ``key`` is requested for the step run, or for the whole execution if there is none.

    ``namespace`` is that of the key, here and in the following facts; empty for a shared key. ``concurrency`` and
    ``rate`` are those of the key in its playbook. Nothing begins before ``slot.granted``. With a ``slot_id`` the slot
    is for the next attempt of ``task`` in the iteration ``path``, or in a ``partition`` it is the turn of the step run.
    """

    kind: ClassVar = Kind("workflow", "paused", bounded=True)

    key: str
    step_run_id: str = ""
    concurrency: int | None = None
    rate: Rate | None = None
    on_limit: OnLimit = "queue"
    slot_id: str = ""
    task: str = ""
    path: Path = ()
    namespace: str = ""
    partition: bool = False


class SlotGranted(Fact, frozen=True, tag="slot.granted"):
    """A server input: a slot of the key is granted. ``warning``: a text about its limit."""

    kind: ClassVar = Kind("workflow", "success", ends_halt=True)

    key: str
    step_run_id: str = ""
    warning: str = ""
    slot_id: str = ""
    namespace: str = ""


class SlotRefused(Fact, frozen=True, tag="slot.refused"):
    """A server input: the key has no free slot, and the playbook does not wait for one (``on_limit``)."""

    kind: ClassVar = Kind("workflow", "error")

    key: str
    reason: str
    step_run_id: str = ""
    namespace: str = ""


class SlotReleased(Fact, frozen=True, tag="slot.released"):
    """A step run or task (with ``slot_id``) returns its slot or stops its wait; an execution's is returned with its
    end.
    """

    kind: ClassVar = Kind("workflow", "success", bounded=True)

    key: str
    step_run_id: str
    slot_id: str = ""
    namespace: str = ""
    partition: bool = False


class ReferenceAwaited(Fact, frozen=True, tag="reference.awaited"):
    """A decision reads a result kept by reference: nothing is decided until the server has loaded it (PROTOCOL §2)."""

    kind: ClassVar = Kind("workflow", "paused")

    reference: Reference


class ReferenceResolved(Fact, frozen=True, tag="reference.resolved"):
    """A server input: the value of a reference is loaded; ``checksum`` identifies it."""

    kind: ClassVar = Kind("workflow", "success", ends_halt=True)

    key: str
    checksum: str = ""


class ReferenceLost(Fact, frozen=True, tag="reference.lost"):
    """A server input: the value of a reference can no longer be read."""

    kind: ClassVar = Kind("workflow", "error", ends_halt=True)

    key: str
    reason: str


class EvaluationAwaited(Fact, frozen=True, tag="evaluation.awaited"):
    """Templates cost more than the server's loop may spend: nothing is decided until they are evaluated (PROTOCOL §2).

    ``choices`` names the choices to make: admissions by token, arcs by step run, the execution's ``result``, or whether
    its ``workload`` matches.
    """

    kind: ClassVar = Kind("workflow", "paused")

    choices: list[str]


class EvaluationFinished(Fact, frozen=True, tag="evaluation.finished"):
    """A server input: the templates awaited at ``position`` are evaluated, or first need a result kept by reference."""

    kind: ClassVar = Kind("workflow", "success", ends_halt=True)

    position: int
    chosen: dict[str, Evaluated] = {}
    reference: Reference | None = None


class EvaluationFailed(Fact, frozen=True, tag="evaluation.failed"):
    """A server input: the templates awaited at ``position`` could not be evaluated."""

    kind: ClassVar = Kind("workflow", "error", ends_halt=True)

    position: int
    reason: str


class ExecutionPaused(Fact, frozen=True, tag="execution.paused"):
    kind: ClassVar = Kind("workflow", "paused")

    reason: str = ""


class QuotaExceeded(Fact, frozen=True, tag="execution.quota_exceeded"):
    """The execution has ``used`` more than the ``amount`` of a quota, and continues or is paused."""

    kind: ClassVar = Kind("workflow", "error", bounded=True)

    quota: str
    amount: float
    used: float
    on_exceeded: OnExceeded

    @property
    def text(self) -> str:
        """The message for people."""
        amount, used = (f"{round(one, 6):,}".removesuffix(".0") for one in (self.amount, self.used))
        return f"quotas.{self.quota} is {amount}, and the execution comes to {used}"


class ExecutionQuarantined(Fact, frozen=True, tag="execution.quarantined"):
    """A server input: an input of this execution stopped servers. None of its inputs is folded until it is resumed."""

    kind: ClassVar = Kind("workflow", "error")

    reason: str


class ExecutionResumed(Fact, frozen=True, tag="execution.resumed"):
    """The execution continues after a pause, which counts towards no timeout: those still set are due ``paused_ms``
    later.
    """

    kind: ClassVar = Kind("workflow", ends_halt=True)

    paused_ms: int = 0


class CtxOverwrote(Fact, frozen=True, tag="ctx.overwrote"):
    """The preceding task set keys that another step run changed since its own began (LANGUAGE §5)."""

    kind: ClassVar = Kind("ctx")

    step_run_id: str
    keys: list[str]


class CtxPatchDiscarded(Fact, frozen=True, tag="ctx.patch_discarded"):
    """The preceding task would have set keys of ``ctx``; they are unchanged, since the execution is being cancelled."""

    kind: ClassVar = Kind("ctx")

    step_run_id: str
    keys: list[str]


class ExecutionFailing(Fact, frozen=True, tag="execution.failing"):
    """An unhandled failure: tokens are discarded, running work is cancelled, then the execution ends.

    ``failed_run`` is the step run that failed, or whose arcs failed; ``failed_token`` the token whose admission failed.
    """

    kind: ClassVar = Kind("workflow", "error", through_halt=True)

    error: ErrorInfo
    step: str | None = None
    failed_run: str = ""
    failed_token: str = ""


class NextEvaluated(Fact, frozen=True, tag="next.evaluated"):
    """The end of a step run was routed: which guards held, and which arcs (by index) fired.

    ``tolerated``: the run failed, no arc handles that, and ``failure.mode: best_effort`` ended only this branch.
    ``keys`` are those of the arcs with ``dedupe`` that held, by index; an arc that did not fire had sent a token with
    the same key before.
    """

    kind: ClassVar = Kind("next", "success")

    step_run_id: str
    event: str
    guards: list[EvaluatedGuard] = []
    fired: list[int] = []
    tolerated: bool = False
    keys: dict[int, str] | None = None


class NextResting(Fact, frozen=True, tag="next.resting"):
    """No arc fires yet: the branch waits for a change of ``ctx`` or of a step's result (LANGUAGE §7)."""

    kind: ClassVar = Kind("next", "paused")

    step_run_id: str
    event: str
    guards: list[EvaluatedGuard] = []


class NextTimedOut(Fact, frozen=True, tag="next.timed_out"):
    """A resting branch has waited for the longest permitted time: its arcs are evaluated a last time."""

    kind: ClassVar = Kind("next")

    step_run_id: str


class ExecutionClosing(Fact, frozen=True, tag="execution.closing"):
    """The execution is to end with this status, after its work is undone (if it ``undoes``) and ``finally`` has run."""

    kind: ClassVar = Kind("workflow", through_halt=True)

    status: EndStatus
    outcome: Outcome
    undoes: bool = False


class ExecutionFinished(Fact, frozen=True, tag="execution.finished"):
    """The final result of an execution, inline or by reference, is in ``outcome.result``."""

    kind: ClassVar = Kind("workflow", status_by_end, through_halt=True)

    status: EndStatus
    outcome: Outcome
    discarded: int = 0
    tolerated: list[ToleratedFailures] = []
    warnings: list[TaskWarning] = []
    compensations: list[Compensation] = []


class PlaybookProcessed(Fact, frozen=True, tag="playbook.processed"):
    kind: ClassVar = Kind("playbook", status_by_end)

    status: EndStatus


class StepPatched(Fact, frozen=True, tag="step.patched"):
    """The changes of ``ctx`` by a reused step run: the keys it set, then its contributions to shared keys, in order."""

    step_run_id: str
    set_ctx: dict[str, Any] = {}
    shared: list[tuple[str, SharedValue]] = []


class StepReused(Fact, frozen=True, tag="step.reused"):
    """A reused step run and its end. ``outcome`` is that of its last ``task`` (``""`` for the step), ``None`` if it
    failed; ``others`` are those of its other tasks.

    ``vars`` and ``loop`` are read by its arcs, if they have not been routed. ``called`` are the executions it called
    that may be undone; ``undone``: it has been undone.
    """

    status: ClassVar[RunStatus] = "reused"

    step_run_id: str
    ended: Literal["step.done", "loop.done", "step.failed"]
    outcome: Outcome | None = None
    task: str = ""
    others: dict[str, Outcome] = {}
    error: ErrorInfo | None = None
    vars: dict[str, Any] = {}
    loop: LoopCounts | None = None
    called: list[ChildCall] = []
    undone: bool = False

    @property
    def value(self) -> StepValue | None:
        """The value of the step that later templates read."""
        if self.outcome is None:
            return None
        return StepValue(self.outcome, {**self.others, self.task: self.outcome} if self.task else {})


ReusedFact = (
    TokenEnqueued
    | TokenClaimed
    | TokenAbsorbed
    | TokenDiscarded
    | CtxPatched
    | StepPatched
    | StepReused
    | NextEvaluated
)


class ExecutionReused(Fact, frozen=True, tag="execution.reused"):
    """A server input: the facts of the execution ``of`` that a rerun reuses, in journal order.

    It is recorded in full, so that a replay needs no other execution; a long one is split into pages, numbered from 0.
    The last page has the chosen ``token``, the tokens it was ``joined`` from, the ``workload``, the ``schemas``, the
    ``priority`` and the ``due`` time of an occurrence; or, instead of a token, it ``undoes``.
    """

    kind: ClassVar = Kind("workflow", "success", ends_halt=True)

    of: str
    entries: list[ReusedFact] = []
    page: int = 0
    token: Token | None = None
    joined: list[str] = []
    workload: dict[str, Any] = {}
    schemas: dict[str, str] = {}
    priority: int = DEFAULT_PRIORITY
    due: str = ""
    undoes: bool = False

    @property
    def is_last(self) -> bool:
        return self.undoes or self.token is not None


class RerunRefused(Fact, frozen=True, tag="execution.rerun_refused"):
    """A server input: the requested rerun is impossible; ``code`` is a :data:`.RejectionCode`."""

    kind: ClassVar = Kind("workflow", "error")

    code: str
    reason: str
