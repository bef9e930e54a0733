"""Composite facts: one fact for a run of facts that nearly every step leaves (ADR 16).

Journals, records and reports hold them, and the fold takes them at once. People read, and a replay folds, the facts
that they stand for: :func:`expanded`. Folding either gives the same state, and so do the decisions made then
(tested).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Final

from noetl_stream.model import events
from noetl_stream.model.events import EvaluatedGuard, Fact, Kind, TaskProcessed, Token
from noetl_stream.model.ids import command_of, derive, step_run_of

MAX_TASKS: Final = 8
"""The most tasks of one :class:`StepRan`."""


class StepRan(Fact, frozen=True, tag="step.ran"):
    """A worker's: the pipeline of a step without a loop, from its start to its good end, without a retry,
    a jump or a patch of ``ctx``.

    Stands for ``step.started``, ``task.started`` and ``task.processed`` of each task, ``step.done``.
    """

    kind: ClassVar = Kind("step", "success")

    step_run_id: str
    worker: str
    tasks: list[TaskProcessed]

    @property
    def width(self) -> int:
        return 2 + 2 * len(self.tasks)


class TokenPassed(Fact, frozen=True, tag="token.passed"):
    """A server's: one arc fired, its token was admitted at once, and its step is owed to a worker.

    Stands for ``next.evaluated``, ``token.enqueued``, ``token.claimed``, ``step.scheduled``. ``step_run_id`` is the
    step run that ended, of step ``from_step``; ``arc`` leads to ``step``.
    """

    kind: ClassVar = Kind("token", "success")

    step_run_id: str
    from_step: str
    step: str
    arc: int
    guards: list[EvaluatedGuard] = []
    args: dict[str, Any] = {}
    waves: dict[str, int] = {}

    @property
    def width(self) -> int:
        return 4

    @property
    def token(self) -> Token:
        """The token that the arc produced."""
        return Token(
            token_id=derive(self.step_run_id, "arc", self.arc),
            step=self.step,
            cause="arc",
            args=self.args,
            from_step=self.from_step,
            from_step_run_id=self.step_run_id,
            waves=self.waves,
        )


Composite = StepRan | TokenPassed


STANDS_FOR: Final = {
    StepRan.event_name(): frozenset({"step.started", "task.started", "task.processed", "step.done"}),
    TokenPassed.event_name(): frozenset({"next.evaluated", "token.enqueued", "token.claimed", "step.scheduled"}),
}
"""The names of the facts that each kind of composite fact stands for."""


def holding(names: Collection[str]) -> set[str]:
    """``names``, and those of the composite facts that may stand for such facts."""
    return {*names, *(name for name, parts in STANDS_FOR.items() if not parts.isdisjoint(names))}


def whole_run(step_run_id: str, facts: Sequence[Fact]) -> StepRan | None:
    """These facts of one run as one; ``None`` if they are not those that :class:`StepRan` stands for."""
    if not 4 <= len(facts) <= 2 + 2 * MAX_TASKS or len(facts) % 2:
        return None
    first, last = facts[0], facts[-1]
    if type(first) is not events.StepStarted or type(last) is not events.StepDone:
        return None
    tasks: list[TaskProcessed] = []
    for started, processed in zip(facts[1:-1:2], facts[2:-1:2], strict=True):
        if type(started) is not events.TaskStarted or type(processed) is not TaskProcessed:
            return None
        if (started.task, started.attempt, started.path) != (processed.task, processed.attempt, ()):
            return None
        if not is_plain(processed):
            return None
        tasks.append(processed)
    return StepRan(step_run_id, first.worker, tasks)


def is_plain(processed: TaskProcessed) -> bool:
    """Whether nothing follows from this run of a task but the next task or the end of the pipeline."""
    return processed.do == "continue" and not (processed.set_ctx or processed.set_shared)


def expanded(execution_id: str, fact: Fact) -> Sequence[Fact]:
    """The facts that ``fact`` stands for: itself, unless it is composite."""
    parts = _PARTS.get(type(fact))
    return (fact,) if parts is None else parts(execution_id, fact)


def _parts_of_run(_execution_id: str, fact: StepRan) -> Sequence[Fact]:
    parts: list[Fact] = [events.StepStarted(fact.worker)]
    for processed in fact.tasks:
        parts += (events.TaskStarted(processed.task, processed.attempt), processed)
    parts.append(events.StepDone(fact.step_run_id))
    return parts


def _parts_of_pass(execution_id: str, fact: TokenPassed) -> Sequence[Fact]:
    token = fact.token
    step_run_id = step_run_of(execution_id, token.token_id)
    return (
        events.NextEvaluated(fact.step_run_id, "step.done", fact.guards, [fact.arc]),
        events.TokenEnqueued(token),
        events.TokenClaimed(token.token_id, step_run_id),
        events.StepScheduled(step_run_id, command_of(step_run_id)),
    )


_PARTS: Final[dict[type[Fact], Callable[[str, Any], Sequence[Fact]]]] = {
    StepRan: _parts_of_run,
    TokenPassed: _parts_of_pass,
}
