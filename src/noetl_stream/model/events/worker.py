"""Facts recorded by workers; for loops and steps without tasks, also by the server (LANGUAGE §13)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from noetl_stream.model.events.fact_parts import EvaluatedGuard, Fact, Kind, Path, SharedValue, Wait, status_by_outcome
from noetl_stream.model.outcome import ErrorInfo, Outcome, Page
from noetl_stream.model.status import RunStatus


class StepClaimed(Fact, frozen=True, tag="step.claimed"):
    """A worker asks whether it may run a command that may also have been delivered to another (PROTOCOL §3 *Claim*).

    With ``returned``, the reason why it could not begin a task, it gives the command back instead (PROTOCOL §3 *Give
    back*). This is no fact of its own, since servers of version 0.3 read this one.
    """

    kind: ClassVar = Kind("step")

    returned: str = ""


class StepStarted(Fact, frozen=True, tag="step.started"):
    kind: ClassVar = Kind("step")

    worker: str


class TaskStarted(Fact, frozen=True, tag="task.started"):
    kind: ClassVar = Kind("task")

    task: str
    attempt: int = 1
    path: Path = ()


class TaskHeartbeat(Fact, frozen=True, tag="task.heartbeat"):
    """A running attempt reports its progress. The next attempt is given the ``details``.

    ``key``: it has begun to write a file or table there, in several parts. Deleting the execution deletes them,
    whatever the outcome of the attempt.
    """

    kind: ClassVar = Kind("task")

    task: str
    attempt: int
    details: Any = None
    path: Path = ()
    key: str = ""


class TaskProcessed(Fact, frozen=True, tag="task.processed"):
    """A task ran, its policy decided, and its patches were applied: one fact, recorded together or not at all.

    ``do`` is the directive that acted; ``to`` the next task and ``delay_s`` the wait before it, if any. ``rule`` is the
    index of the matching rule, -1 for the default; ``unmatched``: no rule of the policy matched. ``origin`` is the
    place in the playbook of a generated task, such as ``choose at line 12``; ``guards`` are the evaluated guards of its
    policy. ``set_label`` are labels of the execution.
    """

    kind: ClassVar = Kind("task", status_by_outcome, through_halt=True)

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
    guards: list[EvaluatedGuard] = []
    set_label: dict[str, Any] = {}


class StepSuspended(Fact, frozen=True, tag="step.suspended"):
    """The pipeline continues later, on any worker: the command ends here (LANGUAGE §8).

    ``waits`` has one entry per waiting iteration. ``paused``: a loop was asked to pause and has begun no further
    iterations; it may resume with the execution, whatever its other iterations wait for.
    """

    kind: ClassVar = Kind("step", "paused")

    waits: list[Wait] = []
    paused: bool = False


class LoopStarted(Fact, frozen=True, tag="loop.started"):
    """A level of a loop has started: ``in`` was evaluated to ``count`` items.

    They are the value of ``workload`` or ``ctx`` that ``source`` names, or ``items``, so that a replay needs no
    template. A worker has stored those of a long list (see ``loop.paged_out``; inside a local loop, ``pages``).
    ``path`` is the iteration around an inner loop, ``()`` for the outermost.
    """

    kind: ClassVar = Kind("loop", bounded=True)

    step_run_id: str
    count: int
    items: list[Any] = []
    max_in_flight: int = 1
    local: bool = False
    path: Path = ()
    pages: list[Page] = []
    source: list[str | int] = []


class LoopPagedOut(Fact, frozen=True, tag="loop.paged_out"):
    """A worker has evaluated ``in``, or made the rows, and stored the items in the object store: the level may start.

    ``path`` is the iteration around an inner loop, ``()`` for the outermost.
    """

    kind: ClassVar = Kind("loop")

    count: int
    pages: list[Page] = []
    max_in_flight: int = 1
    path: Path = ()


class LoopIterationStarted(Fact, frozen=True, tag="loop.iteration.started"):
    kind: ClassVar = Kind("loop")

    path: Path
    worker: str = ""


class LoopIterationDone(Fact, frozen=True, tag="loop.iteration.done"):
    kind: ClassVar = Kind("loop", "success")
    error: ClassVar[ErrorInfo | None] = None

    path: Path


class LoopIterationFailed(Fact, frozen=True, tag="loop.iteration.failed"):
    """An iteration failed. ``step_run_id`` is set if a server records it, for an iteration whose inner loop failed."""

    kind: ClassVar = Kind("loop", "error", bounded=True)

    path: Path
    error: ErrorInfo
    step_run_id: str = ""


class LoopDone(Fact, frozen=True, tag="loop.done"):
    """A loop is done. ``path`` is the iteration around an inner loop, whose end is not routed; ``()`` for the
    outermost.

    ``failed_leaves`` counts failed iterations at any depth, except those caused by an inner one.
    """

    kind: ClassVar = Kind("loop", "success", bounded=True)
    status: ClassVar[RunStatus] = "done"
    error: ClassVar[ErrorInfo | None] = None

    step_run_id: str
    count: int
    ok: int
    failed: int
    skipped: int
    path: Path = ()
    failed_leaves: int = 0


class StepDone(Fact, frozen=True, tag="step.done"):
    kind: ClassVar = Kind("step", "success")
    status: ClassVar[RunStatus] = "done"
    error: ClassVar[ErrorInfo | None] = None

    step_run_id: str


class StepFailed(Fact, frozen=True, tag="step.failed"):
    kind: ClassVar = Kind("step", "error")

    step_run_id: str
    error: ErrorInfo

    @property
    def status(self) -> RunStatus:
        return "cancelled" if self.error.kind == "cancelled" else "failed"
