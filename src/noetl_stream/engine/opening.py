"""How a level of a loop opens: what it runs over and how many at once, wherever it runs (LANGUAGE §6)."""

from __future__ import annotations

from typing import Any, NamedTuple

from noetl_stream.model import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import LoopPlan
from noetl_stream.template import ExpressionError, Scope, render


class Opened(NamedTuple):
    """The items of a level, and how many of its iterations may run at once."""

    items: list[Any]
    at_once: int


def open_level(loop: LoopPlan, scope: Scope, limits: Limits, items: list[Any] | None = None) -> Opened | ErrorInfo:
    """``in`` and ``max_in_flight``, or why the level cannot open.

    Args:
        items: Those of a level that has begun before: ``in`` is evaluated once.

    Raises:
        ReferenceNeeded: one of them reads a result kept by reference.
    """
    size = 0
    try:
        if items is None:
            items = _items(render(loop.items, scope), loop)
            size = len(codec.encode(items))
        at_once = 1 if loop.mode == "sequential" else _window(render(loop.max_in_flight, scope))
    except ExpressionError as error:
        return ErrorInfo("expression_error", f"loop: {error}")
    if size > limits.max_loop_items_bytes:
        text = f"loop.in gave {size} bytes; limits.max_loop_items_bytes is {limits.max_loop_items_bytes}"
        return ErrorInfo("limit_exceeded", text)
    return Opened(items, min(at_once, limits.max_in_flight))


def _items(value: Any, loop: LoopPlan) -> list[Any]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        return [{"key": key, "value": item} for key, item in value.items()]
    raise ExpressionError(f"gave {type(value).__name__}, not a list or a mapping", expression=str(loop.items.source))


def _window(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ExpressionError(f"max_in_flight gave {value!r}, not a whole number from 1")
