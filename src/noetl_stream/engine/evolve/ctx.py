"""Changes of ``ctx``: by key, by merge patch, by reducers, and which step run wrote each key last.

Reducers combine what the iterations of a loop contribute to one key. Source: LANGUAGE §5, §6 ``set_shared``, §9.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.model.events import CtxOverwrote, CtxPatched, SharedOperation, SharedValue
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import merge_patch
from noetl_stream.template import ExpressionError


def with_ctx(state: Execution, ctx: dict[str, Any], keys: Iterable[str], writer: str) -> Execution:
    """``state`` with a new ``ctx`` in which ``writer``, a step run or ``""``, changed ``keys``.

    Reducers and clients (``""``) never count as overwriting.
    """
    at = state.position + 1
    run = state.runs.get(writer)
    if run is not None:
        others = [key for key in keys if _changed_since(state, key, run)]
        if others:
            state = replace(state, ctx_notice=CtxOverwrote(writer, others))
    writers = {**state.writers, **dict.fromkeys(keys, (writer, at))}
    return replace(state, ctx=ctx, ctx_bytes=len(codec.encode(ctx)), ctx_version=at, writers=writers)


def _changed_since(state: Execution, key: str, run: StepRun) -> bool:
    writer, at = state.writers.get(key, ("", 0))
    return at > run.claimed_at and writer != run.step_run_id


def patch_ctx(ctx: dict[str, Any], fact: CtxPatched) -> dict[str, Any]:
    """``ctx`` after a client's patch: whole keys, or a JSON merge patch (RFC 7396)."""
    return merge_patch(ctx, fact.patch) if fact.merge else {**ctx, **fact.patch}


class _Reducer(NamedTuple):
    """A reducer of contributions to one key of ``ctx``. ``step(present, value)`` may modify ``present``, which the
    reducer owns. ``operand`` and ``accumulator`` name the types of ``value`` and ``present``. ``empty`` makes the first
    ``present``; without it, that is the first value.
    """

    operand: str
    accumulator: str
    step: Callable[[Any, Any], Any]
    empty: Callable[[], Any] | None = None


def check_shared(contribution: SharedValue) -> None:
    """Raises :class:`ExpressionError` for a contribution of the wrong type for the operation."""
    operand = _REDUCERS[contribution.op].operand
    if operand != "anything" and _type_of(contribution.value) != operand:
        given = _type_of(contribution.value)
        raise ExpressionError(f"set_shared: {contribution.op} takes {operand}, not {given}")


def reduce_all(ctx: Mapping[str, Any], contributions: Iterable[tuple[str, SharedValue]]) -> dict[str, Any]:
    """``ctx`` after all contributions, in order. ``ctx`` itself is not modified; a list is copied once.

    Raises:
        ExpressionError: a key holds a value the operation cannot be applied to.
    """
    after = dict(ctx)
    states: dict[str, Any] = {}
    operations: dict[str, SharedOperation] = {}
    for key, contribution in contributions:
        op = contribution.op
        if operations.get(key) != op:
            if key in operations:
                after[key] = _result(operations[key], states[key])
            states[key] = _start(key, after.get(key), op)
            operations[key] = op
        present = states[key]
        states[key] = contribution.value if present is None else _REDUCERS[op].step(present, contribution.value)
    return after | {key: _result(op, states[key]) for key, op in operations.items()}


def _start(key: str, present: Any, op: SharedOperation) -> Any:
    """The reducer's accumulator: a number, a copy of a list or mapping, or ``None`` if the first value becomes it."""
    wanted, empty = _REDUCERS[op].accumulator, _REDUCERS[op].empty
    if present is None:
        return empty() if empty is not None else None
    if _type_of(present) != wanted:
        raise ExpressionError(f"set_shared: ctx.{key} is {_type_of(present)}; {op} needs {wanted}")
    if op == "union":
        return {codec.encode(item): item for item in present}
    return present.copy() if isinstance(present, list | dict) else present


def _result(op: SharedOperation, state: Any) -> Any:
    return list(state.values()) if op == "union" else state


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "a boolean"
    names: dict[type, str] = {dict: "a mapping", list: "a list", str: "text", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _append(present: list[Any], value: Any) -> list[Any]:
    present.append(value)
    return present


def _union(present: dict[bytes, Any], value: list[Any]) -> dict[bytes, Any]:
    for item in value:
        present.setdefault(codec.encode(item), item)
    return present


_NUMBER, _LIST, _MAPPING = "a number", "a list", "a mapping"
_REDUCERS: Final[Mapping[SharedOperation, _Reducer]] = {
    "add": _Reducer(_NUMBER, _NUMBER, operator.add),
    "min": _Reducer(_NUMBER, _NUMBER, min),
    "max": _Reducer(_NUMBER, _NUMBER, max),
    "append": _Reducer("anything", _LIST, _append, list),
    "extend": _Reducer(_LIST, _LIST, operator.iadd, list),
    "union": _Reducer(_LIST, _LIST, _union, dict),
    "count": _Reducer("null", _NUMBER, lambda present, value: present + 1, int),
    "merge": _Reducer(_MAPPING, _MAPPING, operator.ior, dict),
}
