"""A level of a local loop: its items and its progress (LANGUAGE §6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from noetl_stream.engine.decide.loops import loop_items, loop_window, most_inline, split_pages, too_many_failures
from noetl_stream.engine.runner.scope import Iteration
from noetl_stream.engine.scope import expression_failure
from noetl_stream.model.events import Wait
from noetl_stream.model.json import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import LoopProgress
from noetl_stream.model.outcome import ErrorInfo, Page, place_of
from noetl_stream.playbook.plan import LoopPlan
from noetl_stream.template import ExpressionError, Scope


class OpenedLevel(NamedTuple):
    """The items of a level, or the pages that hold them, and the most iterations that may run at once."""

    items: list[Any]
    at_once: int
    pages: Sequence[Page] = ()

    @property
    def total(self) -> int:
        return self.pages[-1].first + self.pages[-1].count if self.pages else len(self.items)

    def item_at(self, index: int) -> Any:
        """The item at ``index``, or its :class:`~noetl_stream.model.outcome.ItemPosition` if it is in a page."""
        return place_of(self.pages, index) if self.pages else self.items[index]


def open_level(
    level: LoopPlan, scope: Scope, limits: Limits, before: LoopProgress | None = None
) -> OpenedLevel | ErrorInfo:
    """Evaluates ``in`` and ``max_in_flight`` of a level; returns the error if it cannot open.

    Args:
        before: The progress of a level that has begun; its ``in`` is not evaluated again.

    Raises:
        ReferenceNeeded: one of them reads a result kept by reference.
    """
    try:
        items = loop_items(level, scope) if before is None else before.items or []
        at_once = loop_window(level, scope, limits.max_in_flight)
        return OpenedLevel(items, at_once, tuple(before.pages) if before is not None else ())
    except ExpressionError as error:
        return expression_failure("loop", error)


def split_items(opened: OpenedLevel, limits: Limits, *, paging: bool) -> list[list[Any]] | ErrorInfo | None:
    """Splits the items into pages if they must be paged out; returns the error if they cannot be.

    Args:
        paging: Whether they are paged out in any case, not only if they are too many for an event.
    """
    size = len(codec.encode(opened.items))
    if not paging and size <= most_inline(limits):
        return None
    pages = list(split_pages(opened.items, size))
    if len(pages) > limits.max_loop_pages:
        text = f"loop.in gave {size} bytes in {len(pages)} pages; limits.max_loop_pages is {limits.max_loop_pages}"
        return ErrorInfo("limit_exceeded", text)
    return pages


class Halted(NamedTuple):
    """A pipeline that cannot continue in this run: it has ``waits``, or none if the execution pauses."""

    waits: list[Wait]


Result: TypeAlias = ErrorInfo | Halted | None
"""The end of a pass, an iteration or a level in this run: failed, halted, or done."""


class Level:
    """A running level in the iteration ``around`` it, ``inside`` another level or none; ``before`` is its progress."""

    def __init__(
        self,
        plan: LoopPlan,
        around: Iteration,
        opened: OpenedLevel,
        before: LoopProgress,
        inside: Level | None = None,
    ) -> None:
        self.plan = plan
        self.around = around
        self.opened = opened
        self.before = before
        self.inside = inside
        self.ok = before.ok
        self.failed = before.failed
        self.failed_leaves = before.failed_leaves
        self.first_error = before.first_error
        self.is_halted = False
        self.waits: list[Wait] = []

    @property
    def broken_by(self) -> ErrorInfo | None:
        """The failure that ends a ``fail_fast`` level."""
        return self.first_error if self.plan.failure_mode == "fail_fast" else None

    @property
    def too_many_failures(self) -> ErrorInfo | None:
        """The error of a finished level with more failures than it tolerates."""
        return too_many_failures(self.plan, self.failed, self.opened.total, self.first_error)

    def remaining_indexes(self) -> Iterator[int]:
        """The indexes of iterations that have not ended, in order."""
        above = frozenset(self.before.above)
        return (index for index in range(self.before.low, self.opened.total) if index not in above)

    def fail_leaf(self) -> None:
        """Counts an iteration that failed by itself, not by an inner one, here and in the levels around it."""
        level: Level | None = self
        while level is not None:
            level.failed_leaves += 1
            level = level.inside

    def count_result(self, index: int, result: Result) -> None:
        if result is None:
            self.ok += 1
        elif isinstance(result, Halted):
            self.is_halted = True
            self.waits += result.waits
        else:
            self.failed += 1
            if self.first_error is None:
                self.first_error = msgspec.structs.replace(result, index=index)
