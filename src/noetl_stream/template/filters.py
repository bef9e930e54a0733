"""Filters and tests of templates: Jinja's deterministic ones, counted, and some of our own where Jinja's differ.

Left out: clocks and chance (``random``), HTML (``safe``, ``xmlattr``, ``urlize``, …) and Python objects (``attr``,
``pprint``). Lists always come back as lists, never as generators, which would be true even when empty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import markupsafe
from jinja2 import Undefined, pass_context
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.filters import make_attrgetter
from jinja2.runtime import Context
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import _PassArg

from noetl_stream.template.access import kind_of, plain, text_of
from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.limits import Meter
from noetl_stream.template.methods import replace
from noetl_stream.template.operators import add, percent_format
from noetl_stream.template.scope import ABSENT, Scope

Filter: TypeAlias = Callable[..., Any]

SCOPE: Final = "@scope"
METER: Final = "@meter"
"""Where a rendering's scope and meter stand among the names of a Jinja context. No template can write these names."""

MAX_INDENT: Final = 16
MAX_PRECISION: Final = 100

_TAKEN_FILTERS: Final = (
    *("abs", "capitalize", "count", "dictsort", "first", "float", "groupby", "int", "last", "length", "list", "lower"),
    *("map", "max", "min", "reject", "rejectattr", "reverse", "select", "selectattr", "sort", "title", "trim"),
    *("truncate", "unique", "upper", "urlencode", "wordcount"),
)
_TAKEN_TESTS: Final = (
    *("boolean", "true", "false", "integer", "float", "number", "string", "mapping", "sequence", "iterable"),
    *("odd", "even", "divisibleby", "lower", "upper", "in"),
    *("==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", "<=", "le", ">", "gt", "greaterthan", ">=", "ge"),
)
_COMPARING: Final = frozenset({"in", "==", "eq", "equalto", "!=", "ne"})

TOLERANT_FILTERS: Final = frozenset({"default", "d"})
"""Filters under which an undefined part is allowed."""

TOLERANT_TESTS: Final = frozenset({"defined", "undefined"})
"""Tests under which an undefined part is allowed."""

MAYBE_UNDEFINED_FILTERS: Final = frozenset({"default", "d", "first", "last", "min", "max"})
"""Filters whose result can be undefined: of an empty list, or of an undefined default."""


def meter_of(context: Context) -> Meter:
    """The meter of the rendering that runs in ``context``."""
    meter: Meter = context.parent[METER]
    return meter


def scope_of(context: Context) -> Scope:
    """The scope of the rendering that runs in ``context``."""
    scope: Scope = context.parent[SCOPE]
    return scope


