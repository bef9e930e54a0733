"""LANGUAGE §6, §10: the journal names the items of a loop, or where they are stored; it holds only short lists."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import limits, started
from journal_laws import check_journal
from msgspec.structs import replace

from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.evolve.worker_facts import form_fault
from noetl_stream.engine.state import Execution, LoopState, RecordedFact
from noetl_stream.model.events import Fact, LoopPaged, LoopPagedOut, LoopStarted, StepScheduled
from noetl_stream.model.json.codec import encode
from noetl_testkit.scenario.scenario import Scenario, rerun

PLACES = ["mode: sequential", "mode: parallel", "mode: parallel, exec: local", "mode: sequential, exec: distributed"]
ROWS = [{"n": n, "text": "y" * 20_000} for n in range(5)]


def over(items: str, spec: str = "mode: parallel", root: str = "", **start: Any) -> Scenario:
    """A step that loops over `items` and says which number each has; started."""
    steps = f"""
- step: start
  loop: {{in: {items}, iterator: row, spec: {{{spec}}}}}
  tool: {{kind: noop, args: {{n: "{{{{ row.n }}}}"}}}}
"""
    return started(steps, root, **start)


def work_off(scenario: Scenario) -> None:
    while scenario.working:
        step, index = scenario.working[-1]
        scenario.done(step, index=index)


def longest_entry(scenario: Scenario) -> int:
    """Bytes of the largest entry of the journal, apart from those that bring `workload` and `ctx` in."""
    bring_in = ("execution.requested", "execution.started", "ctx.patched")
    return max(len(encode(fact)) for fact in scenario.facts(Fact) if fact.event_name() not in bring_in)


@pytest.mark.parametrize("spec", PLACES)
@pytest.mark.parametrize("root", ["workload", "ctx"])
def test_a_list_of_workload_or_ctx_is_named_and_not_copied(spec: str, root: str) -> None:
    scenario = over(f'"{{{{ {root}.data.rows }}}}"', spec, **{root: {"data": {"rows": ROWS}}})
    named = [fact for fact in (*scenario.facts(LoopStarted), *scenario.facts(StepScheduled)) if fact.source]
    assert [fact.source for fact in named] == [[root, "data", "rows"]]
    assert scenario.replayed() == scenario.state
    work_off(scenario)
    assert scenario.result == [{"n": n} for n in range(5)]
    assert longest_entry(scenario) < 1_000 and not scenario.facts(LoopPagedOut)
    check_journal(scenario)


def test_an_item_by_reference_is_read_by_a_bare_name_and_by_an_index_too() -> None:
    workload = {"batches": [[], ROWS]}
    scenario = over('"{{ batches[1] }}"', root="workload: {batches: []}\n", workload=workload)
    assert scenario.facts(LoopStarted)[0].source == ["workload", "batches", 1]
    work_off(scenario)
    assert scenario.result == [{"n": n} for n in range(5)]


def test_the_state_shares_a_named_list_with_ctx() -> None:
    scenario = over('"{{ ctx.rows }}"', ctx={"rows": ROWS})
    (run,) = scenario.execution.runs.values()
    assert run.loop is not None and run.loop.items is scenario.ctx["rows"]


@pytest.mark.parametrize("spec", PLACES)
def test_a_loop_continues_over_its_original_list_when_ctx_changes(spec: str) -> None:
    scenario = over('"{{ ctx.rows }}"', spec, ctx={"rows": ROWS})
    scenario.patch(rows=[])
    assert scenario.ctx["rows"] == []
    work_off(scenario)
    assert scenario.result == [{"n": n} for n in range(5)]
    assert scenario.replayed() == scenario.state


def test_a_level_inside_names_its_list_each_time() -> None:
    scenario = started(
        """
        - step: start
          loop:
            in: [1, 2]
            iterator: n
            spec: {mode: parallel}
            loop: {in: "{{ workload.rows }}", iterator: row, spec: {mode: parallel}}
          tool: {kind: noop, args: {n: "{{ row.n * n }}"}}
        """,
        workload={"rows": ROWS},
    )
    work_off(scenario)
    assert scenario.result == [[{"n": n * m} for n in range(5)] for m in (1, 2)]
    assert [fact.source for fact in scenario.facts(LoopStarted)] == [[], *[["workload", "rows"]] * 2]
    assert longest_entry(scenario) < 1_000


@pytest.mark.parametrize("spec", PLACES)
def test_a_list_that_is_no_value_of_theirs_is_stored_by_a_worker_above_the_limit(spec: str) -> None:
    scenario = over('"{{ ctx.rows | reverse }}"', spec, ctx={"rows": ROWS})
    assert scenario.take("start").command.paging
    scenario.done("start")
    work_off(scenario)
    assert scenario.result == [{"n": n} for n in reversed(range(5))]
    assert longest_entry(scenario) < 1_000 and len(scenario.facts(LoopPagedOut)) == 1
    check_journal(scenario)


@pytest.mark.parametrize("spec", PLACES)
def test_a_list_up_to_the_limit_is_in_the_journal(spec: str) -> None:
    items = [{"n": 0}, {"n": 1}]
    scenario = over("[{n: 0}, {n: 1}]", spec, limits(max_inline_bytes=len(encode(items))))
    held = [fact.items for fact in (*scenario.facts(LoopStarted), *scenario.facts(StepScheduled)) if fact.items]
    assert held == [items]
    beyond = over("[{n: 0}, {n: 1}]", spec, limits(max_inline_bytes=len(encode(items)) - 1))
    assert beyond.take("start").command.paging


def test_a_result_above_the_limit_is_read_by_a_worker_and_not_by_the_server() -> None:
    scenario = started(
        """
        - step: fetch
          tool: {kind: noop}
          next: {arcs: [{step: each}]}
        - step: each
          loop: {in: "{{ fetch.rows }}", iterator: row, spec: {mode: parallel}}
          tool: {kind: noop, args: {n: "{{ row.n }}"}}
        """
    )
    scenario.objects.takes = lambda data: len(data) > 1_000
    scenario.done("fetch", {"rows": ROWS})
    assert scenario.execution.awaited is None and scenario.take("each").command.paging
    work_off(scenario)
    assert scenario.result == [{"n": n} for n in range(5)]
    assert longest_entry(scenario) < 1_500


def test_only_the_server_names_items() -> None:
    """A worker could else read any value of `workload` and `ctx`, as items of its own command."""
    named = LoopStarted("run", 1, source=["workload", "rows"], path=(0,))
    assert "only the server" in form_fault(named)
    assert form_fault(replace(named, items=[1], source=[])) == ""


def test_a_journal_that_holds_all_items_replays_to_the_same_state() -> None:
    """As versions before wrote it: items in `loop.started` and `loop.paged`."""
    scenario = over('"{{ workload.rows }}"', workload={"rows": ROWS})
    state: Execution | None = None
    for recorded, _ in scenario.journal:
        for fact in as_before(recorded.fact):
            state = evolve(state, replace(recorded, fact=fact), scenario.execution_id)
    assert state is not None
    assert state.runs == scenario.execution.runs and state.assignments == scenario.execution.assignments


def test_so_does_the_command_of_a_local_loop() -> None:
    scenario = over('"{{ workload.rows }}"', "mode: sequential", workload={"rows": ROWS})
    state: Execution | None = None
    for recorded, _ in scenario.journal:
        fact = recorded.fact
        if isinstance(fact, StepScheduled):
            fact = replace(fact, source=[], items=ROWS)
        state = evolve(state, RecordedFact(fact, at_ms=recorded.at_ms), scenario.execution_id)
    assert state == scenario.state


def as_before(fact: Fact) -> list[Fact]:
    if not (isinstance(fact, LoopStarted) and fact.source):
        return [fact]
    return [replace(fact, source=[], items=ROWS[:3]), LoopPaged(fact.step_run_id, ROWS[3:])]


def test_a_local_level_inside_stores_its_long_list() -> None:
    scenario = started(
        """
        - step: start
          loop:
            in: [1, 2]
            iterator: n
            loop: {in: "{{ workload.rows }}", iterator: row}
          tool: {kind: noop, args: {n: "{{ row.n * n }}"}}
        """,
        workload={"rows": ROWS},
    )
    work_off(scenario)
    assert scenario.result == [[{"n": n * m} for n in range(5)] for m in (1, 2)]
    assert [bool(fact.pages) for fact in scenario.facts(LoopStarted)] == [False, True, True]
    assert longest_entry(scenario) < 1_000


def test_a_paged_level_keeps_no_item_in_the_state() -> None:
    scenario = over('"{{ ctx.rows | reverse }}"', ctx={"rows": ROWS})
    scenario.done("start")
    (run,) = scenario.execution.runs.values()
    assert isinstance(run.loop, LoopState) and run.loop.items == [] and run.loop.count == 5


@pytest.mark.parametrize("items", ['"{{ ctx.rows }}"', '"{{ ctx.rows | reverse }}"'], ids=["named", "stored"])
def test_a_rerun_evaluates_the_items_of_its_loop_again(items: str) -> None:
    original = over(items, ctx={"rows": ROWS})
    work_off(original)
    again = rerun(original, "start")
    work_off(again)
    assert again.result == original.result
    pages = [page.reference for fact in again.facts(LoopPagedOut) for page in fact.pages]
    assert {page.execution_id for page in pages} <= {again.execution_id}
    check_journal(again)
