"""Composite facts: one fact for a run of facts that nearly every step leaves (ADR 16).

Journals, records and reports contain them, and the fold takes each at once. People read, and a replay folds, the facts
that they stand for: :func:`expand`. Both folds give the same state, and so do the decisions made then (tested).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.model import events
from noetl_stream.model.events import EvaluatedGuard, Fact, Kind, TaskProcessed, Token
from noetl_stream.model.ids import command_of, derive, step_run_of
from noetl_stream.model.outcome import Meta, Outcome, Payload, parse_shown_time, shown_time

MAX_TASKS: Final = 8
"""The most tasks of one :class:`StepRan`."""


class TaskRan(msgspec.Struct, frozen=True, array_like=True):
    """A task that succeeded at its first attempt without a rule: the content of its ``task.processed``."""

    task: str
    result: Payload
    started_ms: int
    ended_ms: int
    duration_s: float
    origin: str = ""
    helper: dict[str, Any] = {}
    output: str = ""

    def outcome(self, worker: str, trace_id: str) -> Outcome:
        started_at = shown_time(self.started_ms)
        ended_at = started_at if self.ended_ms == self.started_ms else shown_time(self.ended_ms)
        meta = Meta(1, started_at, ended_at, self.duration_s, worker, trace_id)
        return Outcome("ok", self.result, None, meta, self.helper, self.output)

    def processed_fact(self, worker: str, trace_id: str, to: str | None) -> TaskProcessed:
        return TaskProcessed(self.task, 1, self.outcome(worker, trace_id), "continue", to=to, origin=self.origin)


class StepRan(Fact, frozen=True, tag="step.ran"):
    """A worker's fact: the pipeline of a step ran, without loop or timeout, whose tasks succeeded one after the other
    without a rule.

    Stands for ``step.started``, ``task.started`` and ``task.processed`` of each task, ``step.done``.
    """

    kind: ClassVar = Kind("step", "success")

    step_run_id: str
    worker: str
    tasks: list[TaskRan]
    trace_id: str = ""

    @property
    def processed_facts(self) -> list[TaskProcessed]:
        """The facts ``task.processed`` of the tasks, in order."""
        following = [*(one.task for one in self.tasks[1:]), None]
        return [
            one.processed_fact(self.worker, self.trace_id, to) for one, to in zip(self.tasks, following, strict=True)
        ]

    @property
    def width(self) -> int:  # type: ignore[override]
        return 2 + 2 * len(self.tasks)


class TokenPassed(Fact, frozen=True, tag="token.passed"):
    """A server's fact: one arc fired, its token was admitted at once, and the command of its step was issued.

    Stands for ``next.evaluated``, ``token.enqueued``, ``token.claimed``, ``step.scheduled``. ``step_run_id`` is the
    step run that ended, of step ``from_step``; ``arc`` leads to ``step``.
    """

    kind: ClassVar = Kind("token", "success")
    width: ClassVar[int] = 4

    step_run_id: str
    from_step: str
    step: str
    arc: int
    guards: list[EvaluatedGuard] = []
    args: dict[str, Any] = {}
    waves: dict[str, int] = {}

    @property
    def token_id(self) -> str:
        return derive(self.step_run_id, "arc", self.arc)

    @property
    def token(self) -> Token:
        """The token that the arc produced."""
        return Token(
            token_id=self.token_id,
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


def with_composites(names: Collection[str]) -> set[str]:
    """``names``, and the names of composite facts that may stand for such facts."""
    return {*names, *(name for name, parts in STANDS_FOR.items() if not parts.isdisjoint(names))}


def _unstated(kind: type[msgspec.Struct], stated: Collection[str], **expected: Any) -> tuple[Callable[[Any], Any], Any]:
    """What reads the fields of a struct that a :class:`TaskRan` does not state, and the values that it implies."""
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in stated]
    implied = []
    for field in fields:
        made = field.default_factory
        default = field.default if made is msgspec.NODEFAULT else made()
        implied.append(expected.get(field.name, default))
    return attrgetter(*(field.name for field in fields)), tuple(implied)


_rest_of_processed, _PLAINLY_PROCESSED = _unstated(
    TaskProcessed, {"task", "outcome", "to", "origin"}, attempt=1, do="continue"
)
_rest_of_outcome, _PLAINLY_OK = _unstated(Outcome, {"result", "meta", "helper", "output"}, status="ok")


def whole_run(step_run_id: str, facts: Sequence[Fact]) -> StepRan | None:
    """The composite fact for these facts of one run; ``None`` if :class:`StepRan` cannot represent them."""
    if not 4 <= len(facts) <= 2 + 2 * MAX_TASKS or len(facts) % 2:
        return None
    first, last = facts[0], facts[-1]
    if type(first) is not events.StepStarted or type(last) is not events.StepDone:
        return None
    tasks: list[TaskRan] = []
    trace_id, to = "", None
    for at in range(len(facts) - 2, 1, -2):
        started, processed = facts[at - 1], facts[at]
        if type(processed) is not TaskProcessed or type(started) is not events.TaskStarted:
            return None
        meta = processed.outcome.meta
        if not tasks:
            trace_id = meta.trace_id
        if started != events.TaskStarted(processed.task) or processed.to != to or meta.trace_id != trace_id:
            return None
        ran = _task_ran(processed, first.worker)
        if ran is None:
            return None
        tasks.append(ran)
        to = processed.task
    tasks.reverse()
    return StepRan(step_run_id, first.worker, tasks, trace_id)


def _task_ran(processed: TaskProcessed, worker: str) -> TaskRan | None:
    """The task that a worker processed; ``None`` if there is more to say about it than that it succeeded at once."""
    outcome = processed.outcome
    meta = outcome.meta
    if _rest_of_processed(processed) != _PLAINLY_PROCESSED or _rest_of_outcome(outcome) != _PLAINLY_OK:
        return None
    if meta.attempt != 1 or meta.worker != worker:
        return None
    try:
        started_ms = parse_shown_time(meta.started_at)
        ended_ms = started_ms if meta.ended_at == meta.started_at else parse_shown_time(meta.ended_at)
    except ValueError:
        return None
    made = TaskRan(processed.task, outcome.result, started_ms, ended_ms, meta.duration_s)
    if processed.origin or outcome.helper or outcome.output:
        return replace(made, origin=processed.origin, helper=outcome.helper, output=outcome.output)
    return made


def expand(execution_id: str, fact: Fact) -> Sequence[Fact]:
    """The facts that ``fact`` stands for: itself, unless it is composite."""
    parts = _PARTS.get(type(fact))
    return (fact,) if parts is None else parts(execution_id, fact)


def _parts_of_run(_execution_id: str, fact: StepRan) -> Sequence[Fact]:
    parts: list[Fact] = [events.StepStarted(fact.worker)]
    for processed in fact.processed_facts:
        parts += (events.TaskStarted(processed.task), processed)
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
