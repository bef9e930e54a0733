"""LANGUAGE §6 *Rows*: a worker makes the rows of a loop by a task, and pages out tables of so many rows."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import started

from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    LoopDone,
    LoopIterationDone,
    LoopPagedOut,
    LoopStarted,
    ReferenceAwaited,
    StepFailed,
    StepScheduled,
    TaskProcessed,
)
from noetl_stream.model.json.codec import encode
from noetl_stream.model.outcome import ErrorInfo
from noetl_testkit.scenario.scenario import Scenario, rerun
from noetl_testkit.scenario.scripted_run import ScriptedRun

PLACES = ["mode: parallel", "mode: sequential", "mode: parallel, exec: local", "mode: sequential, exec: distributed"]
TABLE = {
    "key": "e/c/1.1.n/0/parts-1",
    "size": 9,
    "checksum": "sha256:0",
    "seal": "AAAA",
    "columns": [{"name": "id", "type": "BIGINT"}],
    "rows": 25,
}
MADE = {"table": TABLE}
PARTS = [{**TABLE, "first": first, "rows": rows} for first, rows in ((0, 10), (10, 10), (20, 5))]


def over(spec: str = "mode: parallel", rows: str = "", policy: str = "", root: str = "", **request: Any) -> Scenario:
    """A loop over the rows of a query in tables of ten, started; failures lead to ``rescue``."""
    return started(
        f"""
- step: start
  loop:
    rows:
      kind: postgres
      auth: warehouse
      command: select * from orders where id > $since
      params: {{since: "{{{{ workload.since }}}}"}}
      batch: 10{rows}
    iterator: part
    spec: {{{spec}}}
  spec: {{policy: {{lifecycle: {{timeout_s: 60}}}}}}
  tool: {{name: work, kind: noop, args: {{part: "{{{{ part }}}}"}}{policy}}}
  next:
    arcs: [{{step: rescue, when: "{{{{ event.name == 'step.failed' }}}}", args: {{error: "{{{{ event.error }}}}"}}}}]
- step: rescue
  tool: {{kind: noop, args: {{error: "{{{{ args.error }}}}"}}}}
""",
        root,
        workload={"since": 7, **request.pop("workload", {})},
        **request,
    )


def work_off(scenario: Scenario) -> None:
    """Runs what is owed until nothing is left."""
    while scenario.working:
        step, index = scenario.working[-1]
        scenario.done(step, index=index)


@pytest.mark.parametrize("spec", PLACES)
def test_a_worker_makes_the_rows_and_the_loop_runs_over_tables_of_them_in_order(spec: str) -> None:
    scenario = over(spec)
    assert scenario.working == [("start", None)]
    run = scenario.take("start")
    assert run.command.paging and run.command.workload == {"since": 7}
    run.begin()
    assert (run.task, run.path, run.inputs["params"]) == ("rows", (), {"since": 7})
    assert run.inputs["into"] == "table" and "batch" not in run.inputs
    run.answer(MADE)
    assert run.over
    (paged,) = scenario.facts(LoopPagedOut)
    assert paged.count == 3
    work_off(scenario)
    assert scenario.result == [{"part": part} for part in PARTS]
    assert [fact.task for fact in scenario.facts(TaskProcessed)] == ["rows", "work", "work", "work"]
    assert [fact.count for fact in scenario.facts(LoopStarted)] == [3]
    assert scenario.facts(ReferenceAwaited) == []


@pytest.mark.parametrize("spec", PLACES)
def test_the_journal_holds_no_item_and_the_fold_only_pages(spec: str) -> None:
    scenario = over(spec)
    scenario.done("start", MADE)
    (run,) = scenario.execution.runs.values()
    assert run.loop is not None
    assert (run.loop.items, run.loop.count, [page.count for page in run.loop.pages]) == ([], 3, [3])
    assert not any(fact.items for fact in [*scenario.facts(LoopStarted), *scenario.facts(StepScheduled)])
    scenario.take_over()


def test_ten_million_rows_are_ten_thousand_places_in_few_pages() -> None:
    scenario = over(rows="00")
    scenario.done("start", {"table": {**TABLE, "rows": 10_000_000}})
    (paged,) = scenario.facts(LoopPagedOut)
    assert paged.count == 10_000 and len(paged.pages) < 20
    assert len(scenario.facts(StepScheduled)) == 1 + 10, "the window"
    assert sum(len(encode(entry.recorded.fact)) for entry in scenario.journal) < 20_000


def test_no_rows_are_an_empty_loop() -> None:
    scenario = over()
    scenario.done("start", {"table": {**TABLE, "rows": 0}})
    assert [(fact.count, fact.ok) for fact in scenario.facts(LoopDone)] == [(0, 0)]
    assert (scenario.status, scenario.result) == ("completed", [])


def test_the_default_is_a_thousand_rows() -> None:
    scenario = started(
        """
        - step: start
          loop: {rows: {kind: duckdb, command: from range(2500)}, iterator: part}
          tool: {kind: noop, args: {rows: "{{ part.rows }}"}}
        """
    )
    scenario.done("start", {"table": {**TABLE, "rows": 2_500}})
    work_off(scenario)
    assert scenario.result == [{"rows": 1_000}, {"rows": 1_000}, {"rows": 500}]


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_query_that_fails_is_the_failure_of_the_step_which_is_routed() -> None:
    scenario = over()
    scenario.failed("start", "sql", "no such table")
    (failed,) = scenario.facts(StepFailed)
    assert (failed.error.kind, failed.error.task) == ("sql", "rows")
    assert scenario.facts(LoopStarted) == [] and scenario.working == [("rescue", None)]
    scenario.done("rescue")
    assert scenario.result["error"]["kind"] == "sql"


RETRY = "{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 3, delay: %s}}"


def test_its_policy_retries_it_and_sets_what_the_iterations_read() -> None:
    found = '{else: {then: {do: continue, set_ctx: {rows: "{{ outcome.result.table.rows }}"}}}}'
    scenario = over(rows=f"\n      spec: {{policy: {{rules: [{RETRY % 0}, {found}]}}}}")
    run = scenario.take("start")
    run.answer(error=ErrorInfo("connection", "away"))
    assert not run.over and run.next_attempt(()) == ("rows", 2)
    run.answer(MADE)
    assert scenario.ctx == {"rows": 25}
    work_off(scenario)
    assert [part["part"]["first"] for part in scenario.result] == [0, 10, 20]


def test_a_long_delay_of_a_retry_waits_without_a_worker_and_goes_on_with_the_query() -> None:
    scenario = over(rows=f"\n      spec: {{policy: {{rules: [{RETRY % 30}]}}}}")
    scenario.failed("start", "connection", "away")
    assert scenario.suspended == [("start", None)] and scenario.working == []
    scenario.take_over()
    scenario.wait(35)
    assert scenario.take("start").next_attempt(()) == ("rows", 2)
    scenario.done("start", MADE)
    work_off(scenario)
    assert len(scenario.result) == 3


@pytest.mark.parametrize("result", [{"rows": []}, {"table": None}])
def test_what_is_no_table_fails_the_step(result: Any) -> None:
    scenario = over()
    scenario.done("start", result)
    (failed,) = scenario.facts(StepFailed)
    assert failed.error.kind == "expression_error" and failed.error.message.startswith("loop: ")


def test_a_timeout_of_the_step_counts_the_query() -> None:
    scenario = over()
    scenario.take("start").begin()
    scenario.wait(61)
    assert [fact.error.kind for fact in scenario.facts(StepFailed)] == ["timeout"]
    assert scenario.working == [("rescue", None)]


def test_a_cancel_stops_the_query() -> None:
    scenario = over()
    run = scenario.take("start")
    run.begin()
    scenario.cancel()
    run.stop()
    assert scenario.status == "cancelled" and scenario.facts(LoopPagedOut) == []


def test_a_rerun_of_the_step_asks_again() -> None:
    scenario = over()
    scenario.done("start", MADE)
    work_off(scenario)
    again = rerun(scenario, "start")
    assert again.take("start").command.paging
    again.done("start", {"table": {**TABLE, "rows": 3}})
    work_off(again)
    assert [one["part"]["rows"] for one in again.result] == [3]


def test_a_loop_whose_query_ran_is_undone_as_a_whole_and_one_whose_query_failed_is_not() -> None:
    steps = """
