"""Facts: what happened in an execution. Past tense, immutable, one struct a dotted event name (LANGUAGE §13).

A fact carries only what cannot be derived; the envelope people read (``model/envelope.py``) is composed from the fact
and its journal row. Lists of iteration indices are ``path``: ``()`` outside loops, ``(3,)`` in the fourth iteration.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.reference import Reference

Path = tuple[int, ...]
SharedOperation = Literal["add", "min", "max", "append", "extend", "union", "count", "merge"]
TimerPurpose = Literal["wait", "admission", "step", "deadline", "execution", "grace"]
ChildOrder = Literal["cancel", "pause", "resume"]
Source = Literal["client", "server", "worker"]


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="name"):
    """Base of all facts. The tag is the event's name."""


class EvaluatedGuard(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A guard that was evaluated: its text, what it gave, and where it stands (``else`` has no text)."""

    when: str
    value: bool
    rule: int


class Token(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A routing envelope that targets a step (formal specification §1.1, LANGUAGE §13).

    ``waves`` is its lineage as joins ask for it: by join step, the last firing it descends from (from 1).
    """

    token_id: str
    step: str
    cause: Literal["start", "arc", "join", "injected", "rerun"]
    args: dict[str, Any] = {}
    from_step: str | None = None
    from_step_run_id: str | None = None
    waves: dict[str, int] = {}


class SharedValue(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a rule contributes to a ``ctx`` key that several iterations share (LANGUAGE §6 ``set_shared``)."""

    op: SharedOperation
    value: Any = None


class ChildCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A call of another playbook, pinned to a digest. ``execution_id`` is empty until the server has started it."""

    digest: str
    path: str
    version: str | None = None
    workload: dict[str, Any] = {}
    return_step: str | None = None
    execution_id: str = ""


class Wait(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the pipeline of one iteration waits for while no worker holds it (LANGUAGE §8).

    Exactly one of: a delay before the next attempt (``delay_s``), a time (``for_s``, ``until_ms``), a signal, a child.
    ``timeout_s`` bounds the last two. ``since_ms`` is when it began, by the fold: 0 until the server has noted it.
    """

    path: Path = ()
    task: str = ""
    delay_s: float | None = None
    for_s: float | None = None
    until_ms: int | None = None
    signal: str | None = None
    child: ChildCall | None = None
    timeout_s: float | None = None
    since_ms: int = 0


class Parent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Who called this execution: the suspended command and iteration that wait for it; ``depth`` of the call."""

    execution_id: str
    step_run_id: str
    command_id: str
    path: Path = ()
    depth: int = 1
    return_step: str | None = None


# --- by clients ---------------------------------------------------------------------------------------------------


class ExecutionRequested(Fact, frozen=True, tag="execution.requested"):
    """Someone asks for a run of the playbook with this digest; ``parent`` is set where another execution does."""

    request_id: str
    digest: str
    path: str = ""
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    principal: str = ""
    trace_id: str = ""
    parent: Parent | None = None


class Asked(Fact, frozen=True):
    """Base of what someone asks of an execution that exists already."""

    request_id: str
    principal: str = ""
    reason: str = ""
    correlation_id: str = ""


class CtxPatched(Asked, frozen=True, tag="ctx.patched"):
    """Keys of ``ctx`` set from outside (LANGUAGE §9): whole ones, or deep with ``null`` deleting if ``merge``.

    ``expected_version`` refuses the patch unless ``ctx`` last changed at that position.
    """

    patch: dict[str, Any] = {}
    merge: bool = False
    expected_version: int | None = None


class TokenInjected(Asked, frozen=True, tag="token.injected"):
    step: str = ""
    args: dict[str, Any] = {}


class SignalReceived(Asked, frozen=True, tag="signal.received"):
    signal: str = ""
    payload: Any = None


class CancelRequested(Asked, frozen=True, tag="execution.cancel_requested"):
    """The execution is to end; from here on nothing is routed, retried or patched (LANGUAGE §9)."""


class PauseRequested(Asked, frozen=True, tag="execution.pause_requested"):
    """No command is to be issued until ``execution.resume_requested``."""


class ResumeRequested(Asked, frozen=True, tag="execution.resume_requested"):
    """Goes on after a pause."""


# --- by the server ------------------------------------------------------------------------------------------------


class ExecutionEvaluated(Fact, frozen=True, tag="execution.evaluated"):
    """The request was looked at: accepted, or refused with its diagnostics."""

    ok: bool
    diagnostics: list[dict[str, Any]] = []


class ExecutionStarted(Fact, frozen=True, tag="execution.started"):
    """Pins what every later decision reads: digest, merged workload, limits, engine format."""

    digest: str
    path: str
    version: str | None
    format: int
    workload: dict[str, Any]
    ctx: dict[str, Any] = {}
    limits: Limits = Limits()
    trace_id: str = ""


class TokenEnqueued(Fact, frozen=True, tag="token.enqueued"):
    """``joined`` are the tokens that a join has merged into this one: they are consumed with it."""

    token: Token
    joined: list[str] = []


class TokenJoined(Fact, frozen=True, tag="token.joined"):
    """The token has arrived at a join and waits there for the others of its wave (LANGUAGE §7)."""

    token_id: str


class TokenAbsorbed(Fact, frozen=True, tag="token.absorbed"):
    """The token came to a join that had fired without it, and does not descend from that firing."""

    token_id: str
    reason: str


class TokenHeld(Fact, frozen=True, tag="token.held"):
    """Admission said no for now; the token waits for a change of ``ctx`` or of a step's result (LANGUAGE §4).

    ``keeps_alive``: it may wait there (``admit.wait``), and the execution with it.
    """

    token_id: str
    guards: list[EvaluatedGuard] = []
    keeps_alive: bool = False


class TokenClaimed(Fact, frozen=True, tag="token.claimed"):
    """Admission let the token in: it is consumed by a new step run, which sees ``ctx`` as it is now.

    With ``refused`` the step run fails at once: its admission, deadline or join can no longer be met.
    """

    token_id: str
    step_run_id: str
    guards: list[EvaluatedGuard] = []
    refused: ErrorInfo | None = None


class TokenDiscarded(Fact, frozen=True, tag="token.discarded"):
    token_id: str
    reason: str


class StepScheduled(Fact, frozen=True, tag="step.scheduled"):
    """A command is owed to a worker. ``issue`` above 1: issued again, with the reason.

    ``items`` are those of a local loop (``None``: none), of which ``max_in_flight`` may run at once.
    """

    step_run_id: str
    command_id: str
    path: Path = ()
    issue: int = 1
    reason: str = ""
    items: list[Any] | None = None
    max_in_flight: int = 1


class StepCancelled(Fact, frozen=True, tag="step.cancelled"):
    """The server no longer wants what this command does (fail-fast loops, an execution that ends)."""

    step_run_id: str
    command_id: str
    reason: str


class StepResumed(Fact, frozen=True, tag="step.resumed"):
    """What a suspended pipeline waited for is there: its next segment is the command ``command_id`` (LANGUAGE §8)."""

    step_run_id: str
    suspended: str
    command_id: str
    path: Path = ()


class TimerSet(Fact, frozen=True, tag="timer.set"):
    """``subject`` is what the timer is about: a token, a step run, a suspended command or the execution."""

    timer_id: str
    purpose: TimerPurpose
    due_ms: int
    subject: str = ""
    path: Path = ()


class TimerFired(Fact, frozen=True, tag="timer.fired"):
    """An input of the server's own: the timer is due by the database's clock."""

    timer_id: str
    purpose: TimerPurpose
    subject: str = ""
    path: Path = ()


class ChildRequested(Fact, frozen=True, tag="child.requested"):
    """The child of a suspended command is started, through the inbox of its partition (PROTOCOL §1 *Inbox*)."""

    step_run_id: str
    command_id: str
    execution_id: str
    call: ChildCall
    path: Path = ()


class ChildOrdered(Fact, frozen=True, tag="child.ordered"):
    """A child is told to end, pause or go on with its parent."""

    execution_id: str
    order: ChildOrder
    reason: str = ""


class ChildFinished(Fact, frozen=True, tag="child.finished"):
    """A child's end, from the inbox."""

    execution_id: str
    command_id: str
    outcome: Outcome
    path: Path = ()


class ReferenceAwaited(Fact, frozen=True, tag="reference.awaited"):
    """A decision reads a result kept by reference: nothing is decided until the server has loaded it (PROTOCOL §2)."""

    reference: Reference


class ReferenceResolved(Fact, frozen=True, tag="reference.resolved"):
    """An input of the server's own: the value is at hand; ``checksum`` pins which."""

    key: str
    checksum: str = ""


class ReferenceLost(Fact, frozen=True, tag="reference.lost"):
    """An input of the server's own: the value cannot be read any more."""

    key: str
    reason: str


class ExecutionPaused(Fact, frozen=True, tag="execution.paused"):
    reason: str = ""


class ExecutionResumed(Fact, frozen=True, tag="execution.resumed"):
    """Time paused does not count towards timeouts: those still set are due ``paused_ms`` later."""

    paused_ms: int = 0


class CtxOverwrote(Fact, frozen=True, tag="ctx.overwrote"):
    """The task before this entry set keys that another has changed since its step run began (LANGUAGE §5)."""

    step_run_id: str
    keys: list[str]


class ExecutionFailing(Fact, frozen=True, tag="execution.failing"):
    """Something failed that nobody handles: tokens are discarded, what runs is cancelled, then the execution ends."""

    error: ErrorInfo
    step: str | None = None


class NextEvaluated(Fact, frozen=True, tag="next.evaluated"):
    """Routing looked at a step's end: which guards held, which arcs (by index) fired."""

    step_run_id: str
    event: str
    guards: list[EvaluatedGuard] = []
    fired: list[int] = []


class ExecutionFinished(Fact, frozen=True, tag="execution.finished"):
    """The last word about an execution. ``result`` stands inline or by reference in ``outcome.result``."""

    status: Literal["completed", "failed", "cancelled"]
    outcome: Outcome
    discarded: int = 0


class PlaybookProcessed(Fact, frozen=True, tag="playbook.processed"):
    status: Literal["completed", "failed", "cancelled"]


# --- by workers (loops and tool-less steps: by the server) ----------------------------------------------------------


class StepClaimed(Fact, frozen=True, tag="step.claimed"):
    """A worker asks whether it may run a copy that might not be the only one (PROTOCOL §3 *Claim*)."""

    reply: str


class StepStarted(Fact, frozen=True, tag="step.started"):
    worker: str


class TaskStarted(Fact, frozen=True, tag="task.started"):
    task: str
    attempt: int = 1
    path: Path = ()


class TaskProcessed(Fact, frozen=True, tag="task.processed"):
    """A task ran, its policy decided, and its patches were applied: one fact, recorded together or not at all.

    ``do`` is the directive that acted; ``to`` the next task and ``delay_s`` the wait before it, if any follows.
    ``rule`` is the index of the rule that matched, -1 for the default, and ``unmatched`` says a policy had no match.
    ``origin`` is where in the playbook a generated task comes from, as in ``choose at line 12``.
    """

    task: str
    attempt: int
    outcome: Outcome
    do: Literal["continue", "retry", "jump", "break", "fail"]
    path: Path = ()
    to: str | None = None
    delay_s: float = 0.0
    rule: int = -1
    unmatched: bool = False
    error: ErrorInfo | None = None
    set_ctx: dict[str, Any] = {}
    set_iter: dict[str, Any] = {}
    set_vars: dict[str, Any] = {}
    set_shared: dict[str, SharedValue] = {}
    origin: str = ""


class StepSuspended(Fact, frozen=True, tag="step.suspended"):
    """The pipeline goes on later, on any worker: the command ends here (LANGUAGE §8).

    ``waits`` says for what, one a waiting iteration. ``paused``: it is a loop that was asked to pause, and has begun no
    further iterations for that reason: it may go on when the execution does, whatever others of it wait for.
    """

    waits: list[Wait] = []
    paused: bool = False


class LoopStarted(Fact, frozen=True, tag="loop.started"):
    """``in`` was evaluated. Items stand here, so that replay needs no template; long lists go on in ``loop.paged``.

    ``path`` is the iteration around an inner loop, ``()`` for the outermost.
    """

    step_run_id: str
    count: int
    items: list[Any] = []
    max_in_flight: int = 1
    local: bool = False
    path: Path = ()


class LoopPaged(Fact, frozen=True, tag="loop.paged"):
    """The next items of a loop whose list is long."""

    step_run_id: str
    items: list[Any]
    path: Path = ()


class LoopIterationStarted(Fact, frozen=True, tag="loop.iteration.started"):
    path: Path
    worker: str = ""


class LoopIterationDone(Fact, frozen=True, tag="loop.iteration.done"):
    path: Path


class LoopIterationFailed(Fact, frozen=True, tag="loop.iteration.failed"):
    """``step_run_id`` is set where the server says it, of an iteration whose inner loop has failed."""

    path: Path
    error: ErrorInfo
    step_run_id: str = ""


class LoopDone(Fact, frozen=True, tag="loop.done"):
    """``path`` is the iteration around an inner loop: its own end, not routed; ``()`` for the outermost."""

    step_run_id: str
    count: int
    ok: int
    failed: int
    skipped: int
    path: Path = ()


class StepDone(Fact, frozen=True, tag="step.done"):
    step_run_id: str


class StepFailed(Fact, frozen=True, tag="step.failed"):
    step_run_id: str
    error: ErrorInfo


AskedFact = CtxPatched | TokenInjected | SignalReceived | CancelRequested | PauseRequested | ResumeRequested
ClientFact = ExecutionRequested | AskedFact
InboxFact = ExecutionRequested | CancelRequested | PauseRequested | ResumeRequested | ChildFinished
AnyFact = (
    ExecutionRequested
    | CtxPatched
    | TokenInjected
    | SignalReceived
    | CancelRequested
    | PauseRequested
    | ResumeRequested
    | TokenJoined
    | TokenAbsorbed
    | StepResumed
    | StepSuspended
    | TimerSet
    | TimerFired
    | ChildRequested
    | ChildOrdered
    | ChildFinished
    | ReferenceAwaited
    | ReferenceResolved
    | ReferenceLost
    | ExecutionPaused
    | ExecutionResumed
    | LoopPaged
    | CtxOverwrote
    | ExecutionEvaluated
    | ExecutionStarted
    | TokenEnqueued
    | TokenHeld
    | TokenClaimed
    | TokenDiscarded
    | StepScheduled
    | StepCancelled
    | ExecutionFailing
    | NextEvaluated
    | ExecutionFinished
    | PlaybookProcessed
    | StepClaimed
    | StepStarted
    | TaskStarted
    | TaskProcessed
    | LoopStarted
    | LoopIterationStarted
    | LoopIterationDone
    | LoopIterationFailed
    | LoopDone
    | StepDone
    | StepFailed
)
