from __future__ import annotations

from typing import Any

from worker_stage import Endless, Stage, inputs_of, numbers_without_holes

from noetl_stream.model.events import (
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    LoopStarted,
    StepFailed,
    TaskProcessed,
    TaskStarted,
)
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.messages import Go, LoopProgress, Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.tools.contract import ToolCall, ToolFailure

ACT = """
  tool:
  - name: act
    kind: puppet
    item: "{{ item }}"
    index: "{{ iter.index }}"
    count: "{{ iter.count }}"
"""

SEQUENTIAL = "- step: start\n  loop: {in: '{{ workload.items }}', iterator: item}" + ACT
BEST_EFFORT = (
    "- step: start\n  spec: {policy: {failure: {mode: best_effort}}}\n"
    "  loop: {in: '{{ workload.items }}', iterator: item}" + ACT
)
PARALLEL = (
    "- step: start\n  loop: {in: '{{ workload.items }}', iterator: item, spec: {mode: parallel, exec: local}}" + ACT
)
SUMMING = """
- step: start
  loop: {in: "{{ workload.items }}", iterator: item}
  tool:
  - name: act
    kind: puppet
    total: "{{ ctx.total | default(0) }}"
    seen: "{{ vars.seen | default(0) }}"
    own: "{{ iter.own | default('none') }}"
    spec:
      policy:
        rules:
        - else:
            then:
              do: continue
              set_ctx: {total: "{{ ctx.total | default(0) + item }}"}
              set_vars: {seen: "{{ vars.seen | default(0) + 1 }}"}
              set_iter: {own: "{{ item }}"}
"""

ONE_FAILED = LoopProgress(low=2, ok=1, failed=1, first_error=ErrorInfo("timeout", "too slow", index=1))


def fails_for(item: Any) -> Any:
    async def act(call: ToolCall) -> str:
        if call.inputs["item"] == item:
            raise ToolFailure(ErrorInfo("exception", f"item {item} is bad"))
        return f"done {call.inputs['item']}"

    return act


async def test_a_sequential_loop_runs_its_items_in_order_and_ends_with_loop_done(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=["a", "b"]))
    assert stage.names == [
        "loop.started",
        *["loop.iteration.started", "task.started", "task.processed", "loop.iteration.done"] * 2,
        "loop.done",
    ]
    assert stage.facts[0] == LoopStarted("steprun-1", 2, local=True)
    assert stage.facts[1] == LoopIterationStarted((0,), "worker-1")
    assert stage.facts[-1] == LoopDone("steprun-1", 2, ok=2, failed=0, skipped=0)
    assert [dict(call.inputs) for call in stage.puppet.calls] == [
        {"item": "a", "index": 0, "count": 2},
        {"item": "b", "index": 1, "count": 2},
    ]
    assert await stage.queued() == set()


async def test_task_events_carry_the_path_of_their_iteration(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=["a", "b"]))
    paths = [fact.path for fact in stage.facts if isinstance(fact, TaskStarted | TaskProcessed | LoopIterationDone)]
    assert paths == [(0,)] * 3 + [(1,)] * 3


async def test_an_empty_loop_is_done_at_once(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=[]))
    assert stage.facts == [LoopStarted("steprun-1", 0, local=True), LoopDone("steprun-1", 0, 0, 0, 0)]
    assert len(stage.reports) == 1


async def test_a_fail_fast_loop_stops_at_the_first_failure_and_names_its_index(stage: Stage) -> None:
    stage.puppet.acts["act"] = fails_for("b")
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=["a", "b", "c"]))
    assert inputs_of(stage.puppet.calls, "item") == ["a", "b"]
    assert stage.names[-2:] == ["loop.iteration.failed", "step.failed"]
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed)
    assert (failed.error.kind, failed.error.index, failed.error.task) == ("exception", 1, "act")