- step: start
  loop: {rows: {kind: duckdb, command: from range(9)}, iterator: part}
  spec: {policy: {compensation: {tool: {kind: noop, args: {undone: "{{ steps.start }}"}}}}}
  tool: {kind: noop, args: {rows: "{{ part.rows }}"}}
  next: {arcs: [{step: fails}]}
- step: fails
  tool: {kind: noop}
"""
    scenario = started(steps)
    scenario.done("start", MADE)
    scenario.done("start")
    scenario.failed("fails")
    assert scenario.working == [("start__compensation", None)]
    assert scenario.take("start__compensation").inputs["args"] == {"undone": [{"rows": 25}]}
    scenario = started(steps)
    scenario.failed("start")
    assert scenario.status == "failed"


# --- crashes ----------------------------------------------------------------------------------------------------------


ENDS = (LoopPagedOut, StepFailed, LoopDone, LoopIterationDone)
"""They are in one report with the last task before them."""


class Died(Exception):
    """The worker dies before this report."""


def reporting(scenario: Scenario, most: int) -> Any:
    """Passes so many reports on; before the next one the worker dies."""
    left = iter(range(most))

    def report(recorded: RecordedFact) -> None:
        if not isinstance(recorded.fact, ENDS) and next(left, None) is None:
            raise Died
        scenario.feed(recorded)

    return report


@pytest.mark.parametrize("spec", PLACES)
def test_a_worker_that_dies_at_any_report_makes_the_loop_run_over_one_table(spec: str) -> None:
    died = 0
    for most in range(50):
        scenario, number, deaths = over(spec), 0, 0
        while scenario.working:
            step, index = scenario.working[0]
            number += 1
            made = {"table": {**TABLE, "key": f"e/c/1.{number}.n/0/parts-1"}}
            run: ScriptedRun = scenario.take(step, index=index, sink=reporting(scenario, 1_000 if deaths else most))
            scenario.take_over()
            try:
                scenario.claim(run)
                if not run.over:
                    run.finish(made if run.command.paging else {"key": run.inputs["args"]["part"]["key"]})
            except Died:
                deaths += 1
        assert len(scenario.facts(LoopPagedOut)) == 1, most
        ok = [fact for fact in scenario.facts(TaskProcessed) if fact.task == "rows"]
        assert len(ok) == 1 and len(scenario.result) == 3, most
        assert len({one["key"] for one in scenario.result}) == 1, "all parts are of one table"
        died += deaths
        if not deaths:
            break
    assert died > 3
