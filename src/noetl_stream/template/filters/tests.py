"""Tests of templates (``is defined``, ``is odd``, …): Jinja's, counted, and our own where the language differs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jinja2 import Undefined, pass_context
from jinja2.runtime import Context
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import _PassArg

from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.filters.base import Filter, leading_args, meter_of
from noetl_stream.template.runtime.attribute_access import kind_of
from noetl_stream.template.runtime.scope import ABSENT

_JINJA_TESTS: Final = (
    *("boolean", "true", "false", "integer", "float", "number", "string", "mapping", "sequence", "iterable"),
    "in",
    *("==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", "<=", "le", ">", "gt", "greaterthan", ">=", "ge"),
)
_COMPARING: Final = frozenset(_JINJA_TESTS[_JINJA_TESTS.index("==") :])
_READING_TEXT: Final = frozenset({"lower", "upper"})

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
            meter.search(args[0])
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