async def test_a_best_effort_loop_runs_all_items_and_counts_failures(stage: Stage) -> None:
    stage.puppet.acts["act"] = fails_for("b")
    await stage.start()
    await stage.issue(stage.command(stage.plan(BEST_EFFORT), items=["a", "b", "c"]))
    assert inputs_of(stage.puppet.calls, "item") == ["a", "b", "c"]
    assert [fact.path for fact in stage.facts if isinstance(fact, LoopIterationFailed)] == [(1,)]
    assert stage.facts[-1] == LoopDone("steprun-1", 3, ok=2, failed=1, skipped=0, failed_leaves=1)


async def test_later_iterations_of_a_sequential_loop_see_the_patches_of_earlier_ones(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(SUMMING), items=[1, 2, 3]))
    assert inputs_of(stage.puppet.calls, "total") == [0, 1, 3]
    assert inputs_of(stage.puppet.calls, "seen") == [0, 1, 2]


async def test_values_that_an_iteration_sets_under_iter_are_its_own(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(SUMMING), items=[1, 2]))
    assert inputs_of(stage.puppet.calls, "own") == ["none", "none"]


async def test_a_parallel_local_loop_runs_no_more_at_once_than_it_may(stage: Stage) -> None:
    stage.puppet.acts["act"] = endless = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(PARALLEL), items=list(range(5)), max_in_flight=2))
    assert inputs_of(stage.puppet.calls, "item") == [0, 1]
    endless.release.set()
    await stage.settle(200)
    assert sorted(inputs_of(stage.puppet.calls, "item")) == [0, 1, 2, 3, 4]
    assert stage.facts[-1] == LoopDone("steprun-1", 5, ok=5, failed=0, skipped=0)
    assert numbers_without_holes(stage.reports)


async def test_the_first_failure_cancels_what_runs_beside_it_and_ends_after_it(stage: Stage) -> None:
    bad, endless = fails_for(1), Endless()

    async def act(call: ToolCall) -> Any:
        return await (bad(call) if call.inputs["item"] == 1 else endless(call))

    stage.puppet.acts["act"] = act
    await stage.start()
    await stage.issue(stage.command(stage.plan(PARALLEL), items=list(range(5)), max_in_flight=3))
    assert stage.puppet.cancelled == ["act", "act"]
    assert len(stage.puppet.calls) == 3
    assert [fact.path for fact in stage.facts if isinstance(fact, LoopIterationFailed)] == [(1,)]
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.index == 1
    assert await stage.queued() == set()


async def test_an_iteration_of_a_distributed_loop_reports_its_own_start_and_end(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), path=(3,), chain=["d"], counts=[7]))
    assert stage.facts[0] == LoopIterationStarted((3,), "worker-1")
    assert stage.names == ["loop.iteration.started", "task.started", "task.processed", "loop.iteration.done"]
    assert dict(stage.puppet.calls[0].inputs) == {"item": "d", "index": 3, "count": 7}


async def test_a_failed_iteration_of_a_distributed_loop_reports_its_error(stage: Stage) -> None:
    stage.puppet.acts["act"] = fails_for("d")
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), path=(3,), chain=["d"], counts=[7]))
    failed = stage.facts[-1]
    assert isinstance(failed, LoopIterationFailed)
    assert (failed.path, failed.error.kind) == ((3,), "exception")


async def test_a_run_that_takes_over_a_local_loop_runs_what_is_left(stage: Stage) -> None:
    begun = Progress(vars={"seen": 2}, iter={"own": 9})
    go = Go(progress={"2": begun}, loop=LoopProgress(low=2, ok=2), ctx={"total": 3}, vars={"seen": 2})
    await stage.answer_claims(lambda report: go)
    await stage.start()
    await stage.issue(stage.command(stage.plan(SUMMING), items=[1, 2, 3, 4], issue=2))
    assert inputs_of(stage.puppet.calls, "total") == [3, 6]
    assert inputs_of(stage.puppet.calls, "seen") == [2, 3]
    assert inputs_of(stage.puppet.calls, "own") == [9, "none"]
    assert "loop.started" not in stage.names
    assert stage.facts[-1] == LoopDone("steprun-1", 4, ok=4, failed=0, skipped=0)


