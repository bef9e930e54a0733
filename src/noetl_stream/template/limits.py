"""Bounds on what a template may cost (LANGUAGE §14). Everything is counted, nothing is timed: a template that is
refused here is refused everywhere and every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from noetl_stream.template.failures import EvaluationFailure


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """Named bounds of one template and of one rendering.

    Attributes:
        max_template_chars: Length of one text that holds a template.
        max_template_depth: How deep its expressions and blocks may nest.
        max_operations: Loop turns, calls, and elements that filters look at.
        max_output_chars: Characters of text that a rendering produces, intermediate texts included.
        max_result_items: Elements of the lists and mappings in a rendered value.
        max_result_chars: Characters of the strings in a rendered value.
        max_range_items: Length of one ``range()``.
        max_repeat_items: Length of one list made by ``*``, ``+`` or a filter.
        max_number_bits: Size of a whole number made by ``*`` or ``**``.
        max_call_depth: Macros and recursive loops inside each other.
    """

    max_template_chars: int = 65_536
    max_template_depth: int = 80
    max_operations: int = 2_000_000
    max_output_chars: int = 8_388_608
    max_result_items: int = 10_000_000
    max_result_chars: int = 67_108_864
    max_range_items: int = 100_000
    max_repeat_items: int = 1_000_000
    max_number_bits: int = 4_096
    max_call_depth: int = 40


TEMPLATE_LIMITS: Final = TemplateLimits()


class Meter:
    """Counts what one rendering costs and ends it when a limit is passed."""

    __slots__ = ("_call_depth", "_items", "_operations", "_output_chars", "_result_chars", "limits")

    def __init__(self, limits: TemplateLimits = TEMPLATE_LIMITS) -> None:
        self.limits: Final = limits
        self._operations = 0
        self._output_chars = 0
        self._items = 0
        self._result_chars = 0
        self._call_depth = 0

    def work(self, operations: int) -> None:
        """Counts loop turns, calls, or elements looked at."""
        self._operations += operations
        if self._operations > self.limits.max_operations:
            raise exceeded("max_operations", self.limits.max_operations)

    def write(self, chars: int) -> None:
        """Counts characters of text produced."""
        self._output_chars += chars
        if self._output_chars > self.limits.max_output_chars:
            raise exceeded("max_output_chars", self.limits.max_output_chars)

    def keep_items(self, items: int) -> None:
        """Counts elements that become part of a rendered value."""
        self._items += items
        if self._items > self.limits.max_result_items:
            raise exceeded("max_result_items", self.limits.max_result_items)

    def keep_chars(self, chars: int) -> None:
        """Counts characters of strings that become part of a rendered value."""
        self._result_chars += chars
        if self._result_chars > self.limits.max_result_chars:
            raise exceeded("max_result_chars", self.limits.max_result_chars)

    def repeat(self, items: int) -> None:
        """Allows a list of this length to be made; 64 elements copied cost one operation."""
        if items > self.limits.max_repeat_items:
            raise exceeded("max_repeat_items", self.limits.max_repeat_items)
        self.work(1 + items // 64)

    def enter(self) -> None:
        """One call deeper."""
        self._call_depth += 1
        if self._call_depth > self.limits.max_call_depth:
            raise exceeded("max_call_depth", self.limits.max_call_depth)
        self.work(1)

    def leave(self) -> None:
        """Out of a call again."""
        self._call_depth -= 1

    def weigh(self, value: Any) -> None:
        """Counts every element of a value, to any depth, before something compares it."""
        kind = type(value)
        if kind is dict:
            self.work(len(value))
            for element in value.values():
                self.weigh(element)
        elif kind is list or kind is tuple:
            self.work(len(value))
            for element in value:
                self.weigh(element)


def exceeded(name: str, limit: int) -> EvaluationFailure:
    """The failure that names a limit."""
    return EvaluationFailure(f"the limit `{name}` ({limit:,}) of templates is exceeded")
