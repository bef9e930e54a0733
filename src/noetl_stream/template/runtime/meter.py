"""What a rendering costs (LANGUAGE §14). Everything is counted, nothing is timed: a template that is refused once is
refused everywhere and every time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.template.failures import EvaluationFailure

CHARS_AN_OPERATION: Final = 64
"""How much text is looked at, without making any, for one operation."""

ITEMS_AN_OPERATION: Final = 16
"""How many elements are copied from list to list for one operation."""

_WHOLE: Final = frozenset({dict, list, tuple})


class Meter:
    """Counts what one rendering costs and ends it when one of ``limits.max_template_*`` is passed.

    Attributes:
        kept_chars: Characters of strings that became part of a rendered value so far.
    """

    __slots__ = ("_call_depth", "_items", "_operations", "_output_chars", "kept_chars", "limits")

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits: Final = limits
        self.kept_chars = 0
        self._operations = 0
        self._output_chars = 0
        self._items = 0
        self._call_depth = 0

    def work(self, operations: int) -> None:
        """Counts loop turns, calls, or elements looked at."""
        self._operations += operations
        if self._operations > self.limits.max_template_operations:
            raise exceeded("max_template_operations", self.limits)

    def write(self, chars: int) -> None:
        """Counts characters of text produced."""
        self._output_chars += chars
        if self._output_chars > self.limits.max_template_output_chars:
            raise exceeded("max_template_output_chars", self.limits)

    def keep_items(self, items: int) -> None:
        """Counts elements that become part of a rendered value."""
        self._items += items
        if self._items > self.limits.max_template_result_items:
            raise exceeded("max_template_result_items", self.limits)

    def keep_chars(self, chars: int) -> None:
        """Counts characters of strings that become part of a rendered value."""
        self.kept_chars += chars
        if self.kept_chars > self.limits.max_template_result_chars:
            raise exceeded("max_template_result_chars", self.limits)

    def repeat(self, items: int) -> None:
        """Allows a list of this length to be made of what is there already."""
        if items > self.limits.max_template_repeat_items:
            raise exceeded("max_template_repeat_items", self.limits)
        self.work(1 + max(items, 0) // ITEMS_AN_OPERATION)

    def compute(self, bits: int) -> None:
        """Allows a whole number of this size to be computed."""
        if bits > self.limits.max_template_number_bits:
            raise exceeded("max_template_number_bits", self.limits)

    def enter(self) -> None:
        """One call deeper."""
        self._call_depth += 1
        if self._call_depth > self.limits.max_template_call_depth:
            raise exceeded("max_template_call_depth", self.limits)
        self.work(1)

    def leave(self) -> None:
        """Out of a call again."""
        self._call_depth -= 1

    def weigh(self, value: Any) -> Any:
        """Counts every element of ``value``, to any depth, before something compares it; gives ``value`` back."""
        kind = type(value)
        if kind is str:
            self.work(len(value) // CHARS_AN_OPERATION)
        elif kind in _WHOLE:
            self._weigh_whole(value)
        return value

    def _weigh_whole(self, value: Any) -> None:
        self.work(len(value))
        for element in value.values() if type(value) is dict else value:
            kind = type(element)
            if kind in _WHOLE:
                self._weigh_whole(element)
            elif kind is str and len(element) > CHARS_AN_OPERATION:
                self.work(len(element) // CHARS_AN_OPERATION)

    def search(self, container: Any) -> Any:
        """Counts what looking for something in ``container`` costs; gives ``container`` back."""
        return container if isinstance(container, Mapping) else self.weigh(container)


def exceeded(name: str, limits: Limits) -> EvaluationFailure:
    """The failure that names a limit."""
    return EvaluationFailure(f"the template exceeds limits.{name} ({getattr(limits, name):,})")
