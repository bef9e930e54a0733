from __future__ import annotations

from typing import Any

import pytest

from noetl_stream.engine.opening import Opened, open_level
from noetl_stream.model.limits import Limits
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.reference import Payload, Reference
from noetl_stream.playbook.plan import LoopPlan
from noetl_stream.template import ReferenceNeeded, ResultView, Scope, compile_template

SEEN = frozenset({"workload", "steps"})


def level(items: Any, window: Any = 10, mode: Any = "parallel") -> LoopPlan:
    compiled = [compile_template(source, namespaces=SEEN, bindings={}) for source in (items, window)]
    return LoopPlan(compiled[0], "item", mode, "local", "fail_fast", compiled[1])


def opened(items: Any, window: Any = 10, mode: Any = "parallel", **limits: int) -> Opened | ErrorInfo:
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
    assert opened(items) == Opened(expected, 10)


@pytest.mark.parametrize("items", ["{{ workload.text }}", "{{ workload.none }}", "{{ 3 }}", "{{ workload.missing }}"])
def test_anything_else_cannot_be_run_over(items: str) -> None:
    error = opened(items)
    assert isinstance(error, ErrorInfo) and error.kind == "expression_error"


def test_a_level_in_order_runs_one_at_a_time_whatever_its_window_says() -> None:
    assert opened([1, 2, 3], "{{ workload.missing }}", "sequential") == Opened([1, 2, 3], 1)


def test_the_window_may_be_a_template_and_never_exceeds_its_limit() -> None:
    assert opened([1], "{{ workload.list | length }}") == Opened([1], 2)
    assert opened([1], 5_000) == Opened([1], 1_000)


@pytest.mark.parametrize("window", [0, "{{ -1 }}", "{{ 1.5 }}", "{{ true }}", "{{ 'two' }}"])
def test_a_window_that_is_no_whole_number_from_one_is_an_error(window: Any) -> None:
    error = opened([1], window)
    assert isinstance(error, ErrorInfo) and error.kind == "expression_error"
    assert "max_in_flight" in error.message


def test_items_over_the_limit_are_an_error_that_names_it() -> None:
    error = opened(["{{ workload.text }}"], max_loop_items_bytes=3)
    assert isinstance(error, ErrorInfo) and error.kind == "limit_exceeded"
    assert "limits.max_loop_items_bytes" in error.message


def test_items_that_are_known_are_not_evaluated_again() -> None:
    assert open_level(level("{{ workload.gone }}"), Scope({"workload": {}}), Limits(), [7]) == Opened([7], 10)


def test_a_result_kept_by_reference_is_asked_for() -> None:
    large = ResultView(Outcome("ok", Payload(reference=Reference("nats", "some/key", 100))))
    with pytest.raises(ReferenceNeeded):
        open_level(level("{{ steps.fetch }}"), Scope({"steps": {"fetch": large}}), Limits())
