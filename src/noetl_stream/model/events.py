"""Facts: what happened in an execution. Past tense, immutable, one struct a dotted event name (LANGUAGE §13).

A fact carries only what cannot be derived; the envelope people read (``model/envelope.py``) is composed from the fact
and its journal row. Lists of iteration indices are ``path``: ``()`` outside loops, ``(3,)`` in the fourth iteration.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ErrorInfo, Outcome

Path = tuple[int, ...]
Source = Literal["client", "server", "worker"]


class Fact(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="name"):
    """Base of all facts. The tag is the event's name."""


class EvaluatedGuard(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A guard that was evaluated: its text, what it gave, and where it stands (``else`` has no text)."""

    when: str
    value: bool
    rule: int


class Token(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A routing envelope that targets a step (formal specification §1.1, LANGUAGE §13)."""

    token_id: str
    step: str
    cause: Literal["start", "arc", "join", "injected", "rerun"]
    args: dict[str, Any] = {}
    from_step: str | None = None
    from_step_run_id: str | None = None


# --- by clients ---------------------------------------------------------------------------------------------------


class ExecutionRequested(Fact, frozen=True, tag="execution.requested"):
    """Someone asks for a run of the playbook with this digest."""

    request_id: str
    digest: str
    path: str = ""
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    principal: str = ""
    trace_id: str = ""


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
    token: Token


class TokenHeld(Fact, frozen=True, tag="token.held"):
    """Admission said no for now; the token waits for a change of ``ctx`` or of a step's result (LANGUAGE §4)."""

    token_id: str
    guards: list[EvaluatedGuard] = []


class TokenClaimed(Fact, frozen=True, tag="token.claimed"):
    """Admission let the token in: it is consumed by a new step run, which sees ``ctx`` as it is now."""

    token_id: str
    step_run_id: str
    guards: list[EvaluatedGuard] = []


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


class LoopStarted(Fact, frozen=True, tag="loop.started"):
    """``in`` was evaluated. Distributed loops keep their items here, so that replay needs no template."""

    step_run_id: str
    count: int
    items: list[Any] = []
    max_in_flight: int = 1
    local: bool = False


class LoopIterationStarted(Fact, frozen=True, tag="loop.iteration.started"):
    path: Path
    worker: str = ""


class LoopIterationDone(Fact, frozen=True, tag="loop.iteration.done"):
    path: Path


class LoopIterationFailed(Fact, frozen=True, tag="loop.iteration.failed"):
    path: Path
    error: ErrorInfo


class LoopDone(Fact, frozen=True, tag="loop.done"):
    step_run_id: str
    count: int
    ok: int
    failed: int
    skipped: int


class StepDone(Fact, frozen=True, tag="step.done"):
    step_run_id: str


class StepFailed(Fact, frozen=True, tag="step.failed"):
    step_run_id: str
    error: ErrorInfo


ClientFact = ExecutionRequested
AnyFact = (
    ExecutionRequested
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
