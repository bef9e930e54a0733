"""Everything that templates can do is charged truly: its cost grows at least as its work does (LANGUAGE §14).

Work is counted, not timed: Python's instructions, comparisons of elements included, and the elements and characters
that compiled code reads and writes. What is missing from the tables fails the test, so that nothing new is uncounted.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any, Final

import pytest

from noetl_stream.template import Budget, Scope, compile_guard, holds
from noetl_stream.template.compile.evaluators import ENVIRONMENT
from noetl_stream.template.filters.times import TIME_FILTERS
from noetl_stream.template.filters.values import FILTERS, TESTS
from noetl_stream.template.runtime.environment import FUNCTIONS
from noetl_stream.template.runtime.meter import CHARS_PER_OPERATION, ITEMS_PER_OPERATION, Meter
from noetl_stream.template.runtime.operators import METHODS

INSTRUCTIONS_PER_OPERATION: Final = 150
"""So many instructions of Python take about a microsecond or two."""

SMALL, LARGE = 40, 400


class Counted(int):
    """A number whose comparisons are instructions of Python, and are counted as such."""

    def __lt__(self, other: object) -> bool:
        return int(self) < int(other)  # type: ignore[call-overload]

    def __gt__(self, other: object) -> bool:
        return int(self) > int(other)  # type: ignore[call-overload]

    def __eq__(self, other: object) -> bool:
        return int(self) == other

    def __hash__(self) -> int:
        return int(self)


def data(size: int) -> dict[str, Any]:
    """Values that grow with ``size``, in an order that makes sorting work."""
    numbers = [Counted(number * 7919 % (size + 1)) for number in range(size)]
    return {
        "list": numbers,
        "same": list(map(Counted, map(int, numbers))),
        "rows": [{"a": {"b": number}, "t": f"t{int(number)}"} for number in numbers],
        "texts": [f"Text {int(number)}" for number in numbers],
        "nested": [[number] for number in numbers],
        "others": [[Counted(int(number))] for number in numbers],
        "mapping": {f"k{int(number)}": number for number in numbers},
        "paths": "a.b" + ",a.b" * size,
        "text": "word " * (size * 20),
        "lines": "line\n" * (size * 20),
        "alike": "a" * size * 100,
        "digits": "1" * size * 2,
        "table": {"key": "e/0/parts-1", "size": 1, "checksum": "", "seal": "", "rows": size, "columns": []},
        "size": size,
        "huge": 2 ** (size * 10),
    }


FILTER_CASES: Final[dict[str, list[str]]] = {
    "abs": ["ctx.huge | abs"],
    "batch": ["ctx.list | batch(3)", "ctx.list | batch(ctx.size, 0)"],
    "capitalize": ["ctx.text | capitalize"],
    "center": ["ctx.text | center(ctx.size * 200)"],
    "count": ["ctx.list | count"],
    "d": ["ctx.list | d(1)"],
    "default": ["ctx.list | default(1, true)"],
    "dictsort": ["ctx.mapping | dictsort", "ctx.mapping | dictsort(by='value')"],
    "e": ["ctx.text | e"],
    "escape": ["ctx.text | escape"],
    "first": ["ctx.list | first"],
    "float": ["ctx.digits | float(0.0)"],
    "format": ["ctx.text | format", "'%s' | format(ctx.text)", "'%5000s' | format(ctx.size)"],
    "groupby": ["ctx.rows | groupby('a.b')"],
    "head": ["ctx.table | head(20)"],
    "indent": ["ctx.lines | indent(4, true, true)"],
    "int": ["ctx.digits | int(0)", "'f' * ctx.size | int(0, 16)"],
    "items": ["ctx.mapping | items"],
    "join": ["ctx.texts | join(', ')", "ctx.rows | join('', attribute='t')"],
    "last": ["ctx.list | last"],
    "length": ["ctx.list | length"],
    "list": ["ctx.list | list", "ctx.text | list"],
    "lower": ["ctx.text | lower"],
    "map": ["ctx.texts | map('upper')", "ctx.rows | map(attribute='a.b')", "ctx.rows | map(attribute='t.' * 9)"],
    "max": ["[ctx.list | max]", "ctx.rows | max(attribute='a.b')"],
    "min": ["[ctx.list | min]", "ctx.texts | min"],
    "reject": ["ctx.list | reject('odd')", "ctx.texts | reject('in', ctx.texts)"],
    "rejectattr": ["ctx.rows | rejectattr('a.b', 'eq', 3)"],
    "replace": ["ctx.text | replace('word', 'words')", "ctx.alike | replace('', 'b')"],
    "reverse": ["ctx.list | reverse", "ctx.text | reverse"],
    "round": ["ctx.size | round"],
    "select": ["ctx.list | select('divisibleby', 3)", "ctx.list | select('in', ctx.same)"],
    "selectattr": ["ctx.rows | selectattr('a.b')"],
    "slice": ["ctx.list | slice(7)", "ctx.list | slice(ctx.size)"],
    "sort": [
        "ctx.list | sort",
        "ctx.nested | sort",
        "ctx.texts | sort(case_sensitive=true)",
        "ctx.rows | sort(attribute='a.b,t')",
        "(ctx.rows[:9]) | sort(attribute=ctx.paths)",
    ],
    "string": ["ctx.text | string", "ctx.texts | string"],
    "sum": ["[ctx.list | sum]", "ctx.nested | sum(start=[])", "ctx.rows | sum(attribute='a.b')"],
    "title": ["ctx.text | title"],
    "tojson": ["ctx.texts | tojson", "ctx.texts | tojson(indent=2)", "ctx.text | tojson"],
    "trim": ["ctx.text | trim", "ctx.alike | trim('abc')"],
    "date_add": ["'2026-11-05' | date_add(1, 'day')"],
    "date_format": ["'2026-11-05' | date_format('%Y')"],
    "date_parse": ["'2026' | date_parse('%Y')"],
    "date_trunc": ["'2026-11-05' | date_trunc('month')"],
    "truncate": ["ctx.text | truncate(20)"],
    "unique": ["ctx.list | unique", "ctx.rows | unique(attribute='a.b')"],
    "upper": ["ctx.text | upper"],
    "urlencode": ["ctx.text | urlencode"],
    "wordcount": ["ctx.text | wordcount"],
}

TEST_CASES: Final[dict[str, list[str]]] = {
    **{name: [f"ctx.nested is {name} ctx.others"] for name in ("eq", "equalto", "==", "ne", "!=")},
    **{
        name: [f"ctx.nested is {name} ctx.others"]
        for name in ("<", "lt", "lessthan", "<=", "le", ">", "gt", "greaterthan", ">=", "ge")
    },
    **{
        name: [f"ctx.list is {name}"]
        for name in ("boolean", "true", "false", "integer", "float", "number", "string", "mapping", "sequence")
    },
    **{name: [f"ctx.list is {name}"] for name in ("iterable", "defined", "undefined", "none")},
    **{name: [f"ctx.size is {name}"] for name in ("odd", "even")},
    "divisibleby": ["ctx.size is divisibleby 3"],
    "in": ["-1 is in ctx.list", "'zz' is in ctx.text"],
    "lower": ["ctx.text is lower"],
    "upper": ["ctx.text is upper"],
}
SYMBOLS: Final = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}

METHOD_CASES: Final[dict[str, list[str]]] = {
    **{
        name: [f"ctx.text.{name}()"]
        for name in ("upper", "lower", "title", "capitalize", "casefold", "swapcase", "split", "rsplit", "splitlines")
    },
    **{
        f"is{name}": [f"ctx.digits.is{name}()"]
        for name in ("digit", "alpha", "alnum", "numeric", "decimal", "space", "upper", "lower", "identifier")
    },
    **{name: [f"ctx.alike.{name}()", f"ctx.alike.{name}('abc')"] for name in ("strip", "lstrip", "rstrip")},
    **{name: [f"ctx.text.{name}('word')"] for name in ("removeprefix", "removesuffix", "partition", "rpartition")},
    **{name: [f"ctx.text.{name}('wor x')"] for name in ("find", "rfind", "count")},
    "index": ["ctx.text.index('word')"],
    **{name: [f"'a'.{name}(ctx.size * 100)"] for name in ("ljust", "rjust", "center", "zfill")},
    **{name: [f"ctx.text.{name}(ctx.texts)", f"ctx.text.{name}(ctx.text)"] for name in ("startswith", "endswith")},
    **{name: [f"ctx.mapping.{name}()"] for name in ("items", "keys", "values")},
    "get": ["ctx.mapping.get('k1')"],
    "join": ["', '.join(ctx.texts)"],
    "replace": ["ctx.text.replace('word', 'words')"],
}
OF_LOOPS: Final = {"changed", "cycle"}
"""Methods of the variable of a ``{% for %}``; expressions have none."""

OPERATOR_CASES: Final = [
    "ctx.text + ctx.text",
    "ctx.list + ctx.list",
    "ctx.size - 1",
    "ctx.huge - 1",
    "ctx.list * 3",
    "ctx.text * 3",
    "ctx.huge * 3",
    "2 ** ctx.size",
    "ctx.text % 1 if false else ctx.text[:9]",
    "'%s' % ctx.text",
    "ctx.huge % 7",
    "ctx.huge // 7",
    "ctx.size // 7",
    "ctx.size / 7",
    "-ctx.huge",
    "ctx.text ~ ctx.text ~ ctx.list | length",
    "ctx.nested == ctx.others",
    "ctx.nested != ctx.others",
    "ctx.nested < ctx.others",
    "ctx.nested >= ctx.others",
    "-1 in ctx.list",
    "-1 not in ctx.nested",
    "'zz' in ctx.text",
    "'k1' in ctx.mapping",
    "ctx.list[1:]",
    "ctx.text[::2]",
    "ctx.list and ctx.list or not ctx.list",
    "[ctx.list, ctx.list]",
    "{'a': ctx.list}",
]
FUNCTION_CASES: Final = {
    "range": ["range(ctx.size)"],
    "dict": ["dict(ctx.mapping)"],
    "namespace": [],  # only in `{% set %}`
}

CONSTANT: Final = (
    frozenset({"abs", "count", "head", "length", "first", "last", "d", "default", "get", "round"}) | TIME_FILTERS.keys()
)
"""What looks at no more than an element or two."""


def cases() -> list[str]:
    tables = (FILTER_CASES, METHOD_CASES, FUNCTION_CASES)
    named = [case for table in tables for cases_of in table.values() for case in cases_of]
    tested = [case for name, cases_of in TEST_CASES.items() if name not in SYMBOLS for case in cases_of]
    return [*named, *tested, *OPERATOR_CASES]


def instructions(expression: str, size: int) -> tuple[int, int]:
    """How many instructions its evaluation takes, and how many operations it is charged."""
    guard = compile_guard(f"{{{{ {expression} }}}}", namespaces=frozenset({"ctx"}), bindings={})
    budget = Budget(sys.maxsize)
    scope = Scope({"ctx": data(size)}, {"e/0/head": [{"a": number} for number in range(20)]}, budget=budget)
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    meter = Meter(scope.limits, budget)
    evaluate = guard.expression._evaluate  # noqa: SLF001  a value with counted numbers is no JSON
    meter.spend(guard.expression._cost)  # noqa: SLF001
    before = sys.gettrace()
    gc.disable()  # it would count how the garbage of other tests ends
    sys.settrace(trace)
    try:
        value = evaluate(scope, meter)
    finally:
        sys.settrace(before)
        gc.enable()
    is_given = any(value is one for one in scope.namespaces["ctx"].values())
    return count + INSTRUCTIONS_PER_OPERATION * (0 if is_given else size_of(value)), budget.spent


def size_of(value: Any) -> int:
    """The operations that it takes to write the value."""
    if isinstance(value, str):
        return len(value) // CHARS_PER_OPERATION
    if isinstance(value, list):
        return len(value) // ITEMS_PER_OPERATION
    return 0


@pytest.mark.parametrize("expression", cases())
def test_the_charge_grows_at_least_as_the_work_does(expression: str) -> None:
    small, charged_small = instructions(expression, SMALL)
    large, charged_large = instructions(expression, LARGE)
    assert large - small <= INSTRUCTIONS_PER_OPERATION * (charged_large - charged_small + 1)


@pytest.mark.parametrize("name", sorted({*FILTER_CASES, *METHOD_CASES} - CONSTANT))
def test_reading_a_text_or_a_list_is_charged_by_its_length(name: str) -> None:
    expression = (FILTER_CASES.get(name) or METHOD_CASES[name])[0]
    _, small = instructions(expression, SMALL)
    _, large = instructions(expression, LARGE)
    assert large - small >= (LARGE - SMALL) // CHARS_PER_OPERATION


JOURNALED: Final = {
    "'b a' in ctx.text": 142,
    "ctx.part not in ctx.text": 142,
    "3 in ctx.list": 104,
    "'k1' in ctx.m": 4,
    "ctx.part is in ctx.text": 142,
    "ctx.text.find(ctx.part)": 143,
    "ctx.text.count('zz')": 142,
    "ctx.text.replace('a', 'bb')": 159,
    "ctx.text | replace('a', 'bb')": 182,
    "ctx.text.split(' ')": 626,
    "ctx.text.partition('zz')": 148,
    "ctx.text | urlencode": 1263,
    "ctx.rows | tojson": 137,
    "ctx.rows | tojson(indent=1)": 607,
    "ctx.rows | sort(attribute='a,t')": 484,
    "ctx.rows | groupby('a')": 325,
    "ctx.rows | map(attribute='t') | map('upper') | list": 247,
    "ctx.n // 7": 3,
    "ctx.n * 3 % 5": 4,
    "'%s %5d' % ['a', 7]": 7,
    "1.2345 | round(2)": 4,
    "range(50) | sum": 105,
    "ctx.list": 103,
    "ctx.text ~ ctx.list": 130,
}
"""What a budget is charged for a list of each."""


@pytest.mark.parametrize(("expression", "operations"), JOURNALED.items())
def test_a_budget_is_charged_what_it_was_when_journals_were_written(expression: str, operations: int) -> None:
    """Charged otherwise, an execution would be parked in a replay that was not, or the other way round."""
    ctx = {
        "text": "ab " * 400,
        "part": "b ab",
        "rows": [{"a": number % 7, "t": f"t{number}"} for number in range(40)],
        "n": 2**300,
        "list": list(range(100)),
        "m": {f"k{number}": number for number in range(30)},
    }
    budget = Budget(sys.maxsize)
    guard = compile_guard(f"{{{{ [{expression}] }}}}", namespaces=frozenset({"ctx"}), bindings={})
    assert holds(guard, Scope({"ctx": ctx}, budget=budget))
    assert budget.spent == operations


def test_every_filter_test_method_operator_and_function_is_in_a_table() -> None:
    assert set(FILTER_CASES) == set(FILTERS)
    assert set(TEST_CASES) == set(TESTS)
    assert set(METHOD_CASES) | OF_LOOPS == METHODS
    assert set(FUNCTION_CASES) == set(FUNCTIONS)
    written = " ".join(OPERATOR_CASES)
    assert all(f" {operator} " in written for operator in ENVIRONMENT.intercepted_binops)
    own = {name for name in ENVIRONMENT.filters if name.startswith("@")}
    assert set(ENVIRONMENT.filters) - own == set(FILTERS), "the rest are what the compiler writes for the above"
