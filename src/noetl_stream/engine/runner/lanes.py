"""Lanes: generators that take turns. Each yields the action it needs next, and continues with its result."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import msgspec

from noetl_stream.engine.runner.scope import Iteration
from noetl_stream.model.events import Fact, Wait
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome, Reference
from noetl_stream.playbook.plan import TaskPlan

Accepted: TypeAlias = tuple[type, ...]


class ReportFacts(msgspec.Struct, frozen=True):
    """Report these facts, in this order. Facts of one report reach the journal together or not at all."""

    facts: tuple[Fact, ...]


class RunTask(msgspec.Struct, frozen=True):
    """Run this task once, in the pipeline of ``iteration`` at ``progress``.

    With an ``answer``, the outcome of a task that has waited, the driver only adds its
    :class:`~noetl_stream.model.outcome.Meta`.
    """

    accepts: ClassVar[Accepted] = (Outcome, Wait)
    id: int
    task: TaskPlan
    progress: Progress
    iteration: Iteration
    answer: Outcome | None = None


class LoadReference(msgspec.Struct, frozen=True):
    """Make the value of this reference readable for templates."""

    accepts: ClassVar[Accepted] = (type(None), ErrorInfo)
    id: int
    reference: Reference


class LoadPage(msgspec.Struct, frozen=True):
    """Read this page of a loop's items."""

    accepts: ClassVar[Accepted] = (list, ErrorInfo)
    id: int
    page: Reference


class StorePage(msgspec.Struct, frozen=True):
    """Store these items of a loop as a page."""

    accepts: ClassVar[Accepted] = (Reference, ErrorInfo)
    id: int
    items: list[Any]


class Worked(NamedTuple):
    """The result of template work."""

    value: Any


class Evaluate(msgspec.Struct, frozen=True):
    """Evaluate templates without blocking anything else. The limits of a rendering bound the work."""

    accepts: ClassVar[Accepted] = (Worked, list)
    id: int
    work: Callable[[], Worked | list[Reference]]


class Sleep(msgspec.Struct, frozen=True):
    """Wait before the next action; 0 s only lets other lanes run."""

    accepts: ClassVar[Accepted] = (type(None),)
    id: int
    seconds: float


class Withdraw(msgspec.Struct, frozen=True):
    """End these actions: their results are no longer wanted.

    Until this is completed, those that end on their own may still be completed, without effect. Another
    :class:`Withdraw` may be among them, along with those it names that have not ended.
    """

    accepts: ClassVar[Accepted] = (type(None),)
    id: int
    ids: tuple[int, ...]


Action = RunTask | LoadReference | LoadPage | StorePage | Evaluate | Sleep | Withdraw
Output = ReportFacts | Action


T = TypeVar("T")
Work: TypeAlias = "Generator[Action | list[Work[bool]], Any, T]"
"""A generator that yields an action, is sent its result, and returns a ``T``.

It may also yield a list of generators to run side by side, and continues when they have ended. A generator that returns
true ends the others; the parent is sent the ids of their unfinished actions, which must be withdrawn.
"""


class IllegalInput(Exception):
    """An input that the law of the runner forbids; nothing has changed."""


class _Lane:
    """A generator of the runner and its place among the others. ``around`` is the lane that forked it, ``inside`` are
    the lanes it forked, ``action`` is the action it waits for.
    """

    __slots__ = ("action", "around", "inside", "is_closed", "work")

    def __init__(self, work: Work[Any], around: _Lane | None = None) -> None:
        self.work = work
        self.around = around
        self.inside: set[_Lane] | None = None
        self.action: Action | None = None
        self.is_closed = False


class Lanes:
    """The first lane of a run and all lanes forked from it. Ready lanes run last in, first out.

    Attributes:
        over: Whether the first lane has ended.
    """

    def __init__(self) -> None:
        self.over = False
        self._ready: list[tuple[_Lane, Any]] = []
        self._waiting: dict[int, _Lane] = {}
        self._unwanted: set[int] = set()
        self._outputs: list[Output] = []

    def begin(self, work: Work[None]) -> list[Output]:
        """Runs the first lane and those it forks until all of them wait; returns their reports and actions, in order.

        Raises:
            IllegalInput: it was opened before.
        """
        if self.over or self._waiting:
            raise IllegalInput("the run has begun")
        return self._run(_Lane(work), None)

    def complete(self, action_id: int, result: Any) -> list[Output]:
        """Continues the lane that waits for this action until all lanes wait again; returns the reports and actions.

        Raises:
            IllegalInput: no lane waits for it, or the result is of another type.
        """
        lane = self._waiting.get(action_id)
        if lane is None or lane.action is None:
            if action_id not in self._unwanted:
                raise IllegalInput(f"no action {action_id} is under way: it has ended, or was never handed out")
            self._unwanted.remove(action_id)
            return []
        if not isinstance(result, lane.action.accepts):
            raise IllegalInput(f"{lane.action} cannot be completed with {result!r}")
        if isinstance(lane.action, Withdraw):
            self._unwanted.difference_update(lane.action.ids)
        del self._waiting[action_id]
        lane.action = None
        return self._run(lane, result)

    def report(self, *facts: Fact) -> None:
        """Adds a report of the current lane."""
        self._outputs.append(ReportFacts(facts))

    def _run(self, lane: _Lane, given: Any) -> list[Output]:
        self._outputs = []
        self._turn(lane, given)
        while self._ready:
            lane, given = self._ready.pop()
            if not lane.is_closed:
                self._turn(lane, given)
        return self._outputs

    def _turn(self, lane: _Lane, given: Any) -> None:
        try:
            needed = lane.work.send(given)
        except StopIteration as end:
            self._end(lane, end.value)
            return
        if isinstance(needed, list):
            lanes = [_Lane(work, lane) for work in needed]
            lane.inside = set(lanes)
            self._ready.extend((each, None) for each in lanes)
        else:
            lane.action = needed
            self._waiting[needed.id] = lane
            self._outputs.append(needed)

    def _end(self, lane: _Lane, ends_others: bool) -> None:
        lane.is_closed = True
        around = lane.around
        if around is None:
            self.over = True
            return
        beside = around.inside
        assert beside is not None
        unwanted: tuple[int, ...] = ()
        beside.remove(lane)
        if ends_others:
            unwanted = tuple(sorted(number for each in beside for number in self._close(each)))
            self._unwanted.update(unwanted)
            beside.clear()
        if not beside:
            around.inside = None
            self._ready.append((around, unwanted))

    def _close(self, lane: _Lane) -> Iterator[int]:
        """Closes a lane and those inside it early; yields the ids of their unfinished actions."""
        lane.is_closed = True
        lane.work.close()
        if lane.action is not None:
            del self._waiting[lane.action.id]
            yield lane.action.id
            if isinstance(lane.action, Withdraw):
                yield from self._unwanted.intersection(lane.action.ids)
        for inner in lane.inside or ():
            yield from self._close(inner)