def or_default(value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    """``value``, or ``default_value`` if it is undefined or absent, or with ``boolean`` if it is false."""
    if isinstance(value, Undefined) or value is ABSENT or (boolean and not value):
        return default_value
    return value


def is_defined(value: Any) -> bool:
    """Whether ``value`` is neither undefined nor absent."""
    return not isinstance(value, Undefined) and value is not ABSENT


def is_none(value: Any) -> bool:
    """Whether ``value`` is null or absent."""
    return value is None or value is ABSENT


def _counted(name: str, function: Filter) -> Filter:
    pass_arg = _PassArg.from_obj(function)

    @pass_context
    def counted(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        if value is ABSENT:
            raise EvaluationFailure(f"an absent value has no use in the filter `{name}`", hint="use default() first")
        meter_of(context).work(1 + _size(value))
        result = function(*_leading(pass_arg, context), value, *args, **kwargs)
        return list(result) if isinstance(result, Iterator) else result

    return counted


def _counted_test(name: str, function: Any) -> Filter:
    pass_arg = _PassArg.from_obj(function)

    @pass_context
    def counted(context: Context, value: Any, *args: Any) -> bool:
        meter = meter_of(context)
        meter.work(1)
        if name in _COMPARING:
            meter.weigh(value)
        return bool(function(*_leading(pass_arg, context), value, *args))

    return counted


def _leading(pass_arg: _PassArg | None, context: Context) -> tuple[Any, ...]:
    if pass_arg is None:
        return ()
    if pass_arg is _PassArg.context:
        return (context,)
    return (context.eval_ctx if pass_arg is _PassArg.eval_context else context.environment,)


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) // 64
    return len(value) if isinstance(value, list | tuple | Mapping) else 0


@pass_context
def _string(context: Context, value: Any) -> str:
    return text_of(value, scope_of(context).references, meter_of(context))


@pass_context
def _tojson(context: Context, value: Any, indent: int | None = None) -> str:
    if indent is not None and not 0 <= indent <= MAX_INDENT:
        raise EvaluationFailure(f"`indent` of tojson must be 0 to {MAX_INDENT}")
    meter = meter_of(context)
    text = json.dumps(plain(value, scope_of(context).references, meter), ensure_ascii=False, indent=indent)
    meter.write(len(text))
    return text


@pass_context
def _join(context: Context, value: Any, separator: str = "", attribute: str | int | None = None) -> str:
    meter, references = meter_of(context), scope_of(context).references
    if attribute is not None:
        value = map(make_attrgetter(context.environment, attribute), value)
    texts = [text_of(element, references, meter) for element in value]
    separator = str(separator)
    meter.write(len(separator) * len(texts))
    return separator.join(texts)


@pass_context
def _sum(context: Context, value: Any, attribute: str | int | None = None, start: Any = 0) -> Any:
    meter, total = meter_of(context), start
    if attribute is not None:
        value = map(make_attrgetter(context.environment, attribute), value)
    for element in value:
        total = add(meter, total, element)
    return total


@pass_context
def _replace(context: Context, value: Any, old: str, new: str, count: int | None = None) -> str:
    meter = meter_of(context)
    return replace(meter, text_of(value, scope_of(context).references, meter), str(old), str(new), count)


@pass_context
def _format(context: Context, value: str, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise EvaluationFailure("`format` takes values by place or by name, not both")
    return percent_format(meter_of(context), str(value), kwargs or list(args))


@pass_context
def _center(context: Context, value: str, width: int = 80) -> str:
    meter_of(context).write(max(width, 0))
    return str(value).center(width)


@pass_context
def _indent(context: Context, value: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    meter, text = meter_of(context), str(value)
    lines = text.count("\n") + 1
    meter.write(len(text) + lines * (len(width) if isinstance(width, str) else max(width, 0)))
    indented: str = JINJA_FILTERS["indent"](text, width, first, blank)
    return indented


@pass_context
def _batch(context: Context, value: Any, size: int, fill: Any = None) -> list[Any]:
    meter_of(context).repeat(size)
    return list(JINJA_FILTERS["batch"](value, size, fill))


@pass_context
def _slice(context: Context, value: Any, slices: int, fill: Any = None) -> list[Any]:
    meter_of(context).repeat(slices)
    elements = list(value)
    size, longer = divmod(len(elements), slices)
    parts, begin = [], 0
    for number in range(slices):
        end = begin + size + (number < longer)
        padding = [fill] if fill is not None and longer and number >= longer else []
        parts.append(elements[begin:end] + padding)
        begin = end
    return parts


def _round(value: Any, precision: int = 0, method: str = "common") -> Any:
    if abs(precision) > MAX_PRECISION:
        raise EvaluationFailure(f"`precision` of round must be at most {MAX_PRECISION}")
    return JINJA_FILTERS["round"](value, precision, method)


def _items(value: Any) -> list[list[Any]]:
    if not isinstance(value, Mapping):
        raise EvaluationFailure(f"`items` takes a mapping, this is {kind_of(value)}")
    return [list(pair) for pair in value.items()]


def _escape(value: Any) -> str:
    return str(markupsafe.escape(str(value)))


_OWN_FILTERS: Final[Mapping[str, Filter]] = {
    "batch": _batch,
    "center": _center,
    "e": _escape,
    "escape": _escape,
    "format": _format,
    "indent": _indent,
    "items": _items,
    "join": _join,
    "replace": _replace,
    "round": _round,
    "slice": _slice,
    "sum": _sum,
}

FILTERS: Final[Mapping[str, Filter]] = {
    **{name: _counted(name, JINJA_FILTERS[name]) for name in _TAKEN_FILTERS},
    **{name: _counted(name, function) for name, function in _OWN_FILTERS.items()},
    "default": or_default,
    "d": or_default,
    "string": _string,
    "tojson": _tojson,
}
"""Every filter a template may use."""

TESTS: Final[Mapping[str, Filter]] = {
    **{name: _counted_test(name, JINJA_TESTS[name]) for name in _TAKEN_TESTS},
    "defined": is_defined,
    "undefined": lambda value: not is_defined(value),
    "none": is_none,
}
"""Every test a template may use."""
