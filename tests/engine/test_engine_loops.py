"""LANGUAGE §6, single level: what loops run over, how many at once, how they end, what they give."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from engine_scenarios import started

from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopStarted,
    NextEvaluated,
    StepCancelled,
    StepFailed,
    StepScheduled,
    TaskProcessed,
)
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload, Reference
from noetl_testkit.scenario.scenario import Scenario

PARALLEL = "mode: parallel"
DISTRIBUTED = "mode: sequential, exec: distributed"
TOGETHER_LOCALLY = "mode: parallel, exec: local"
BEST = ", policy: {failure: {mode: best_effort}}"


def loop(
    items: str = "[10, 20, 30]", spec: str = PARALLEL, arcs: str = "", root: str = "", policy: str = "", **start: Any
) -> Scenario:
    """A step that loops over ``items``, then arcs to ``after`` or ``rescue``; started."""
    task = f", spec: {{policy: {{rules: [{policy}]}}}}" if policy else ""
    routing = f"\n  next: {{arcs: [{arcs}]}}" if arcs else ""
    return started(
        f"""
- step: start
  loop: {{in: {items}, iterator: item, spec: {{{spec}}}}}
  tool: {{name: work, kind: noop, args: {{item: "{{{{ item }}}}"}}{task}}}{routing}
- step: after
  tool: {{kind: noop}}
- step: rescue
  tool: {{kind: noop}}
