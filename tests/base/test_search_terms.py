"""What executions are found by: bounded, by path, as text."""

from __future__ import annotations

import pytest

from noetl_stream.model.search_terms import (
    MAX_INPUTS,
    due_range,
    due_terms,
    duration_terms,
    indexed_inputs,
    input_terms,
)


def test_inputs_are_the_scalars_of_a_workload_by_path() -> None:
    workload = {"order": {"id": "A-1", "lines": [1, 2], "buyer": {"vip": True}}, "n": 7, "none": None}
    assert indexed_inputs(workload) == {"n": 7, "order.id": "A-1", "order.buyer.vip": True}
    assert input_terms(indexed_inputs(workload)) == {"input:n=7", "input:order.id=A-1", "input:order.buyer.vip=true"}


def test_long_inputs_and_all_beyond_a_number_of_them_are_left_out() -> None:
    assert indexed_inputs({"a": "x" * 129, "b" * 129: 1, "c=d": 1, "e": "x" * 128}) == {"e": "x" * 128}
    assert len(indexed_inputs({f"k{number}": number for number in range(1_000)})) == MAX_INPUTS
    deep: dict[str, object] = {"end": 1}
    for _ in range(1_000):
        deep = {"k": deep}
    assert indexed_inputs(deep) == {}


def test_a_duration_has_a_term_for_each_mark_that_it_passed() -> None:
    assert duration_terms(999) == set()
    assert duration_terms(61_000) == {"took:1", "took:10", "took:60"}


DUE = "2026-12-20T02:30:00+01:00"


def test_an_execution_has_a_term_for_its_year_month_and_day() -> None:
    assert due_terms(DUE) == {"due:", "due:2026", "due:2026-12", "due:2026-12-20"}
    assert due_terms("") == set()


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("2026-12-20", "due:2026-12-20"),
        ("2026-12", "due:2026-12"),
        ("2026-12-20T02..2026-12-20T03", "due:2026-12-20"),
        ("2026-12-01..2026-12-20", "due:2026-12"),
        ("2026-12-01..2027-01-20", "due:"),
        ("2026-12-01..", "due:"),
    ],
)
def test_a_range_is_searched_by_its_common_part(text: str, term: str) -> None:
    assert due_range(text).term == term
    assert due_range(text).holds(DUE)
    assert not due_range(text).holds("")


@pytest.mark.parametrize(
    "text", ["", "..", "today", "2026-13", "2026-12-32", "26-12-20", "2026-12-20..2026-12-01", DUE, "2026-12-20T0"]
)
def test_an_invalid_day_or_range_of_days_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no day|range|month|day|isoformat"):
        due_range(text)
