"""Filters of templates: Jinja's deterministic ones, counted, and our own where the language differs.

Filters for randomness (``random``), HTML (``safe``, ``xmlattr``, ``urlize``, …) and Python objects (``attr``,
``pprint``) are left out. Lists are always returned as lists, not as generators, which are true even when empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from jinja2 import Undefined, pass_context
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.filters import ignore_case, make_attrgetter, make_multi_attrgetter
from jinja2.runtime import Context
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import _PassArg

from noetl_stream.model.outcome import Reference
from noetl_stream.sealing.data_references import HEAD_BYTES, HEAD_ROWS, head_key, read_reference
from noetl_stream.template.failures import EvaluationFailure, ReferenceNeeded
from noetl_stream.template.filters.base import Filter, leading_args, meter_of, reject_non_value, scope_of
from noetl_stream.template.filters.text import TEXT_FILTERS
from noetl_stream.template.filters.times import TIME_FILTERS
from noetl_stream.template.runtime.attribute_access import kind_of, text_of
from noetl_stream.template.runtime.meter import chars_of
from noetl_stream.template.runtime.operators import add
from noetl_stream.template.runtime.scope import ABSENT

_JINJA_TESTS: Final = (
    *("boolean", "true", "false", "integer", "float", "number", "string", "mapping", "sequence", "iterable"),
    "in",
    *("==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", "<=", "le", ">", "gt", "greaterthan", ">=", "ge"),
)
_COMPARING: Final = frozenset(_JINJA_TESTS[_JINJA_TESTS.index("==") :])
_READING_TEXT: Final = frozenset({"lower", "upper"})

MORE_ROWS: Final = "a task of kind duckdb reads more: tables: { t: … }, command: from t limit 100"

TOLERANT_TESTS: Final = frozenset({"defined", "undefined"})
"""Tests that accept an undefined part of an expression."""


def is_defined(value: Any) -> bool:
    """Whether ``value`` is neither undefined nor absent."""
    return not isinstance(value, Undefined) and value is not ABSENT


def is_none(value: Any) -> bool:
    """Whether ``value`` is null or absent."""
    return value is None or value is ABSENT


def _count_test(name: str, function: Any) -> Filter:
    pass_arg = _PassArg.from_obj(function)

    @pass_context
    def tested(context: Context, value: Any, *args: Any) -> bool:
        meter = meter_of(context)
        meter.work(1)
        if name in _COMPARING or (name in _READING_TEXT and isinstance(value, str)):
            meter.weigh(value)
        elif name == "in" and args:
            meter.search(args[0], chars_of(value))
        return bool(function(*leading_args(pass_arg, context), value, *args))

    return tested


def _remainder(value: Any, divisor: Any) -> Any:
    for number in (value, divisor):
        if not isinstance(number, int | float):
            raise EvaluationFailure(f"`odd`, `even` and `divisibleby` take a number, not {kind_of(number)}")
    return value % divisor


def _is_odd(value: Any) -> Any:
    return _remainder(value, 2) == 1


def _is_even(value: Any) -> Any:
    return _remainder(value, 2) == 0


def _is_divisibleby(value: Any, divisor: Any) -> Any:
    return _remainder(value, divisor) == 0


def _is_lower(value: Any) -> bool:
    return isinstance(value, str) and value.islower()


def _is_upper(value: Any) -> bool:
    return isinstance(value, str) and value.isupper()


TESTS: Final[Mapping[str, Filter]] = {
    **{name: _count_test(name, JINJA_TESTS[name]) for name in _JINJA_TESTS},
    "odd": _count_test("odd", _is_odd),
    "even": _count_test("even", _is_even),
    "divisibleby": _count_test("divisibleby", _is_divisibleby),
    "lower": _count_test("lower", _is_lower),
    "upper": _count_test("upper", _is_upper),
    "defined": is_defined,
    "undefined": lambda value: not is_defined(value),
    "none": is_none,
}
"""The tests that a template may use."""


MAX_PRECISION: Final = 100
_DIGITS_PER_OPERATION: Final = 8

_JINJA_FILTERS: Final = (
    *("dictsort", "groupby", "list", "map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr"),
    "sort",
)
"""Jinja's filters that read every element."""

_ATTRIBUTE_AT: Final = (
    dict.fromkeys(("sum", "groupby", "selectattr", "rejectattr"), 0)
    | dict.fromkeys(("join", "unique", "min", "max"), 1)
    | {"sort": 2}
)
"""The position of a filter's ``attribute`` argument, a path that it follows for each element."""

