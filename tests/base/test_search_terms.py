"""What executions are found by: bounded, by path, as text."""

from __future__ import annotations

from noetl_stream.model.search_terms import MAX_INPUTS, duration_terms, indexed_inputs, input_terms


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
