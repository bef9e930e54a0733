"""The cost of a rendering (LANGUAGE §14). Nothing is timed, so a template always or never exceeds a limit.

Everything that a template does is counted before it is done. A :class:`Meter` holds one rendering to its limits; a
:class:`Budget` bounds the total cost of several renderings, text included, where they must not take long. Charges to a
budget decide which executions are parked, so they stay unchanged for the replay of journals: a finer charge applies
only to a rendering without a budget, whose outcome is in the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.template.failures import EvaluationFailure

CHARS_PER_OPERATION: Final = 64
"""The number of characters of text read, without producing any, that count as one operation."""

RESULT_CHARS_PER_OPERATION: Final = 512
"""The characters of the rendered value that count as one operation of a budget: they are encoded in its place."""

ITEMS_PER_OPERATION: Final = 16
"""The number of elements copied from list to list that count as one operation."""

SEARCHED_AGAIN_CHARS: Final = 30_000
"""The length of text up to which Python searches with an algorithm that may read each character several times."""

CHARS_PER_SEARCH: Final = 10
"""The number of characters that count as one operation where they may be read several times."""

COMPARISONS_PER_OPERATION: Final = 2_048
"""The number of compared characters in a search that count as one operation."""

LONG_PART_CHARS: Final = 2_500
"""The length of a searched text from which a budget is charged for everything that the search may compare."""

_PLACES_COMPARED: Final = 2_000
"""The number of places at which Python may compare a long part as a whole before it searches in linear time."""

_SHORT_PART_CHARS: Final = 1_500
"""The length up to which a part is compared no more often than one of this length."""

BITS_PER_OPERATION: Final = 256
"""The number of bits of a number that count as one operation of arithmetic."""

ITEMS_KEPT_PER_OPERATION: Final = 4
"""The number of elements of the rendered value that count as one operation where no budget pays for them."""

_CONTAINERS: Final = frozenset({dict, list, tuple})


class OverBudget(Exception):
    """The renderings cost more than their :class:`Budget`; they are not wrong."""


class Budget:
    """The total of operations that several renderings may cost. All budgets are equal: the remaining operations are not
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
            OverBudget: Fewer are left. The work must not be done, and nothing is left then.
        """
        if operations > self.left:
            self.left = 0
            raise OverBudget
        self.left -= operations

    def spend_either(self, in_budget: int, alone: int) -> None:
        """Counts work that costs ``in_budget`` operations of a budget, and ``alone`` of a rendering without one."""
        if in_budget:
            self.spend(in_budget)

    keep = spend
    """Counts elements of a rendered value."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Budget)

    def __hash__(self) -> int:
        return 0


class RenderingBudget(Budget):
    """The operations that one rendering may cost by itself: ``limits.max_template_operations``."""

    __slots__ = ("_kept", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._given = self.left = limits.max_template_operations  # without calls: one for each rendering
        self._limits: Final = limits
        self._kept = 0

    def spend(self, operations: int) -> None:
        """Counts operations that are about to be done.

        Raises:
            EvaluationFailure: Less is left.
        """
        if operations > self.left:
            raise limit_error("max_template_operations", self._limits)
        self.left -= operations

    def spend_either(self, in_budget: int, alone: int) -> None:
        """Counts ``alone`` operations. Raises like :meth:`spend`."""
        self.spend(alone)

    def keep(self, items: int) -> None:
        """Counts elements of a rendered value, several as one operation. Raises like :meth:`spend`."""
        self._kept += items
        if self._kept >= ITEMS_KEPT_PER_OPERATION:
            self.spend(self._kept // ITEMS_KEPT_PER_OPERATION)
            self._kept %= ITEMS_KEPT_PER_OPERATION


class Meter:
    """Counts the cost of one rendering and fails it when it exceeds one of ``limits.max_template_*``.

    Args:
        budget: The budget that pays for it, with other renderings. Default: one of its own.

    Attributes:
        kept_chars: Characters of strings in the rendered value so far.
        operations: Operations so far, without those of text and of the rendered value.
        spend: Counts operations in the budget alone.
        spend_either: Counts operations in the budget, where a rendering's own budget is charged differently.
    """

    __slots__ = (
        "_call_depth",
        "_items",
        "_keep",
        "_output_chars",
        "kept_chars",
        "limits",
        "operations",
        "spend",
        "spend_either",
    )

    def __init__(self, limits: Limits = DEFAULT_LIMITS, budget: Budget | None = None) -> None:
        self.limits: Final = limits
        paying = budget or RenderingBudget(limits)
        self.spend: Final = paying.spend
        self.spend_either: Final = paying.spend_either
        self._keep: Final = paying.keep
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
        self._keep(items)
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
        """Counts the size of a whole number before it is computed."""
        if bits > self.limits.max_template_number_bits:
            raise limit_error("max_template_number_bits", self.limits)
        if bits >= BITS_PER_OPERATION:
            self.spend_either(0, bits // BITS_PER_OPERATION)

    def enter(self) -> None:
        """Enters a call of a macro or function."""
        self._call_depth += 1
        if self._call_depth > self.limits.max_template_call_depth:
            raise limit_error("max_template_call_depth", self.limits)
        self.work(1)
        self.spend_either(0, 1)

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

    def search(self, container: Any, part_chars: int | None = None) -> Any:
        """Counts the cost of a search in ``container``. Returns ``container``.

        Args:
            part_chars: The length of the searched text. Default: the one that takes longest.
        """
        if isinstance(container, str):
            self.search_text(container, len(container) // 2 if part_chars is None else part_chars)
            return container
        return container if isinstance(container, Mapping) else self.weigh(container)

    def search_text(self, text: str, part_chars: int) -> None:
        """Counts a search for a text of this length, from the left."""
        self.work(len(text) // CHARS_PER_OPERATION)
        self.compare_parts(text, part_chars, min(len(text), SEARCHED_AGAIN_CHARS) // CHARS_PER_SEARCH)

    def compare_parts(self, text: str, part_chars: int, in_budget: int) -> None:
        """Counts the characters that Python compares, at worst, in a search for a text of this length.

        Args:
            in_budget: The cost of the search to a budget, unless it is for a long text.
        """
        places = max(len(text) - part_chars + 1, 0)
        compared = len(text) + min(places * part_chars, _PLACES_COMPARED * max(part_chars, _SHORT_PART_CHARS))
        alone = compared // COMPARISONS_PER_OPERATION
        self.spend_either(in_budget if part_chars <= LONG_PART_CHARS else max(in_budget, alone), alone)


def chars_of(part: Any) -> int:
    """The length of a text; 0 for any other value."""
    return len(part) if isinstance(part, str) else 0


def limit_error(name: str, limits: Limits) -> EvaluationFailure:
    """The error for an exceeded limit of templates."""
    return EvaluationFailure(f"the template exceeds limits.{name} ({getattr(limits, name):,})")
