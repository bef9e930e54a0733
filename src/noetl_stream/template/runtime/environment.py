"""The Jinja sandbox: no attribute access, no calls except to listed functions, and every operation counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from jinja2 import Undefined, nodes, pass_context
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.utils import Namespace

from noetl_stream.template.compile.parsing import ParsingEnvironment
from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.filters.base import Filter, meter_of, scope_of
from noetl_stream.template.filters.text import string
from noetl_stream.template.filters.values import FILTERS, TESTS
from noetl_stream.template.runtime import operators
from noetl_stream.template.runtime.attribute_access import (
    NOT_FOUND,
    Missing,
    Read,
    kind_of,
    lookup,
    require,
    undefined_part,
)
from noetl_stream.template.runtime.meter import Meter, limit_error
from noetl_stream.template.runtime.operators import call_method
from noetl_stream.template.runtime.scope import NO_REFERENCES

READS: Final = "@reads"
"""The name of a template's reads in a Jinja context."""

_BINARY: Final = {
    "+": operators.add,
    "-": operators.subtract,
    "*": operators.multiply,
    "**": operators.power,
    "%": operators.remainder,
    "//": operators.quotient,
}
_LOOP_ATTRIBUTES: Final = frozenset(
    {
        *("index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0"),
        *("previtem", "nextitem"),
    }
)


class TemplateEnvironment(ParsingEnvironment):
    """Jinja's sandbox with the rules of LANGUAGE §2 for dots, calls and operators."""

    intercepted_binops = frozenset(_BINARY)

    def __init__(self) -> None:
        super().__init__(
            undefined=Missing, finalize=string, keep_trailing_newline=True, optimized=False, autoescape=False
        )
        self.filters = {**FILTERS, **_OPERATIONS}
        self.tests = dict(TESTS)
        self.globals = dict(FUNCTIONS)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Reads ``obj.attribute`` of a local value: a key, or an attribute of a loop or namespace object."""
        if isinstance(obj, Undefined):
            return obj
        if isinstance(obj, LoopContext) and attribute in _LOOP_ATTRIBUTES:
            return getattr(obj, attribute)
        if isinstance(obj, Namespace):
            return obj._Namespace__attrs.get(attribute, undefined_part(attribute))  # noqa: SLF001  Jinja exposes it nowhere else
        if isinstance(obj, tuple) and attribute in getattr(obj, "_fields", ()):
            return getattr(obj, attribute)  # `groupby` yields `grouper` and `list`
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Reads ``obj[argument]`` of a local value."""
        if isinstance(obj, Undefined):
            return obj
        found = lookup(obj, require(argument), NO_REFERENCES)
        return undefined_part(str(argument)) if found is NOT_FOUND else found

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Calculates ``left operator right``, counting its cost."""
        return _BINARY[operator](meter_of(context), left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Calls a function, a macro or a recursive loop."""
        require(__obj)
        if not (isinstance(__obj, Macro | LoopContext) or any(__obj is function for function in FUNCTIONS.values())):
            raise EvaluationFailure(f"{kind_of(__obj)} cannot be called")
        meter = meter_of(__context)
        meter.enter()
        if isinstance(__obj, LoopContext):
            (iterable,) = args
            args = (_iterate(meter, iterable, 0, 1),)
        try:
            return __context.call(__obj, *args, **kwargs)
        finally:
            meter.leave()

    def call_filter(
        self,
        name: str,
        value: Any,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        context: Context | None = None,
        eval_ctx: nodes.EvalContext | None = None,
    ) -> Any:
        """Calls a filter that another filter names, as in ``map('upper')``."""
        if name not in FILTERS:
            raise EvaluationFailure(f"unknown filter `{name}`")
        if context is not None:
            meter_of(context).spend_either(1, 2)  # in addition to what the filter counts itself
        return super().call_filter(name, value, args, kwargs, context, eval_ctx)


@pass_context
def _range(context: Context, *bounds: int) -> list[int]:
    meter, numbers = meter_of(context), range(*bounds)
    if len(numbers[: meter.limits.max_template_range_items + 1]) > meter.limits.max_template_range_items:
        raise limit_error("max_template_range_items", meter.limits)
    meter.work(len(numbers))
    return list(numbers)


@pass_context
def _dict(context: Context, members: Any = (), /, **named: Any) -> dict[str, Any]:
    if not isinstance(members, list | tuple | Mapping):
        raise EvaluationFailure(f"`dict` takes a mapping or pairs, not {kind_of(members)}")
    meter_of(context).work(len(members) + len(named))
    result: dict[str, Any] = {}
    for key, value in members.items() if isinstance(members, Mapping) else members:
        if not isinstance(key, str):
            raise EvaluationFailure(f"a mapping key must be text, not {kind_of(key)}")
        result[key] = value
    return result | named


@pass_context
def _namespace(context: Context, members: Any = (), /, **named: Any) -> Namespace:
    return Namespace(_dict(context, members, **named))


FUNCTIONS: Final = {"range": _range, "dict": _dict, "namespace": _namespace}
"""The functions that a template may call."""


@pass_context
def _read(context: Context, index: int, *keys: Any) -> Any:
    read: Read = context.parent[READS][index]
    return read(scope_of(context), meter_of(context), *keys)


@pass_context
def _concat(context: Context, values: list[Any]) -> str:
    return "".join([string(context, value) for value in values])


def _iterate(meter: Meter, value: Any, chars: int, cost: int) -> Any:
    if not isinstance(value, list | tuple | str | Mapping):
        raise EvaluationFailure(f"{kind_of(value)} cannot be iterated")
    _charge(meter, len(value) * chars, len(value) * cost)
    return value


def _charge(meter: Meter, chars: int, cost: int) -> None:
    meter.write(chars)
    meter.work(cost)


def _spread(meter: Meter, value: Any) -> Any:
    if not isinstance(value, list | tuple | Mapping):
        raise EvaluationFailure(f"`*` and `**` take a list or a mapping, not {kind_of(value)}")
    meter.work(len(value))
    return value


def _with_meter(function: Callable[..., Any]) -> Filter:
    """Makes a filter that passes the meter to ``function``."""

    @pass_context
    def operation(context: Context, *args: Any, **kwargs: Any) -> Any:
        return function(meter_of(context), *args, **kwargs)

    return operation


NO_ELSE: Final = Missing("the condition is false and `else` is missing")

READ: Final = "@read"
METHOD: Final = "@method"
CONCAT: Final = "@concat"
ITERATE: Final = "@iterate"
CHARGE: Final = "@charge"
WEIGH: Final = "@weigh"
SEARCH: Final = "@search"
CONTAINS: Final = "@contains"
CUT: Final = "@cut"
SPREAD: Final = "@spread"
MISSING: Final = "@missing"
REQUIRE: Final = "@require"

_OPERATIONS: Final[Mapping[str, Filter]] = {
    READ: _read,
    METHOD: _with_meter(call_method),
    CONCAT: _concat,
    ITERATE: _with_meter(_iterate),
    CHARGE: _with_meter(_charge),
    WEIGH: _with_meter(Meter.weigh),
    SEARCH: _with_meter(Meter.search),
    CONTAINS: _with_meter(operators.contains),
    CUT: _with_meter(operators.cut),
    SPREAD: _with_meter(_spread),
    REQUIRE: require,
    MISSING: lambda value: NO_ELSE,
}
"""Filters that the binder uses in place of names, attributes and calls. Templates cannot name them."""
