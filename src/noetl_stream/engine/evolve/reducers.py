"""Reducers: how the iterations of a loop change one ``ctx`` key together (LANGUAGE §6 ``set_shared``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from noetl_stream.model import codec
from noetl_stream.model.events import SharedOperation, SharedValue
from noetl_stream.template import ExpressionError


class _Reducer(NamedTuple):
    """``step(present, value)`` may change ``present``, which is the reducer's own. ``takes`` and ``goes_on`` name the
    types of the value and of what is there already.
    """

    takes: str
    goes_on: str
    step: Callable[[Any, Any], Any]


def check_shared(contribution: SharedValue) -> None:
    """Raises :class:`ExpressionError` for a value that the operation has no use for, whatever is there already."""
    takes = _REDUCERS[contribution.op].takes
    if takes != "anything" and _type_of(contribution.value) != takes:
        given = _type_of(contribution.value)
        raise ExpressionError(f"set_shared: {contribution.op} takes {takes}, not {given}")


def reduce_all(ctx: Mapping[str, Any], contributions: Iterable[tuple[str, SharedValue]]) -> dict[str, Any]:
    """``ctx`` after all contributions, in order. What it held is left as it is, a long list is copied once.

    Raises:
        ExpressionError: a key holds what the operation cannot go on from.
    """
    after = dict(ctx)
    states: dict[str, Any] = {}
    operations: dict[str, SharedOperation] = {}
    for key, contribution in contributions:
        op = contribution.op
        if operations.get(key) != op:
            if key in operations:
                after[key] = _shown(operations[key], states[key])
            states[key] = _start(key, after.get(key), op)
            operations[key] = op
        present = states[key]
        states[key] = contribution.value if present is None else _REDUCERS[op].step(present, contribution.value)
    return after | {key: _shown(op, states[key]) for key, op in operations.items()}


def _start(key: str, present: Any, op: SharedOperation) -> Any:
    """What the reducer works on: a number, its own copy of a list or mapping, or ``None`` where any value begins it."""
    if present is None:
        return _EMPTY[op]() if op in _EMPTY else None
    wanted = _REDUCERS[op].goes_on
    if _type_of(present) != wanted:
        raise ExpressionError(f"set_shared: ctx.{key} is {_type_of(present)}; {op} goes on from {wanted}")
    if op == "union":
        return {codec.encode(one): one for one in present}
    return present.copy() if isinstance(present, list | dict) else present


def _shown(op: SharedOperation, state: Any) -> Any:
    return list(state.values()) if op == "union" else state


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    names: dict[type, str] = {dict: "a mapping", list: "a list", str: "text", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _append(present: list[Any], value: Any) -> list[Any]:
    present.append(value)
    return present


def _extend(present: list[Any], value: list[Any]) -> list[Any]:
    present.extend(value)
    return present


def _union(present: dict[bytes, Any], value: list[Any]) -> dict[bytes, Any]:
    for one in value:
        present.setdefault(codec.encode(one), one)
    return present


def _merge(present: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    present.update(value)
    return present


_NUMBER, _LIST, _MAPPING = "a number", "a list", "a mapping"
_REDUCERS: Final[Mapping[SharedOperation, _Reducer]] = {
    "add": _Reducer(_NUMBER, _NUMBER, lambda present, value: present + value),
    "min": _Reducer(_NUMBER, _NUMBER, min),
    "max": _Reducer(_NUMBER, _NUMBER, max),
    "append": _Reducer("anything", _LIST, _append),
    "extend": _Reducer(_LIST, _LIST, _extend),
    "union": _Reducer(_LIST, _LIST, _union),
    "count": _Reducer("null", _NUMBER, lambda present, value: present + 1),
    "merge": _Reducer(_MAPPING, _MAPPING, _merge),
}
_EMPTY: Final[Mapping[SharedOperation, Callable[[], Any]]] = {
    "count": int,
    "append": list,
    "extend": list,
    "union": dict,
    "merge": dict,
}