_LONG_PATH: Final = 1_000
"""From how many steps on a budget is charged for taking apart an ``attribute``."""

_ORDERING: Final = frozenset({"dictsort", "groupby", "max", "min", "sort", "unique"})
"""Filters that compare elements."""

_LARGEST_HASHED: Final = 2**61 - 1
"""The largest whole number with a hash of its own: larger ones share hashes, which makes sets quadratic."""

_KEYS_COMPARED_PER_OPERATION: Final = 4

TOLERANT_FILTERS: Final = frozenset({"default", "d"})
"""Filters that accept an undefined part of an expression."""

MAYBE_UNDEFINED_FILTERS: Final = frozenset({"default", "d", "first", "last", "min", "max"})
"""Filters whose result can be undefined: for an empty list, or with an undefined default."""


def or_default(value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    """``value``, or ``default_value`` if it is undefined or absent, or, with ``boolean``, false."""
    if isinstance(value, Undefined) or value is ABSENT or (boolean and not value):
        return default_value
    return value


def _count_filter(name: str, function: Filter, *, per_element: bool = True) -> Filter:
    """Makes a filter of a function that reads all elements, or all characters of a text, unless its cost is fixed."""
    pass_arg = _PassArg.from_obj(function)

    @pass_context
    def filtered(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        reject_non_value(name, value)
        meter_of(context).work(1)
        if per_element:
            _count_elements(name, context, value, args, kwargs)
        result = function(*leading_args(pass_arg, context), value, *args, **kwargs)
        return list(result) if isinstance(result, Iterator) else result

    return filtered


def _count_elements(name: str, context: Context, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    place = _ATTRIBUTE_AT.get(name)
    given = args[place] if place is not None and len(args) > place else None
    attribute = kwargs.get("attribute", given)
    steps = 1 + attribute.count(".") + attribute.count(",") if isinstance(attribute, str) else 1
    meter_of(context).spend_either(steps if steps > _LONG_PATH else 0, steps)
    if isinstance(value, str | list | tuple | Mapping):
        meter_of(context).work(len(value) * steps)
        if name in _ORDERING:
            meter_of(context).spend(len(value) * steps)  # the keys are extracted twice
    if name in _ORDERING:
        meter_of(context).spend_either(0, 2)
        _count_keys(context, value, attribute)


def _count_keys(context: Context, value: Any, attribute: Any) -> None:
    """Counts the keys by which elements are compared, and the comparisons that each key may be part of."""
    meter, keys_of = meter_of(context), make_multi_attrgetter(context.environment, attribute)
    elements = [*value.keys(), *value.values()] if isinstance(value, Mapping) else value
    before = meter.operations
    for element in elements:
        keys = keys_of(element)
        meter.work(len(keys))
        for key in keys:
            if isinstance(key, str):
                meter.write(len(key))  # it is copied, to compare it without case
            meter.weigh(key)
    meter.work((meter.operations - before) * len(elements).bit_length() // _KEYS_COMPARED_PER_OPERATION)


@pass_context
def _join(context: Context, value: Any, separator: str = "", attribute: str | int | None = None) -> str:
    meter, references = meter_of(context), scope_of(context).references
    if attribute is not None:
        value = map(make_attrgetter(context.environment, attribute), value)
    texts = [text_of(element, references, meter) for element in value]
    between = text_of(separator, references, meter)
    meter.write(len(between) * len(texts))
    return between.join(texts)


@pass_context
def _sum(context: Context, value: Any, attribute: str | int | None = None, start: Any = 0) -> Any:
    meter, total = meter_of(context), start
    if attribute is not None:
        value = map(make_attrgetter(context.environment, attribute), value)
    for element in value:
        total = add(meter, total, element)
    return total


@pass_context
def _unique(context: Context, value: Any, case_sensitive: bool = False, attribute: Any = None) -> list[Any]:
    key_of = make_attrgetter(context.environment, attribute, postprocess=None if case_sensitive else ignore_case)
    first: dict[Any, Any] = {}
    for element in value:
        key = key_of(element)
        first.setdefault((str(key),) if isinstance(key, int) and abs(key) >= _LARGEST_HASHED else key, element)
    return list(first.values())


@pass_context
def _batch(context: Context, value: Any, size: int, fill: Any = None) -> list[Any]:
    meter, table = meter_of(context), read_reference(value)
    meter.repeat(size)
    if table is None or table.rows is None:
        return list(JINJA_FILTERS["batch"](value, size, fill))
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise EvaluationFailure(f"`batch` takes a whole number of rows of at least 1, not {size!r:.60}")
    firsts = range(0, table.rows, size)
    meter.repeat(len(firsts))
    meter.work(len(firsts))
    return [{**value, "first": table.first + at, "rows": min(size, table.rows - at)} for at in firsts]


def head_error(rows: Any) -> str:
    """The reason why `head` does not give so many rows; empty if it does."""
    fits = isinstance(rows, int) and not isinstance(rows, bool) and 1 <= rows <= HEAD_ROWS
    return "" if fits else f"`head` gives 1 to {HEAD_ROWS} rows, not {rows!r:.60}"


@pass_context
def _head(context: Context, value: Any, rows: int) -> list[Any]:
    table, meter = read_reference(value), meter_of(context)
    meter.work(HEAD_ROWS)
    if table is None or table.rows is None:
        hint = "write [:10] of a list"
        raise EvaluationFailure(f"`head` takes a table by reference, not {kind_of(value)}", hint=hint)
    if error := head_error(rows):
        raise EvaluationFailure(error, hint=MORE_ROWS)
    if table.first:
        raise EvaluationFailure("`head` takes a whole table, not a part of one", hint=MORE_ROWS)
    key, wanted = head_key(table.key), min(rows, table.rows)
    found: list[Any] | None = scope_of(context).references.get(key)
    if found is None:
        raise ReferenceNeeded(Reference("head", key, HEAD_BYTES, table=table))
    if len(found) < wanted:
        few = f"`head` has {len(found)} rows of this table: those that JSON holds, and {HEAD_BYTES:,} bytes of it"
        raise EvaluationFailure(few, hint=MORE_ROWS)
    return found[:wanted]


@pass_context
def _slice(context: Context, value: Any, slices: int, fill: Any = None) -> list[Any]:
    meter = meter_of(context)
    meter.repeat(slices)
    meter.work(max(slices, 0))
    elements = list(value)
    size, longer = divmod(len(elements), slices)
    parts, begin = [], 0
    for number in range(slices):
        end = begin + size + (number < longer)
        padding = [fill] if fill is not None and longer and number >= longer else []
        parts.append(elements[begin:end] + padding)
        begin = end
    return parts


def _items(value: Any) -> list[list[Any]]:
    if not isinstance(value, Mapping):
        raise EvaluationFailure(f"`items` takes a mapping, not {kind_of(value)}")
    return [list(pair) for pair in value.items()]


@pass_context
def _int(context: Context, value: Any, default: Any = 0, base: int = 10) -> Any:
    meter = meter_of(context)
    result = JINJA_FILTERS["int"](meter.weigh(value), default, base)
    if isinstance(result, int):
        meter.compute(result.bit_length())
    return result


@pass_context
def _float(context: Context, value: Any, default: Any = 0.0) -> Any:
    return JINJA_FILTERS["float"](meter_of(context).weigh(value), default)


@pass_context
def _round(context: Context, value: Any, precision: int = 0, method: str = "common") -> Any:
    if not isinstance(value, int | float):
        raise EvaluationFailure(f"`round` takes a number, not {kind_of(value)}")
    if abs(precision) > MAX_PRECISION:
        raise EvaluationFailure(f"`precision` of `round` must be at most {MAX_PRECISION}")
    meter_of(context).spend_either(0, abs(precision) // _DIGITS_PER_OPERATION)
    return JINJA_FILTERS["round"](value, precision, method)


_OWN_FILTERS: Final[Mapping[str, Filter]] = {
    "batch": _batch,
    "head": _head,
    "items": _items,
    "join": _join,
    "slice": _slice,
    "sum": _sum,
    "unique": _unique,
}
_CONSTANT_COST_FILTERS: Final[Mapping[str, Filter]] = {
    **{name: JINJA_FILTERS[name] for name in ("abs", "count", "first", "last", "length")},
    "float": _float,
    "int": _int,
    "round": _round,
    **TIME_FILTERS,
}

FILTERS: Final[Mapping[str, Filter]] = {
    **{name: _count_filter(name, JINJA_FILTERS[name]) for name in _JINJA_FILTERS},
    **{name: _count_filter(name, function) for name, function in _OWN_FILTERS.items()},
    **{name: _count_filter(name, function, per_element=False) for name, function in _CONSTANT_COST_FILTERS.items()},
    **TEXT_FILTERS,
    "default": or_default,
    "d": or_default,
}
"""The filters that a template may use."""
