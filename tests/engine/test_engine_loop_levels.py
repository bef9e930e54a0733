from __future__ import annotations

from typing import Any

import pytest

from noetl_stream.engine.decide.loops import PAGE_BYTES
from noetl_stream.engine.runner.level import OpenedLevel, open_level, split_items
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import LoopProgress
from noetl_stream.model.outcome import ErrorInfo, ItemPosition, Outcome, Page, Payload, Reference
from noetl_stream.playbook.plan import LoopPlan
from noetl_stream.template import ReferenceNeeded, ResultView, Scope, compile_template

SEEN = frozenset({"workload", "steps"})


def level(items: Any, window: Any = 10, mode: Any = "parallel") -> LoopPlan:
    compiled = [compile_template(source, namespaces=SEEN, bindings={}) for source in (items, window)]
    return LoopPlan(compiled[0], "item", mode, "local", "fail_fast", compiled[1])


def opened(items: Any, window: Any = 10, mode: Any = "parallel", **limits: int) -> OpenedLevel | ErrorInfo:
    scope = Scope({"workload": {"list": [1, 2], "map": {"a": 1}, "text": "ab", "none": None}})
    return open_level(level(items, window, mode), scope, Limits(**limits))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ("{{ workload.list }}", [1, 2]),
        ("{{ workload.map }}", [{"key": "a", "value": 1}]),
        ([], []),
        (["{{ workload.text }}"], ["ab"]),
    ],
)
def test_a_level_runs_over_a_list_or_the_entries_of_a_mapping(items: Any, expected: list[Any]) -> None:
    assert opened(items) == OpenedLevel(expected, 10)


@pytest.mark.parametrize("items", ["{{ workload.text }}", "{{ workload.none }}", "{{ 3 }}", "{{ workload.missing }}"])
def test_a_value_that_is_no_list_or_mapping_cannot_be_looped_over(items: str) -> None:
    error = opened(items)
    assert isinstance(error, ErrorInfo) and error.kind == "expression_error"


def test_a_sequential_level_runs_one_at_a_time_for_any_window() -> None:
    assert opened([1, 2, 3], "{{ workload.missing }}", "sequential") == OpenedLevel([1, 2, 3], 1)


def test_the_window_may_be_a_template_and_never_exceeds_its_limit() -> None:
    assert opened([1], "{{ workload.list | length }}") == OpenedLevel([1], 2)
    assert opened([1], 5_000) == OpenedLevel([1], 1_000)


@pytest.mark.parametrize("window", [0, "{{ -1 }}", "{{ 1.5 }}", "{{ true }}", "{{ 'two' }}"])
def test_a_window_that_is_not_a_whole_number_from_one_is_an_error(window: Any) -> None:
    error = opened([1], window)
    assert isinstance(error, ErrorInfo) and error.kind == "expression_error"
    assert "max_in_flight" in error.message


def test_items_are_cut_into_pages_if_they_are_too_many_for_an_event_or_must_be() -> None:
    few = OpenedLevel(["ab"], 1)
    assert split_items(few, Limits(), paging=False) is None
    assert (
        split_items(few, Limits(), paging=True)
        == split_items(few, Limits(max_loop_items_bytes=3), paging=False)
        == [["ab"]]
    )
    assert split_items(OpenedLevel([], 1), Limits(), paging=True) == []


def test_more_pages_than_allowed_are_an_error_that_names_the_limit() -> None:
    error = split_items(OpenedLevel(["x" * PAGE_BYTES] * 3, 1), Limits(max_loop_pages=2), paging=True)
    assert isinstance(error, ErrorInfo) and error.kind == "limit_exceeded"
    assert "in 3 pages; limits.max_loop_pages is 2" in error.message


def test_items_that_are_known_are_not_evaluated_again() -> None:
    before = LoopProgress(items=[7])
    assert open_level(level("{{ workload.gone }}"), Scope({"workload": {}}), Limits(), before) == OpenedLevel([7], 10)
    pages = [Page(0, 3, Reference("nats", "a", 9)), Page(3, 2, Reference("nats", "b", 9))]
    opened = open_level(level("{{ workload.gone }}"), Scope({"workload": {}}), Limits(), LoopProgress(pages=pages))
    assert isinstance(opened, OpenedLevel) and opened.total == 5
    assert [opened.item_at(index) for index in (0, 2, 3, 4)] == [
        ItemPosition(pages[0].reference, 0), ItemPosition(pages[0].reference, 2), ItemPosition(pages[1].reference, 0),
        ItemPosition(pages[1].reference, 1),
    ]  # fmt: skip


def test_a_result_kept_by_reference_is_asked_for() -> None:
    large = ResultView(Outcome("ok", Payload(reference=Reference("nats", "some/key", 100))))
    with pytest.raises(ReferenceNeeded):
        open_level(level("{{ steps.fetch }}"), Scope({"steps": {"fetch": large}}), Limits())
