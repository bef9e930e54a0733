"""LANGUAGE §6: what `in` reads or gives may be too much for the server: a worker pages it out."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from engine_scenarios import limits, started
from journal_laws import check_journal

from noetl_stream.engine.decide.loops import PAGE_BYTES
from noetl_stream.engine.state import LoopState
from noetl_stream.model.events import (
    LoopDone,
    LoopIterationFailed,
    LoopPagedOut,
    LoopStarted,
    ReferenceAwaited,
    StepCancelled,
    StepFailed,
    StepScheduled,
)
from noetl_stream.model.json.codec import encode
from noetl_testkit.scenario.scenario import Scenario

PLACES = ["mode: sequential", "mode: parallel", "mode: parallel, exec: local", "mode: sequential, exec: distributed"]
ROWS: list[dict[str, Any]] = [{"n": n, "cells": [10 * n, 10 * n + 1]} for n in range(3)]
LARGE: dict[str, Any] = {"rows": ROWS, "name": "x"}


def over(
    spec: str = "mode: parallel", items: str = "{{ fetch.rows }}", result: Any = LARGE, inner: str = "", **most: int
) -> Scenario:
    """A step `each` that loops over a result too large for the server, as its paging command is owed."""
    value = '["{{ iter.parent.index }}", "{{ cell }}"]' if inner else '"{{ [row, iter.index, iter.count] }}"'
    level = f"\n    loop: {inner}" if inner else ""
    scenario = started(
        f"""
- step: fetch
  tool: {{kind: noop}}
  next: {{arcs: [{{step: each}}]}}
- step: each
  loop:
    in: "{items}"
    iterator: row
    spec: {{{spec}}}{level}
  tool: {{kind: noop, args: {{saw: {value}}}}}
  next: {{arcs: [{{step: rescue, when: "{{{{ event.error is not none }}}}"}}]}}
- step: rescue
  tool: {{kind: noop}}
