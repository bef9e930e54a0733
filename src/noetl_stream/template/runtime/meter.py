"""The cost of a rendering (LANGUAGE §14). Nothing is timed, so a template always or never exceeds a limit.

Whatever a template does is counted before it is done. A :class:`Meter` holds one rendering to its limits; a
:class:`Budget` bounds the cost of several renderings together, text included, where they must not take long.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.template.failures import EvaluationFailure

CHARS_PER_OPERATION: Final = 64
"""How many characters of text read, without producing any, count as one operation."""

RESULT_CHARS_PER_OPERATION: Final = 512
"""Characters of the rendered value that count as one operation of a budget: they are encoded where that is."""

ITEMS_PER_OPERATION: Final = 16
"""How many elements copied from list to list count as one operation."""

SEARCHED_AGAIN_CHARS: Final = 30_000
"""The length of text up to which Python searches with an algorithm that may read each character several times."""

CHARS_PER_SEARCH: Final = 10
"""How many characters count as one operation where they may be read several times."""

_CONTAINERS: Final = frozenset({dict, list, tuple})


class OverBudget(Exception):
    """The renderings cost more than their :class:`Budget`; they are not wrong."""


class Budget:
    """The operations that several renderings may cost together. All budgets are equal: what is left does not count as
    part of a value.

    Attributes:
        left: The remaining operations.
    """

    __slots__ = ("_given", "left")

    def __init__(self, operations: int = 0) -> None:
        self.refill(operations)

    def refill(self, operations: int) -> None:
        """Restarts the budget with this many operations."""
        self._given = operations
        self.left = operations

    @property
    def spent(self) -> int:
        """Operations spent so far."""
        return self._given - self.left

    def spend(self, operations: int) -> None:
        """Counts operations that are about to be done.

        Raises:
            OverBudget: Less is left. The work must not be done, and nothing is left then.
        """
        if operations > self.left:
            self.left = 0
            raise OverBudget
        self.left -= operations

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Budget)

    def __hash__(self) -> int:
        return 0


class Meter:
    """Counts the cost of one rendering and fails it when it exceeds one of ``limits.max_template_*``.

    Args:
        budget: The budget that pays for it, with other renderings. Default: without bound.

    Attributes:
        kept_chars: Characters of strings in the rendered value so far.
        operations: Operations so far, without those of text and of the rendered value.
        spend: Counts operations in the budget alone.
    """

    __slots__ = ("_call_depth", "_items", "_output_chars", "kept_chars", "limits", "operations", "spend")

    def __init__(self, limits: Limits = DEFAULT_LIMITS, budget: Budget | None = None) -> None:
        self.limits: Final = limits
        self.spend: Final = (budget or Budget(sys.maxsize)).spend
        self.kept_chars = 0
        self.operations = 0
        self._output_chars = 0
        self._items = 0
        self._call_depth = 0

    def work(self, operations: int) -> None:
        """Counts loop iterations, calls or elements read."""
        self.operations += operations
        if self.operations > self.limits.max_template_operations:
            raise limit_error("max_template_operations", self.limits)
        self.spend(operations)

    def write(self, chars: int) -> None:
        """Counts characters of produced text."""
        self._output_chars += chars
        if self._output_chars > self.limits.max_template_output_chars:
            raise limit_error("max_template_output_chars", self.limits)
        if chars >= CHARS_PER_OPERATION:
            self.spend(chars // CHARS_PER_OPERATION)

    def keep_items(self, items: int) -> None:
        """Counts elements of the rendered value."""
        self.spend(items)
        self._items += items
        if self._items > self.limits.max_template_result_items:
            raise limit_error("max_template_result_items", self.limits)

    def keep_chars(self, chars: int) -> None:
        """Counts characters of strings in the rendered value."""
        self.spend(chars // RESULT_CHARS_PER_OPERATION)
        self.kept_chars += chars
        if self.kept_chars > self.limits.max_template_result_chars:
            raise limit_error("max_template_result_chars", self.limits)

    def repeat(self, items: int) -> None:
        """Counts a list of this length made from existing elements."""
        if items > self.limits.max_template_repeat_items:
            raise limit_error("max_template_repeat_items", self.limits)
        self.work(1 + max(items, 0) // ITEMS_PER_OPERATION)

    def compute(self, bits: int) -> None:
        """Checks the size of a whole number before it is computed."""
        if bits > self.limits.max_template_number_bits:
            raise limit_error("max_template_number_bits", self.limits)

    def enter(self) -> None:
        """Enters a call of a macro or function."""
        self._call_depth += 1
        if self._call_depth > self.limits.max_template_call_depth:
            raise limit_error("max_template_call_depth", self.limits)
        self.work(1)

    def leave(self) -> None:
        """Leaves a call of a macro or function."""
        self._call_depth -= 1

    def weigh(self, value: Any) -> Any:
        """Counts the elements of ``value``, at any depth, before a comparison. Returns ``value``."""
        kind = type(value)
        if kind is str:
            self.work(len(value) // CHARS_PER_OPERATION)
        elif kind in _CONTAINERS:
            self._weigh_container(value)
        return value

    def _weigh_container(self, value: Any) -> None:
        self.work(len(value))
        for element in value.values() if type(value) is dict else value:
            kind = type(element)
            if kind in _CONTAINERS:
                self._weigh_container(element)
            elif kind is str and len(element) > CHARS_PER_OPERATION:
                self.work(len(element) // CHARS_PER_OPERATION)

    def search(self, container: Any) -> Any:
        """Counts the cost of a search in ``container``. Returns ``container``."""
        if isinstance(container, str):
            self.search_text(container)
            return container
        return container if isinstance(container, Mapping) else self.weigh(container)

    def search_text(self, text: str) -> None:
        """Counts a search for a text, from the left."""
        self.work(len(text) // CHARS_PER_OPERATION)
        self.spend(min(len(text), SEARCHED_AGAIN_CHARS) // CHARS_PER_SEARCH)


def limit_error(name: str, limits: Limits) -> EvaluationFailure:
    """The error for an exceeded limit of templates."""
    return EvaluationFailure(f"the template exceeds limits.{name} ({getattr(limits, name):,})")