""",
        root,
        **start,
    )


# --- where it runs ----------------------------------------------------------------------------------------------------


def test_a_sequential_loop_is_one_command_for_one_worker() -> None:
    scenario = loop(spec="mode: sequential")
    assert scenario.working == [("start", None)]
    command = scenario.take("start").command
    assert (command.items, command.max_in_flight) == ([10, 20, 30], 1)


def test_a_loop_is_sequential_by_default() -> None:
    assert loop(spec="").working == [("start", None)]


def test_a_parallel_loop_is_one_command_an_iteration() -> None:
    scenario = loop()
    assert scenario.working == [("start", 0), ("start", 1), ("start", 2)]
    command = scenario.take("start", index=1).command
    assert (command.chain, command.path, command.counts, command.items) == ([20], (1,), [3], None)


def test_a_sequential_loop_can_be_distributed_then_each_iteration_waits_for_the_one_before() -> None:
    scenario = loop(spec=DISTRIBUTED)
    for index in range(3):
        assert scenario.working == [("start", index)]
        scenario.done("start", index=index)
    assert scenario.status == "completed"


def test_a_parallel_loop_can_be_local_then_its_command_says_how_many_at_once() -> None:
    scenario = loop(spec=TOGETHER_LOCALLY + ", max_in_flight: 2")
    assert scenario.working == [("start", None)]
    assert scenario.take("start").command.max_in_flight == 2


# --- how many at once -------------------------------------------------------------------------------------------------


def test_ten_iterations_are_in_flight_at_once_unless_it_is_written() -> None:
    scenario = loop(items='"{{ range(12) | list }}"')
    assert len(scenario.working) == 10


def test_iterations_in_flight_never_exceed_max_in_flight_and_the_next_starts_when_one_ends() -> None:
    scenario = loop(spec=PARALLEL + ", max_in_flight: 2")
    assert scenario.working == [("start", 0), ("start", 1)]
    scenario.done("start", index=1)
    assert scenario.working == [("start", 0), ("start", 2)]


def test_max_in_flight_may_be_a_template() -> None:
    scenario = loop(spec=PARALLEL + ', max_in_flight: "{{ workload.width }}"', root="workload: {width: 2}\n")
    assert scenario.facts(LoopStarted)[0].max_in_flight == 2
    assert len(scenario.working) == 2


@pytest.mark.parametrize("width", [0, -1, 1.5, "two", True, None])
def test_a_max_in_flight_that_is_not_a_whole_number_from_one_fails_the_step(width: object) -> None:
    root = f"workload: {{width: {str(width).lower() if isinstance(width, bool | None) else width}}}\n"
    root = root.replace("none", "null")
    scenario = loop(spec=PARALLEL + ', max_in_flight: "{{ workload.width }}"', root=root)
    assert scenario.error.kind == "expression_error" and "max_in_flight" in scenario.error.message


def test_the_operators_limit_bounds_max_in_flight() -> None:
    root = "executor: {spec: {policy: {limits: {max_in_flight: 2}}}}\n"
    assert len(loop(spec=PARALLEL + ', max_in_flight: "{{ 3 }}"', root=root).working) == 2


# --- what it runs over ------------------------------------------------------------------------------------------------


def test_a_mapping_gives_items_of_key_and_value() -> None:
    scenario = loop(items='"{{ workload.pairs }}"', root="workload: {pairs: {a: 1, b: 2}}\n")
    items = [{"key": "a", "value": 1}, {"key": "b", "value": 2}]
    assert [scenario.take("start", index=index).command.chain for index in range(2)] == [[item] for item in items]


@pytest.mark.parametrize("value", ['"text"', "7", "null", "true"])
@pytest.mark.parametrize("spec", [PARALLEL, "mode: sequential"])
def test_a_value_of_in_that_is_no_list_or_mapping_fails_the_step(value: str, spec: str) -> None:
    scenario = loop(items='"{{ workload.items_ }}"', spec=spec, root=f"workload: {{items_: {value}}}\n")
    assert scenario.error.kind == "expression_error" and "must be a list or a mapping" in scenario.error.message
    assert scenario.facts(LoopStarted) == scenario.facts(StepScheduled) == []


TABLE = {
    "key": "e/c/1.1.n/0/parts-1",
    "size": 9,
    "checksum": "sha256:0",
    "seal": "AAAA",
    "columns": [{"name": "id", "type": "BIGINT"}],
    "rows": 2_500,
}


@pytest.mark.parametrize("spec", [PARALLEL, "mode: sequential"])
def test_a_table_gives_parts_of_so_many_rows(spec: str) -> None:
    scenario = loop('"{{ ctx.rows | batch(1000) }}"', spec, ctx={"rows": TABLE})
    parts = [{**TABLE, "first": first, "rows": rows} for first, rows in ((0, 1_000), (1_000, 1_000), (2_000, 500))]
    command = scenario.take("start", index=0 if spec == PARALLEL else None).command
    given = command.chain if spec == PARALLEL else command.items
    assert given == (parts[:1] if spec == PARALLEL else parts)


@pytest.mark.parametrize("path", ["ctx.rows", "[ctx.rows][0]"])
def test_a_table_itself_has_no_items(path: str) -> None:
    scenario = loop(f'"{{{{ {path} }}}}"', ctx={"rows": TABLE})
    assert "must be a list or a mapping, not the table; `| batch(1000)` makes tables of" in scenario.error.message


def test_an_in_that_cannot_be_evaluated_fails_the_step_and_that_is_routed() -> None:
    arcs = """{step: rescue, when: "{{ event.error.kind == 'expression_error' and event.loop is none }}"}"""
    scenario = loop(items='"{{ ctx.never }}"', arcs=arcs)
    assert scenario.working == [("rescue", None)]
    assert "step.done" not in scenario.names and "loop.done" not in scenario.names


@pytest.mark.parametrize("spec", [PARALLEL, "mode: sequential", DISTRIBUTED, TOGETHER_LOCALLY])
def test_empty_completes_at_once_and_no_worker_is_asked(spec: str) -> None:
    scenario = loop(items="[]", spec=spec, arcs='{step: after, when: "{{ event.loop.count == 0 }}"}')
    assert scenario.working == [("after", None)]
    assert scenario.facts(LoopDone) == [LoopDone(scenario.facts(NextEvaluated)[0].step_run_id, 0, 0, 0, 0)]
    scenario.done("after", "end")
    assert scenario.status == "completed"


def test_in_is_evaluated_once_when_the_loop_starts_by_what_the_step_saw() -> None:
    scenario = loop(items='"{{ ctx.list }}"', spec=PARALLEL + ", max_in_flight: 1", ctx={"list": [1, 2]})
    assert scenario.take("start", index=0).command.counts == [2]
    scenario.done("start", index=0)
    scenario.done("start", index=1)
    assert scenario.result == [{"item": 1}, {"item": 2}]


def test_an_iteration_sees_its_item_its_index_and_the_count() -> None:
    scenario = started(
        """
        - step: start
          loop: {in: [a, b], iterator: letter, spec: {mode: parallel}}
          tool: {kind: noop, args: {saw: ["{{ iter.letter }}", "{{ letter }}", "{{ iter.index }}", "{{ iter.count }}"]}}
        """
    )
    assert scenario.take("start", index=1).inputs == {"args": {"saw": ["b", "b", 1, 2]}}


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_result_is_the_list_of_iteration_results_in_index_order(order: tuple[int, ...]) -> None:
    scenario = loop()
    for index in order:
        scenario.done("start", f"result {index}", index=index)
    assert scenario.result == ["result 0", "result 1", "result 2"]


@pytest.mark.parametrize("spec", [PARALLEL, DISTRIBUTED])
def test_a_distributed_loop_ends_with_one_routed_loop_done_and_never_step_done(spec: str) -> None:
    scenario = loop(spec=spec, arcs="""{step: after, when: "{{ event.name == 'loop.done' }}"}""")
    for index in range(3):
        scenario.done("start", index=index)
    assert scenario.working == [("after", None)]
    assert [fact.event for fact in scenario.facts(NextEvaluated)] == ["loop.done"]
    assert scenario.names.count("loop.done") == 1 and "step.done" not in scenario.names


def test_a_local_loop_ends_with_one_routed_loop_done_of_its_worker() -> None:
    scenario = loop(spec="mode: sequential", arcs="""{step: after, when: "{{ event.loop.ok == 3 }}"}""")
    scenario.done("start")
    assert scenario.working == [("after", None)]
    assert scenario.take("after").command.path == ()
    assert [fact.event for fact in scenario.facts(NextEvaluated)] == ["loop.done"]


@pytest.mark.parametrize("spec", [PARALLEL, DISTRIBUTED, "mode: sequential"])
def test_best_effort_runs_all_and_ends_with_loop_done_whose_counts_add_up(spec: str) -> None:
    counts = "{'count': 3, 'ok': 2, 'failed': 1, 'skipped': 0, 'failed_leaves': 1}"
    guard = f"event.loop == {counts} and event.name == 'loop.done'"
    arcs = f'{{step: after, when: "{{{{ {guard} }}}}", args: {{got: "{{{{ start }}}}"}}}}'
    scenario = loop(spec=spec + BEST, arcs=arcs)
    if spec == "mode: sequential":
        run = scenario.take("start")
        run.answer("zero")
        run.answer(error=ErrorInfo("exception", "it broke"))
        run.answer("two")
    else:
        scenario.done("start", "zero", index=0)
        scenario.failed("start", index=1)
        scenario.done("start", "two", index=2)
    assert scenario.take("after").command.args == {"got": ["zero", None, "two"]}


def test_best_effort_holds_for_a_loop_whose_iterations_all_fail() -> None:
    scenario = loop(spec=PARALLEL + BEST)
    for index in range(3):
        scenario.failed("start", index=index)
    assert (scenario.status, scenario.result) == ("completed", [None, None, None])


def test_fail_fast_is_the_default_starts_no_more_and_cancels_what_is_in_flight() -> None:
    scenario = loop(spec=PARALLEL + ", max_in_flight: 2")
    begun = scenario.take("start", index=0)
    begun.begin()
    scenario.failed("start", "connection", "it hung up", index=1)
    assert scenario.working == [("start", 0)]
    (cancelled,) = scenario.facts(StepCancelled)
    assert cancelled.command_id == begun.command.command_id and cancelled.reason == "iteration 1 failed"
    assert scenario.facts(StepFailed) == []


def test_fail_fast_ends_with_step_failed_when_those_in_flight_have_ended() -> None:
    args = '{loop: "{{ event.loop }}", at: "{{ event.error.index }}"}'
    arcs = f'{{step: rescue, when: "{{{{ event.error is not none }}}}", args: {args}}}'
    scenario = loop(spec=PARALLEL + ", max_in_flight: 2", arcs=arcs)
    begun = scenario.take("start", index=0)
    begun.begin()
    scenario.failed("start", "connection", "it hung up", index=1)
    begun.stop()
    (failed,) = scenario.facts(StepFailed)
    assert (failed.error.kind, failed.error.index) == ("connection", 1)
    assert scenario.take("rescue").command.args == {
        "at": 1,
        "loop": {"count": 3, "ok": 0, "failed": 1, "skipped": 2, "failed_leaves": 1},
    }


def test_the_error_is_that_of_the_first_failure_although_others_fail_after_it() -> None:
    scenario = loop()
    runs = [scenario.take("start", index=index) for index in range(3)]
    for run in runs:
        run.begin()
    runs[2].fail("connection")
    runs[0].fail("exception")
    runs[1].finish()
    assert (scenario.error.kind, scenario.error.index) == ("connection", 2)
    assert [fact.event for fact in scenario.facts(NextEvaluated)] == ["step.failed"]


def test_an_iteration_no_worker_has_begun_is_given_up_at_once() -> None:
    scenario = loop()
    scenario.failed("start", index=1)
    assert scenario.status == "failed"
    assert len(scenario.facts(StepCancelled)) == 2


def test_fail_fast_of_a_local_loop_is_the_workers_step_failed() -> None:
    scenario = loop(spec="mode: sequential")
    run = scenario.take("start")
    run.answer("fine")
    run.answer(error=ErrorInfo("connection", "it hung up"))
    assert run.over
    assert (scenario.error.kind, scenario.error.index) == ("connection", 1)


def test_the_loops_failure_mode_says_nothing_about_an_in_that_fails() -> None:
    scenario = loop(items='"{{ ctx.never }}"', spec=PARALLEL + BEST)
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")


def test_an_iteration_whose_tool_reports_cancelled_unprompted_has_failed() -> None:
    scenario = loop()
    scenario.failed("start", "cancelled", "the other side cancelled it", index=1)
    assert (scenario.status, scenario.error.kind, scenario.error.index) == ("failed", "cancelled", 1)


def test_an_iteration_that_still_succeeds_after_it_was_cancelled_counts_as_ok() -> None:
    arcs = """{step: rescue, when: "{{ event.error is not none }}", args: {loop: "{{ event.loop }}"}}"""
    scenario = loop(arcs=arcs)
    run = scenario.take("start", index=0)
    run.begin()
    scenario.failed("start", index=1)
    run.finish()
    counts = {"count": 3, "ok": 1, "failed": 1, "skipped": 1, "failed_leaves": 1}
    assert scenario.take("rescue").command.args["loop"] == counts


# --- state between iterations -----------------------------------------------------------------------------------------

COUNTING = """{else: {then: {do: continue,
    set_ctx: {sum: "{{ (ctx.sum | default(0)) + item }}"},
    set_vars: {last: "{{ item }}", before: "{{ vars.last | default(0) }}"}}}}"""


@pytest.mark.parametrize("spec", ["mode: sequential", DISTRIBUTED])
def test_ctx_and_vars_pass_from_one_iteration_of_a_sequential_loop_to_the_next(spec: str) -> None:
    arcs = '{step: after, args: {vars: "{{ vars }}"}}'
    scenario = loop(spec=spec, policy=COUNTING, arcs=arcs)
    if spec == DISTRIBUTED:
        for index in range(3):
            scenario.done("start", index=index)
    else:
        scenario.done("start")
    assert scenario.ctx == {"sum": 60}
    assert scenario.take("after").command.args == {"vars": {"last": 30, "before": 20}}


@pytest.mark.parametrize("spec", ["mode: sequential", DISTRIBUTED])
def test_ctx_and_vars_survive_the_worker_between_two_iterations(spec: str) -> None:
    scenario = loop(spec=spec, policy=COUNTING)
    lost = scenario.take("start", index=0 if spec == DISTRIBUTED else None)
    lost.answer()
    again = scenario.take("start", index=1 if spec == DISTRIBUTED else None)
    scenario.claim(again)
    again.finish()
    if spec == DISTRIBUTED:
        scenario.done("start", index=2)
    assert scenario.ctx == {"sum": 60}
    assert scenario.facts(TaskProcessed)[-1].set_vars == {"last": 30, "before": 20}


# --- large and many ---------------------------------------------------------------------------------------------------


def test_the_result_becomes_a_reference_into_the_journal_when_it_is_large() -> None:
    scenario = loop(root="executor: {spec: {policy: {limits: {max_inline_bytes: 100}}}}\n")
    for index in range(3):
        scenario.done("start", "x" * 60, index=index)
    outcome = scenario.execution.outcome
    assert outcome is not None and outcome.result.reference is not None
    assert outcome.result.reference.store == "journal"
    assert outcome.result.reference.key.endswith(scenario.facts(LoopDone)[0].step_run_id)


def test_failed_iterations_count_towards_the_size_of_the_result() -> None:
    items = '"{{ range(30) | list }}"'
    scenario = loop(items, PARALLEL + BEST, root="executor: {spec: {policy: {limits: {max_inline_bytes: 100}}}}\n")
    for index in range(30):
        scenario.failed("start", index=index)
    outcome = scenario.execution.outcome
    assert outcome is not None and outcome.result.reference is not None


def test_one_iteration_kept_by_reference_makes_the_whole_result_one() -> None:
    scenario = loop(items="[1, 2]")
    run = scenario.take("start", index=0)
    run.begin()
    large = Outcome("ok", Payload(reference=Reference("nats", f"{scenario.execution_id}/b/c", 70_000)))
    scenario.feed(RecordedFact(TaskProcessed("work", 1, large, "continue", (0,)), run.run, 1))
    scenario.feed(RecordedFact(LoopIterationDone((0,)), run.run, 2))
    scenario.done("start", 2, index=1)
    outcome = scenario.execution.outcome
    assert outcome is not None and outcome.result.reference is not None
    assert outcome.result.reference.size >= 70_000


def test_a_loop_state_does_not_grow_with_the_iterations_that_have_ended() -> None:
    root = "executor: {spec: {policy: {limits: {max_inline_bytes: 60}}}}\n"
    numbers = {"numbers": list(range(300))}
    scenario = loop('"{{ ctx.numbers }}"', PARALLEL + ", max_in_flight: 4", root=root, ctx=numbers)
    widest = 0
    for index in range(300):
        scenario.done("start", index, index=index)
        for run in scenario.execution.runs.values():
            assert run.loop is not None
            assert run.loop.low == index + 1 and run.loop.done == 0
            widest = max(widest, len(msgspec.structs.asdict(run.loop)["results"] or ()))
    assert widest <= 3 and scenario.status == "completed"


def test_an_iteration_that_ends_early_stays_in_the_window_until_earlier_ones_end() -> None:
    scenario = loop()
    scenario.done("start", index=2)
    (run,) = scenario.execution.runs.values()
    assert run.loop is not None and (run.loop.low, run.loop.done) == (0, 0b100)
    assert [run.loop.has_ended(index) for index in range(3)] == [False, False, True]
    scenario.done("start", index=0)
    (run,) = scenario.execution.runs.values()
    assert run.loop is not None and (run.loop.low, run.loop.done) == (1, 0b10)


def test_a_failed_iteration_is_recorded_with_its_index() -> None:
    scenario = loop(spec=PARALLEL + BEST)
    scenario.failed("start", index=2)
    assert [fact.path for fact in scenario.facts(LoopIterationFailed)] == [(2,)]
    (run,) = scenario.execution.runs.values()
    assert run.loop is not None and run.loop.first_error is not None and run.loop.first_error.index == 2


def test_after_one_result_by_reference_the_state_holds_no_inline_results() -> None:
    scenario = loop()
    scenario.objects.takes = lambda data: data == b'"small"'
    scenario.done("start", "small", index=0)
    scenario.done("start", "inline", index=1)
    (run,) = scenario.execution.runs.values()
    assert run.loop is not None and run.loop.spilled and run.loop.results is None
    scenario.done("start", "last", index=2)
    assert scenario.result == ["small", "inline", "last"]