""",
        limits(**{"max_resolve_bytes": 30} | most),
    )
    scenario.objects.takes = lambda data: len(data) > 60
    scenario.done("fetch", result)
    return scenario


def work_off(scenario: Scenario) -> None:
    """Runs what is owed and looks into what must be, until nothing is left."""
    while scenario.execution.assignments or scenario.execution.awaited is not None:
        if scenario.execution.awaited is not None:
            scenario.look_into()
        else:
            step, index = scenario.working[-1]
            scenario.done(step, index=index)


def loop_of(scenario: Scenario) -> LoopState:
    (run,) = scenario.execution.runs.values()
    assert run.loop is not None
    return run.loop


# --- one level --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", PLACES)
def test_a_loop_over_a_result_too_large_for_the_server_is_paged_by_a_worker(spec: str) -> None:
    scenario = over(spec)
    assert scenario.working == [("each", None)] and scenario.execution.awaited is None
    assert scenario.take("each").command.paging
    scenario.done("each")
    (paged,) = scenario.facts(LoopPagedOut)
    assert paged.count == 3 and [(page.first, page.count) for page in paged.pages] == [(0, 3)]
    work_off(scenario)
    assert scenario.result == [{"saw": [row, index, 3]} for index, row in enumerate(ROWS)]
    assert [fact.count for fact in scenario.facts(LoopStarted)] == [3]
    assert scenario.facts(ReferenceAwaited) == []
    check_journal(scenario)


@pytest.mark.parametrize("spec", PLACES)
def test_the_fold_holds_counts_and_pages_and_no_item(spec: str) -> None:
    scenario = over(spec)
    scenario.done("each")
    loop = loop_of(scenario)
    assert (loop.items, loop.count, [page.count for page in loop.pages]) == ([], 3, [3])
    assert not any(fact.items for fact in scenario.facts(LoopStarted))
    assert not any(fact.items for fact in scenario.facts(StepScheduled))
    assert scenario.replayed() == scenario.state


def test_items_fill_pages_in_order_and_each_iteration_gets_its_place() -> None:
    rows = [{"n": n, "text": "x" * 100_000} for n in range(5)]
    scenario = over(result={"rows": [*rows, {"n": 5, "text": "x" * 2 * PAGE_BYTES}, {"n": 6, "text": ""}]})
    scenario.done("each")
    (paged,) = scenario.facts(LoopPagedOut)
    assert [(page.first, page.count) for page in paged.pages] == [(0, 2), (2, 2), (4, 1), (5, 1), (6, 1)]
    assert [page.reference.size <= PAGE_BYTES for page in paged.pages] == [True, True, True, False, True]
    for n in range(7):
        command = scenario.take("each", index=n).command
        place = command.places[0]
        assert command.chain == [None] and scenario.objects[place.page.key][place.index]["n"] == n
        assert len(encode(command)) < 2_000


def test_a_local_loop_gets_its_pages_without_items() -> None:
    scenario = over("mode: sequential")
    scenario.done("each")
    command = scenario.take("each").command
    assert not command.paging and command.items == [] and [page.count for page in command.pages] == [3]


def test_a_paging_command_carries_only_what_in_and_the_window_read() -> None:
    scenario = started(
        """
        - step: fetch
          tool: {kind: noop}
          next: {arcs: [{step: each}]}
        - step: each
          loop:
            in: "{{ fetch.rows[:workload.most] }}"
            iterator: row
            spec: {mode: parallel, max_in_flight: "{{ ctx.window }}"}
          tool: {kind: noop, args: {saw: "{{ workload.other }}"}}
        """,
        limits(max_resolve_bytes=30),
        workload={"most": 2, "other": "o"},
        ctx={"window": 1, "beside": 2},
    )
    scenario.objects.takes = lambda data: True
    scenario.done("fetch", LARGE)
    command = scenario.take("each").command
    assert (command.workload, command.ctx, list(command.steps)) == ({"most": 2}, {"window": 1}, ["fetch"])
    scenario.done("each")
    assert scenario.working == [("each", 0)] and loop_of(scenario).count == 2
    assert scenario.take("each", index=0).command.workload == {"other": "o"}


@pytest.mark.parametrize("spec", PLACES)
def test_a_list_too_long_for_the_server_is_paged_too_although_what_it_is_made_of_is_small(spec: str) -> None:
    items = "{{ range(40) | list }}"
    scenario = over(spec, items, result=None, max_loop_items_bytes=30)
    assert scenario.take("each").command.paging
    scenario.done("each")
    work_off(scenario)
    assert [one["saw"][0] for one in scenario.result] == list(range(40))


@pytest.mark.parametrize("spec", PLACES)
def test_a_mapping_gives_its_entries_and_nothing_gives_an_empty_loop(spec: str) -> None:
    scenario = over(spec, "{{ fetch.map }}", {"map": {"a": 1, "b": 2}, "more": "x" * 60})
    scenario.done("each")
    work_off(scenario)
    assert [one["saw"][0] for one in scenario.result] == [{"key": "a", "value": 1}, {"key": "b", "value": 2}]
    scenario = over(spec, "{{ fetch.rows }}", {"rows": [], "more": "x" * 60})
    scenario.done("each")
    assert scenario.facts(LoopDone) == [LoopDone(scenario.facts(LoopDone)[0].step_run_id, 0, 0, 0, 0)]
    assert (scenario.status, scenario.result) == ("completed", [])


@pytest.mark.parametrize("items", ["{{ fetch.name }}", "{{ fetch.rows.missing }}", "{{ fetch.rows[0].n }}"])
def test_an_in_that_cannot_be_evaluated_there_fails_the_step_and_is_routed(items: str) -> None:
    scenario = over(items=items)
    scenario.done("each")
    (failed,) = scenario.facts(StepFailed)
    assert failed.error.kind == "expression_error" and "loop" in failed.error.message
    assert scenario.working == [("rescue", None)]


def test_more_pages_than_a_loop_may_have_are_an_error_that_names_the_limit() -> None:
    scenario = over(result={"rows": ["x" * PAGE_BYTES] * 3}, max_loop_pages=2)
    scenario.done("each")
    (failed,) = scenario.facts(StepFailed)
    assert failed.error.kind == "limit_exceeded" and "limits.max_loop_pages is 2" in failed.error.message


# --- many levels ------------------------------------------------------------------------------------------------------

NESTED = [(outer, inner) for outer, inner in product(PLACES, PLACES) if not ("local" in outer and "distr" in inner)]
FAR_LARGER: dict[str, Any] = {**LARGE, "more": "x" * 400}


def nested(outer: str, inner: str, most: int) -> Scenario:
    level = f"{{in: '{{{{ row.cells }}}}', iterator: cell, spec: {{{inner}}}}}"
    return over(outer, inner=level, result=FAR_LARGER, max_resolve_bytes=most)


@pytest.mark.parametrize("most", [30, 150], ids=["a page is too large, too", "the server looks into the page"])
@pytest.mark.parametrize(("outer", "inner"), NESTED)
def test_levels_inside_a_paged_one_see_its_items_wherever_they_run(outer: str, inner: str, most: int) -> None:
    scenario = nested(outer, inner, most)
    assert scenario.take("each").command.paging
    work_off(scenario)
    assert scenario.result == [[{"saw": [n, cell]} for cell in row["cells"]] for n, row in enumerate(ROWS)]
    assert scenario.names.count("reference.awaited") <= 1
    check_journal(scenario)


def test_the_server_reads_a_page_once_for_its_iterations() -> None:
    scenario = nested("mode: parallel", "mode: parallel", 150)
    scenario.done("each")
    assert scenario.working == []
    scenario.look_into()
    assert scenario.working == [("each", (n, m)) for n in range(3) for m in range(2)]
    assert len(scenario.facts(ReferenceAwaited)) == len(scenario.facts(LoopPagedOut)) == 1


@pytest.mark.parametrize(("outer", "inner"), NESTED)
def test_a_level_inside_may_be_the_one_that_is_paged(outer: str, inner: str) -> None:
    level = f"{{in: '{{{{ fetch.rows }}}}', iterator: cell, spec: {{{inner}}}}}"
    scenario = over(outer, "{{ [7, 8] }}", FAR_LARGER, level, max_loop_items_bytes=40)
    work_off(scenario)
    assert scenario.result == [[{"saw": [n, row]} for row in ROWS] for n in range(2)]
    by_server, by_worker = scenario.facts(LoopPagedOut), scenario.facts(LoopStarted)
    assert len(by_server) + sum(bool(fact.pages) for fact in by_worker) == 2
    assert not any(fact.items for fact in by_worker if fact.path)
    check_journal(scenario)


def test_an_iteration_that_is_paged_holds_its_place_in_the_window() -> None:
    scenario = nested("mode: parallel, max_in_flight: 2", "mode: parallel", 30)
    scenario.done("each")
    assert scenario.working == [("each", 0), ("each", 1)]
    command = scenario.take("each", index=1).command
    assert command.paging and command.places[0].index == 1
    scenario.done("each", index=1)
    assert scenario.working == [("each", 0), ("each", (1, 0)), ("each", (1, 1))]


def test_an_inner_in_that_cannot_be_evaluated_there_fails_the_iteration_around_it() -> None:
    scenario = nested("mode: parallel, policy: {failure: {mode: best_effort}}", "mode: parallel", 30)
    scenario.objects.takes = lambda data: False
    scenario.done("each")
    page = scenario.objects[scenario.take("each", index=0).command.places[0].page.key]
    del page[1]["cells"]
    work_off(scenario)
    (failed,) = scenario.facts(LoopIterationFailed)
    assert failed.path == (1,) and failed.error.kind == "expression_error"
    assert scenario.result[1] is None and len(scenario.result[2]) == 2


# --- what may happen meanwhile ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", PLACES)
def test_two_workers_that_page_the_same_loop_open_it_once(spec: str) -> None:
    scenario = over(spec)
    first, second = scenario.take("each"), scenario.take("each")
    scenario.claim(second)
    first.begin()
    assert scenario.facts(LoopPagedOut) == []
    second.begin()
    working = scenario.working
    first.begin()
    assert scenario.working == working and len(scenario.facts(LoopPagedOut)) == 1
    work_off(scenario)
    assert [one["saw"][1] for one in scenario.result] == [0, 1, 2]


def test_a_paging_command_is_issued_again_like_any_other() -> None:
    scenario = over()
    assignment = scenario.owed("each")
    scenario.issue_again(assignment)
    again = scenario.take("each").command
    assert (again.command_id, again.issue, again.paging) == (assignment.command_id, 2, True)


@pytest.mark.parametrize("spec", PLACES)
def test_a_loop_that_was_paged_while_the_execution_is_paused_starts_when_it_continues(spec: str) -> None:
    scenario = over(spec)
    run = scenario.take("each")
    scenario.pause()
    run.finish()
    assert scenario.working == [] and scenario.facts(LoopStarted) == []
    scenario.take_over()
    scenario.resume()
    work_off(scenario)
    assert len(scenario.result) == 3
    check_journal(scenario)


def test_cancelling_ends_the_paging() -> None:
    scenario = over()
    run = scenario.take("each")
    scenario.claim(run)
    scenario.cancel()
    run.stop()
    assert scenario.status == "cancelled"
    check_journal(scenario)


@pytest.mark.parametrize("reported", [True, False], ids=["told in time", "told too late"])
def test_a_failure_cancels_the_paging_beside_it(reported: bool) -> None:
    scenario = over(inner="{in: '{{ row.cells }}', iterator: cell, spec: {mode: parallel}}")
    scenario.done("each")
    first, second, third = (scenario.take("each", index=index) for index in range(3))
    scenario.claim(second)
    del scenario.objects[first.command.places[0].page.key][0]["cells"]
    first.finish()
    cancelled = [fact.command_id for fact in scenario.facts(StepCancelled)]
    assert cancelled == [second.command.command_id, third.command.command_id]
    if reported:
        second.stop()
    else:
        second.finish()
    (failed,) = scenario.facts(StepFailed)
    assert failed.error.index == 0 and scenario.working == [("rescue", None)]


def test_the_time_of_a_step_runs_while_it_is_paged() -> None:
    scenario = started(
        """
        - step: fetch
          tool: {kind: noop}
          next: {arcs: [{step: each}]}
        - step: each
          spec: {policy: {lifecycle: {timeout_s: 60}}}
          loop: {in: "{{ fetch.rows }}", iterator: row, spec: {mode: parallel}}
          tool: {kind: noop}
        """,
        limits(max_resolve_bytes=30),
    )
    scenario.objects.takes = lambda data: True
    scenario.done("fetch", LARGE)
    scenario.take("each", sink=lambda recorded: scenario.feed(recorded) if recorded.number == 0 else None).begin()
    scenario.wait(60)
    assert [fact.error.kind for fact in scenario.facts(StepFailed)] == ["timeout"]


# --- what one fact leads to -------------------------------------------------------------------------------------------


def test_inner_loops_over_nothing_are_opened_by_workers_when_one_fact_has_led_to_many() -> None:
    """However many there are, what follows from one fact has an end, and the result is the same."""
    count, at_once = 300, 20
    scenario = started(
        f"""
        - step: start
          loop:
            in: "{{{{ range({count}) | list }}}}"
            iterator: n
            spec: {{mode: parallel}}
            loop: {{in: "{{{{ [n] if n % 100 == 99 else [] }}}}", iterator: m, spec: {{mode: parallel}}}}
          tool: {{kind: noop, args: {{m: "{{{{ m }}}}"}}}}
        """,
        limits(max_decisions_per_fact=at_once),
    )
    longest = len(scenario.journal)
    while scenario.execution.assignments:
        before = len(scenario.journal)
        step, index = scenario.working[0]
        scenario.done(step, index=index)
        longest = max(longest, len(scenario.journal) - before)
    assert scenario.result == [[{"m": n}] if n % 100 == 99 else [] for n in range(count)]
    assert longest < 4 * at_once
    check_journal(scenario)
