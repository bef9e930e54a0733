"""The levels of a local loop as an imaginary worker runs them: any number of passes at once, one event at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from noetl_stream.engine.pipeline.local_loops import OpenedLevel
from noetl_stream.model.events import (
    Fact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopStarted,
    Path,
    StepFailed,
    Wait,
)
from noetl_stream.model.messages import LoopProgress, Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.playbook.plan import LoopPlan
from noetl_stream.worker.command.scope import Iteration, iteration_of

WORKER = "an imaginary worker"


@dataclass(eq=False, slots=True)
class Pass:
    """One pass of a pipeline. ``parked``: what it waits for; ``is_answered``: what it waited for is there."""

    iteration: Iteration
    progress: Progress
    parked: Wait | None = None
    is_answered: bool = False
    answer: Outcome | None = None


class Host(Protocol):
    """What a local loop asks of the run it is part of."""

    pausing: bool

    def say(self, fact: Fact) -> None: ...
    def begin_pass(self, iteration: Iteration) -> Pass: ...
    def has_begun(self, path: Path) -> bool: ...
    def open_level(
        self, level: LoopPlan, around: Iteration, stands: LoopProgress | None = None
    ) -> OpenedLevel | ErrorInfo: ...
    def item(self, item: Any) -> Any: ...


@dataclass(eq=False, slots=True)
class _Level:
    plan: LoopPlan
    around: Iteration
    opened: OpenedLevel
    stands: LoopProgress
    left: Iterator[int]
    ok: int = 0
    failed: int = 0
    first_error: ErrorInfo | None = None
    in_flight: dict[int, _Level | Pass] = field(default_factory=dict)
    halted: bool = False

    @property
    def is_broken(self) -> bool:
        return self.first_error is not None and self.plan.failure_mode == "fail_fast"


class ScriptedLoop:
    """The loop of one command.

    Args:
        level: The level whose items the command brings, in the iteration ``around`` it.
        stands: Where it stands, if it has begun before.

    Attributes:
        ended: Whether it has told its end.
    """

    def __init__(
        self,
        host: Host,
        step_run_id: str,
        level: LoopPlan,
        around: Iteration,
        opened: OpenedLevel,
        stands: LoopProgress | None,
        *,
        is_new: bool,
    ) -> None:
        self.ended = False
        self._host = host
        self._step_run_id = step_run_id
        self._outermost = _level(level, around, opened, stands or LoopProgress())
        if is_new:
            self._say_started(self._outermost, with_items=False)
        self._fill(self._outermost)
        self._close_if_over([self._outermost])

    @property
    def passes(self) -> list[Pass]:
        """The passes in flight, by their paths."""
        return list(_passes(self._outermost))

    def take(self, path: Path, error: ErrorInfo | None) -> None:
        """The pass of this iteration has ended, well or with ``error``; what follows from that."""
        self._host.say(LoopIterationDone(path) if error is None else LoopIterationFailed(path, error))
        chain = [self._outermost]
        for index in path[len(self._outermost.around.path) : -1]:
            inner = chain[-1].in_flight[index]
            assert isinstance(inner, _Level)
            chain.append(inner)
        self._count(chain[-1], path[-1], error)
        self._close_if_over(chain)

    def _close_if_over(self, chain: list[_Level]) -> None:
        """Ends the innermost level of ``chain`` if it is over, then the one around it, and so on."""
        while chain and not self.ended:
            level = chain.pop()
            self._fill(level)
            if level.is_broken:
                level.in_flight.clear()
            elif level.in_flight or level.halted:
                return
            error = level.first_error if level.is_broken else None
            self._say_end(level, error)
            if not chain:
                self.ended = True
                return
            self._count(chain[-1], level.around.path[-1], error)

    def _count(self, level: _Level, index: int, error: ErrorInfo | None) -> None:
        level.in_flight.pop(index, None)
        if error is None:
            level.ok += 1
            return
        level.failed += 1
        level.first_error = level.first_error or msgspec.structs.replace(error, index=index)

    def _fill(self, level: _Level) -> None:
        """Starts iterations until the window is full, none is left, or none may begin."""
        while not level.is_broken and len(level.in_flight) < level.opened.at_once:
            index = next(level.left, None)
            if index is None:
                return
            item = self._host.item(level.opened.at(index))
            iteration = iteration_of(level.plan, index, item, level.opened.total, level.around)
            begun = index in level.stands.inner or (level.plan.inner is None and self._host.has_begun(iteration.path))
            if self._host.pausing and not begun:
                level.halted = True
            elif level.plan.inner is None:
                level.in_flight[index] = one = self._host.begin_pass(iteration)
                if one.parked is None:
                    self._host.say(LoopIterationStarted(iteration.path, WORKER))
            else:
                self._begin_inner(level, level.plan.inner, index, iteration)

    def _begin_inner(self, level: _Level, plan: LoopPlan, index: int, iteration: Iteration) -> None:
        stands = level.stands.inner.get(index)
        if stands is None:
            self._host.say(LoopIterationStarted(iteration.path, WORKER))
        opened = self._host.open_level(plan, iteration, stands)
        if isinstance(opened, ErrorInfo):
            self._host.say(LoopIterationFailed(iteration.path, opened))
            self._count(level, index, opened)
            return
        inner = _level(plan, iteration, opened, stands or LoopProgress())
        if stands is None:
            self._say_started(inner, with_items=True)
        level.in_flight[index] = inner
        self._fill(inner)
        if not (inner.in_flight or inner.halted):
            self._say_end(inner, inner.first_error if inner.is_broken else None)
            self._count(level, index, inner.first_error if inner.is_broken else None)

    def _say_started(self, level: _Level, *, with_items: bool) -> None:
        opened, path = level.opened, level.around.path
        items, pages = (opened.items, list(opened.pages)) if with_items else ([], [])
        self._host.say(
            LoopStarted(
                step_run_id=self._step_run_id,
                count=opened.total,
                items=items,
                max_in_flight=opened.at_once,
                local=True,
                path=path,
                pages=pages,
            )
        )

    def _say_end(self, level: _Level, error: ErrorInfo | None) -> None:
        count, path = level.opened.total, level.around.path
        if error is None:
            skipped = count - level.ok - level.failed
            self._host.say(LoopDone(self._step_run_id, count, level.ok, level.failed, skipped, path))
        else:
            self._host.say(LoopIterationFailed(path, error) if path else StepFailed(self._step_run_id, error))


def _level(plan: LoopPlan, around: Iteration, opened: OpenedLevel, stands: LoopProgress) -> _Level:
    above = frozenset(stands.above)
    left = (index for index in range(stands.low, opened.total) if index not in above)
    return _Level(
        plan=plan,
        around=around,
        opened=opened,
        stands=stands,
        left=left,
        ok=stands.ok,
        failed=stands.failed,
        first_error=stands.first_error,
    )


def _passes(level: _Level) -> Iterator[Pass]:
    for one in level.in_flight.values():
        yield from (one,) if isinstance(one, Pass) else _passes(one)
