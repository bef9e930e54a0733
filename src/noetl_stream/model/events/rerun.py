"""Facts about what a rerun reuses of another execution (LANGUAGE §9 *Rerun*)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from noetl_stream.model.events.client import CtxPatched
from noetl_stream.model.events.parts import Fact, Kind, SharedValue, Token
from noetl_stream.model.events.server import NextEvaluated, TokenAbsorbed, TokenClaimed, TokenDiscarded, TokenEnqueued
from noetl_stream.model.outcome import ErrorInfo, Outcome, StepValue


class LoopCounts(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How the iterations of a reused loop ended, for arcs that read it."""

    count: int
    ok: int = 0
    failed: int = 0
    skipped: int = 0


class StepPatched(Fact, frozen=True, tag="step.patched"):
    """What a reused step run did to ``ctx``: the keys it set, then its contributions to shared keys, in order."""

    kind: ClassVar = Kind("step")

    step_run_id: str
    set_ctx: dict[str, Any] = {}
    shared: list[tuple[str, SharedValue]] = []


class StepReused(Fact, frozen=True, tag="step.reused"):
    """A reused step run and its end. ``outcome`` is that of its last ``task`` (``""``: of the step), ``None`` if it
    failed; ``others`` are those of its other tasks.

    ``vars`` and ``loop`` are what its arcs read, if they have not been routed.
    """

    kind: ClassVar = Kind("step")

    step_run_id: str
    ended: Literal["step.done", "loop.done", "step.failed"]
    outcome: Outcome | None = None
    task: str = ""
    others: dict[str, Outcome] = {}
    error: ErrorInfo | None = None
    vars: dict[str, Any] = {}
    loop: LoopCounts | None = None

    @property
    def value(self) -> StepValue | None:
        """What later templates read of it."""
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
    """A server input: what a rerun reuses of the execution ``of``, in journal order.

    It is recorded in full, so that a replay needs no other execution; a long one is split into pages, numbered from 0.
    The last page has the chosen ``token``, the tokens it was ``joined`` from, and the ``workload``.
    """

    kind: ClassVar = Kind("workflow", "success", ends_halt=True)

    of: str
    entries: list[ReusedFact] = []
    page: int = 0
    token: Token | None = None
    joined: list[str] = []
    workload: dict[str, Any] = {}


class RerunRefused(Fact, frozen=True, tag="execution.rerun_refused"):
    """A server input: the requested rerun is impossible; ``code`` is a :data:`RefusalCode`."""

    kind: ClassVar = Kind("workflow", "error")

    code: str
    reason: str


RerunFact = ExecutionReused | RerunRefused
