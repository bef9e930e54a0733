"""How a level inside a local loop opens on the worker (LANGUAGE §6)."""

from __future__ import annotations

from typing import Any, NamedTuple

from noetl_stream.engine.admission import expression_failure
from noetl_stream.engine.looping import loop_items, loop_window
from noetl_stream.model import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import LoopPlan
from noetl_stream.template import ExpressionError, Scope


class Opened(NamedTuple):
    """The items of a level, and how many of its iterations may run at once."""

    items: list[Any]
    at_once: int


def open_level(level: LoopPlan, scope: Scope, limits: Limits, items: list[Any] | None = None) -> Opened | ErrorInfo:
    """``in`` and ``max_in_flight``, or why the level cannot open.

    Args:
        items: Those of a level that has begun before: ``in`` is evaluated once.

    Raises:
        ReferenceNeeded: one of them reads a result kept by reference.
    """
    try:
        if items is not None:
            return Opened(items, loop_window(level, scope, limits.max_in_flight))
        opened = Opened(*loop_items(level, scope, limits.max_in_flight))
    except ExpressionError as error:
        return expression_failure("loop", error)
    size = len(codec.encode(opened.items))
    if size > limits.max_loop_items_bytes:
        text = f"loop.in gave {size} bytes; limits.max_loop_items_bytes is {limits.max_loop_items_bytes}"
        return ErrorInfo("limit_exceeded", text)
    return opened