async def test_a_run_that_takes_over_a_loop_of_which_nothing_was_recorded_begins_it(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go(loop=LoopProgress()))
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=["a"], issue=2))
    assert stage.names[:3] == ["step.claimed", "loop.started", "loop.iteration.started"]


async def test_variables_of_ended_iterations_reach_a_run_that_takes_over_between_two(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go(loop=LoopProgress(low=1, ok=1), ctx={"total": 1}, vars={"seen": 1}))
    await stage.start()
    await stage.issue(stage.command(stage.plan(SUMMING), items=[1, 2], issue=2))
    assert inputs_of(stage.puppet.calls, "seen") == [1]


async def test_a_run_that_takes_over_in_the_middle_of_an_iteration_continues_in_it(stage: Stage) -> None:
    two_tasks = SEQUENTIAL + "  - {name: after, kind: puppet, act: '{{ act }}'}\n"
    begun = Progress(task="after", runs=1, previous="act", results={"act": Outcome("ok", payload_of("before"))})
    await stage.answer_claims(lambda report: Go(progress={"0": begun}, loop=LoopProgress()))
    await stage.start()
    await stage.issue(stage.command(stage.plan(two_tasks), items=["a"], issue=2))
    assert [(call.task, call.inputs.get("act")) for call in stage.puppet.calls] == [("after", "before")]


async def test_a_run_that_takes_over_a_broken_fail_fast_loop_only_ends_it(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go(loop=ONE_FAILED))
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=["a", "b", "c"], issue=2))
    assert stage.puppet.calls == []
    assert stage.facts[-1] == StepFailed("steprun-1", ErrorInfo("timeout", "too slow", index=1))


async def test_a_run_that_takes_over_a_best_effort_loop_keeps_its_failures(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go(loop=ONE_FAILED))
    await stage.start()
    await stage.issue(stage.command(stage.plan(BEST_EFFORT), items=["a", "b", "c"], issue=2))
    assert inputs_of(stage.puppet.calls, "item") == ["c"]
    assert stage.facts[-1] == LoopDone("steprun-1", 3, ok=2, failed=1, skipped=0)


async def test_a_run_that_takes_over_an_iteration_of_a_distributed_loop_continues_in_it(stage: Stage) -> None:
    two_tasks = SEQUENTIAL + "  - {name: after, kind: puppet, act: '{{ act }}'}\n"
    begun = Progress(task="after", runs=1, previous="act", results={"act": Outcome("ok", payload_of("before"))})
    await stage.answer_claims(lambda report: Go(progress={"3": begun}))
    await stage.start()
    await stage.issue(stage.command(stage.plan(two_tasks), path=(3,), chain=["d"], counts=[7], issue=2))
    assert [(call.task, call.inputs.get("act")) for call in stage.puppet.calls] == [("after", "before")]


async def test_an_iteration_that_takes_over_begins_with_the_variables_of_its_step_run(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go(vars={"seen": 5}))
    await stage.start()
    await stage.issue(stage.command(stage.plan(SUMMING), path=(3,), chain=[1], counts=[7], issue=2))
    assert inputs_of(stage.puppet.calls, "seen") == [5]


async def test_nothing_takes_the_place_of_the_loops_own_names(stage: Stage) -> None:
    await stage.answer_claims(lambda report: Go(progress={"0": Progress(iter={"item": "forged", "index": 99})}))
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=["a"], issue=2))
    assert dict(stage.puppet.calls[0].inputs) == {"item": "a", "index": 0, "count": 1}


async def test_a_long_local_loop_lets_other_commands_run(stage: Stage) -> None:
    await stage.start()
    noop = stage.plan("- step: start\n  tool: {kind: noop}\n")
    plan = stage.plan(SEQUENTIAL)
    long, short = stage.command(plan, items=list(range(2_000))), stage.command(noop, "short", step_run_id="steprun-2")
    await stage.issue(long)
    await stage.issue(short)
    await stage.until(lambda: "step.done" in stage.names)
    assert "loop.done" not in stage.names
    await stage.until(lambda: stage.names[-1:] == ["loop.done"])
