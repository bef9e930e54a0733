from __future__ import annotations

import datetime
import enum
import math
import re
from collections import Counter, OrderedDict, namedtuple
from decimal import Decimal
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.tools.convert import MAX_DEPTH, NotJson, to_json

Point = namedtuple("Point", "x y")


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (datetime.datetime(2024, 2, 29, 10, 5, tzinfo=datetime.UTC), "2024-02-29T10:05:00+00:00"),
        (datetime.time(10, 5, 0, 250), "10:05:00.000250"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.50"), 1.5),
        (Decimal("12"), 12),
        (Decimal("1E+2"), 100),
        (Decimal("0.1"), 0.1),
        (Decimal("123456789.12345678"), 123456789.12345678),
        ((1, "a"), [1, "a"]),
        (Point(1, 2), [1, 2]),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        (frozenset({8, 1}), [1, 8]),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aa"), {"a": 2}),
        (MappingProxyType({"a": (1,)}), {"a": [1]}),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (2**70, 2**70),
        ("é", "é"),
    ],
)
def test_a_value_with_a_json_form_is_converted(value: Any, expected: Any) -> None:
    plain = to_json(value)
    assert plain == expected
    assert type(plain) is type(expected)


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"a": [1, {"b": math.nan}]}, "result.a[1].b", "nan is not a valid JSON number"),
        ([math.inf], "result[0]", "inf is not a valid JSON number"),
        ({"a b": Decimal("NaN")}, "result['a b']", "NaN is not a valid JSON number"),
        ({"a": b"x"}, "result.a", "bytes cannot be converted to JSON; decode it"),
        (datetime.timedelta(1), "result", "total_seconds"),
        ({1: 2}, "result", "a key must be text, not int: 1"),
        ({"a": object()}, "result.a", "object cannot be converted to JSON"),
        ({"a": (n for n in "x")}, "result.a", "write list(value)"),
        (["a\0b"], "result[0]", "NUL"),
        ({"a": "\ud800"}, "result.a", "surrogate"),
        ({"\ud800": 1}, r"result['\ud800']", "surrogate"),
        (
            [Decimal("12345678901234567.89")],
            "result[0]",
            "cannot keep all its digits; write str(value), or float(value)",
        ),
        (Decimal("1E-400"), "result", "cannot keep all its digits"),
        (Decimal("-Infinity"), "result", "not a valid JSON number"),
        (Decimal("1E+9999"), "result", "longer than 4000 digits"),
    ],
)
def test_a_value_without_a_json_form_is_refused_with_its_path(value: Any, path: str, reason: str) -> None:
    with pytest.raises(NotJson) as refused:
        to_json(value)
    assert refused.value.path == path
    assert reason in refused.value.reason


@pytest.mark.parametrize(
    ("methods", "advice"),
    [
        (["to_dict", "to_dicts", "to_list"], "value.to_dicts()"),  # polars
        (["to_dict", "tolist", "iterrows"], "value.to_dict('records')"),  # pandas
        (["to_pylist"], "value.to_pylist()"),  # Arrow
        (["tolist", "__iter__"], "value.tolist()"),  # NumPy
        (["to_list", "__iter__"], "value.to_list()"),
    ],
)
def test_objects_of_libraries_are_refused_with_their_own_way_to_plain_values(methods: list[str], advice: str) -> None:
    value = type("Frame", (), dict.fromkeys(methods, lambda self: None))()
    with pytest.raises(NotJson, match=re.escape(f"write {advice}")):
        to_json(value)


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotJson, match=f"more than {MAX_DEPTH} levels deep"):
        to_json(endless)


def test_the_place_of_what_nests_too_deeply_is_named_by_its_beginning() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotJson, match=r"^rows(\[0\]){80}…: nested more than") as refused:
        to_json([endless], name="rows")
    assert len(str(refused.value)) < 320


def test_the_path_starts_with_the_given_name() -> None:
    with pytest.raises(NotJson, match=r"rows\[0\]\.ratio: nan"):
        to_json([{"ratio": math.nan}], name="rows")


def test_further_types_are_converted_when_asked_for_and_their_content_too() -> None:
    also = {range: list, bytes: bytes.decode}
    assert to_json({"a": range(2), "b": [b"x"]}, also=also) == {"a": [0, 1], "b": ["x"]}
    with pytest.raises(NotJson):
        to_json(b"a\0", also=also)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="ascii", min_codepoint=1)), inner),
    max_leaves=20,
)


@given(json_values)
def test_plain_json_is_unchanged(value: Any) -> None:
    assert to_json(value) == value


def test_the_result_shares_nothing_with_the_value() -> None:
    inner = [1]
    plain = to_json({"a": inner})
    inner.append(2)
    assert plain == {"a": [1]}
