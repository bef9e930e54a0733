from __future__ import annotations

import asyncio
from typing import Any

from worker_stage import Endless, Stage, inputs_of

from noetl_stream.engine.runner.runner import MAX_WAITS_BYTES
from noetl_stream.model.events import (
    ChildCall,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopIterationStarted,
    StepFailed,
    TaskProcessed,
    Wait,
)
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.messages import Go, LoopProgress, Progress, StepCommand
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.tools.contract import ToolCall, ToolFailure
from noetl_stream.worker.child_playbooks import PinnedPlaybook

TASKS = """
  tool:
  - name: before
    kind: puppet
    item: "{{ item }}"
    spec:
      policy:
        rules:
        - when: "{{ item == 'skip' }}"
          then: {do: break}
        - when: "{{ outcome.status == 'ok' }}"
          then: {do: continue, set_iter: {kept: "{{ item }}"}}
  - {name: rest, kind: wait, signal: "go-{{ item }}", timeout_s: 60}
  - name: after
    kind: puppet
    kept: "{{ iter.kept }}"
    by: "{{ rest }}"
"""
RETRYING = """
  tool:
  - name: act
    kind: puppet
    item: "{{ item }}"
    spec:
      policy:
        rules:
        - when: "{{ outcome.status == 'error' }}"
          then: {do: retry, attempts: 2, delay: 60, max_delay: 60}
"""
SEQUENTIAL = "- step: start\n  loop: {in: [1], iterator: item}" + TASKS
PARALLEL = "- step: start\n  loop: {in: [1], iterator: item, spec: {mode: parallel, exec: local}}" + TASKS
BEST_EFFORT = PARALLEL.replace("- step: start", "- step: start\n  spec: {policy: {failure: {mode: best_effort}}}")


def waiting(index: int, item: str, **changes: Any) -> Wait:
    return Wait((index,), "rest", signal=f"go-{item}", timeout_s=60, **changes)


def answered(value: Any = "ann") -> Outcome:
    return Outcome("ok", payload_of(value))


def go_on(stage: Stage, loop: LoopProgress, **changes: Any) -> Go:
    """What the server hands to the next segment: what was recorded, and how the loop stands."""
    recorded = stage.recorded
    return Go(1, recorded.progress, loop, recorded.ctx, recorded.vars, **changes)


async def begin(stage: Stage, steps: str, items: list[Any], **changes: Any) -> StepCommand:
    command = stage.command(stage.plan(steps), items=items, **changes)
    await stage.start()
    await stage.issue(command)
    return command


async def test_a_sequential_loop_suspends_with_its_one_wait_and_continues_from_there(stage: Stage) -> None:
    command = await begin(stage, SEQUENTIAL, ["a", "b"])
    assert stage.waits == [waiting(0, "a")]
    assert inputs_of(stage.puppet.calls, "item") == ["a"]
    command = await stage.resume(command, go_on(stage, LoopProgress(), answers={"0": answered()}))
    assert stage.waits == [waiting(1, "b")]
    assert dict(stage.puppet.calls[1].inputs) == {"kept": "a", "by": "ann"}
    await stage.resume(command, go_on(stage, LoopProgress(low=1, ok=1), answers={"1": answered()}))
    assert stage.facts[-1] == LoopDone("steprun-1", 2, ok=2, failed=0, skipped=0)
    assert stage.names.count("loop.started") == 1
    assert await stage.queued() == set()


async def test_an_iteration_that_waits_is_parked_while_the_others_continue(stage: Stage) -> None:
    await begin(stage, PARALLEL, ["a", "skip", "skip", "skip"], max_in_flight=2)
    assert [fact.path for fact in stage.facts if isinstance(fact, LoopIterationDone)] == [(1,), (2,), (3,)]
    assert stage.waits == [waiting(0, "a")]
    assert await stage.queued() == set()


async def test_parked_iterations_count_as_in_flight(stage: Stage) -> None:
    await begin(stage, PARALLEL, ["a", "b", "skip"], max_in_flight=2)
    assert inputs_of(stage.puppet.calls, "item") == ["a", "b"]
    assert stage.waits == [waiting(0, "a"), waiting(1, "b")]


async def test_a_loop_does_not_suspend_while_an_iteration_runs(stage: Stage) -> None:
    endless = Endless()

    async def act(call: ToolCall) -> Any:
        return await endless(call) if call.inputs["item"] == "skip" else "done"

    stage.puppet.acts["before"] = act
    await begin(stage, PARALLEL, ["a", "skip"], max_in_flight=2)
    await stage.advance(1.0)
    assert "step.suspended" not in stage.names
    endless.release.set()
    await stage.settle()
    assert stage.waits == [waiting(0, "a")]


async def test_iterations_that_still_wait_stay_parked(stage: Stage) -> None:
    command = await begin(stage, PARALLEL, ["a", "b", "skip"], max_in_flight=2)
    noted = waiting(0, "a", since_ms=5)
    go = go_on(stage, LoopProgress(), answers={"1": answered()}, waits={"0": noted})
    before = len(stage.facts)
    await stage.resume(command, go)
    assert stage.waits == [noted]
    assert [fact.path for fact in stage.facts[before:] if isinstance(fact, LoopIterationStarted)] == [(1,), (2,)]
    assert [fact.path for fact in stage.facts if isinstance(fact, LoopIterationDone)] == [(1,), (2,)]


async def test_new_waits_are_added_to_the_existing_waits(stage: Stage) -> None:
    command = await begin(stage, PARALLEL, ["a", "b", "c"], max_in_flight=2)
    noted = waiting(0, "a", since_ms=5)
    await stage.resume(command, go_on(stage, LoopProgress(), answers={"1": answered()}, waits={"0": noted}))
    assert stage.waits == [noted, waiting(2, "c")]


async def test_a_parked_child_keeps_its_execution(stage: Stage) -> None:
    await stage.answer_catalog(PinnedPlaybook("digest-1", "jobs/child", "1.0", "a pin"))
    calls = PARALLEL.replace('kind: wait, signal: "go-{{ item }}", timeout_s: 60', "kind: playbook, path: jobs/child")
    command = await begin(stage, calls, ["a", "b"], max_in_flight=2)
    call = ChildCall("digest-1", "jobs/child", "1.0", pin="a pin")
    assert stage.waits == [Wait((0,), "rest", child=call), Wait((1,), "rest", child=call)]
    started = Wait((0,), "rest", child=ChildCall("digest-1", "jobs/child", "1.0", execution_id="child-1"), since_ms=5)
    go = go_on(stage, LoopProgress(), answers={"1": answered()}, waits={"0": started})
    command = await stage.resume(command, go)
    assert stage.waits == [started]
    await stage.resume(command, go_on(stage, LoopProgress(low=0, above=[1], ok=1), answers={"0": answered()}))
    assert stage.facts[-1] == LoopDone("steprun-1", 2, ok=2, failed=0, skipped=0)


async def test_a_long_retry_delay_parks_its_iteration_too(stage: Stage) -> None:
    async def act(call: ToolCall) -> Any:
        if call.inputs["item"] == "a" and call.attempt == 1:
            raise ToolFailure(ErrorInfo("connection", "gone"))
        return "fine"

    stage.puppet.acts["act"] = act
    command = await begin(stage, PARALLEL.replace(TASKS, RETRYING), ["a", "b"], max_in_flight=2)
    assert stage.waits == [Wait((0,), "act", delay_s=60.0)]
    await stage.resume(command, go_on(stage, LoopProgress(low=0, above=[1], ok=1), answers={"0": None}))
    assert [call.attempt for call in stage.puppet.calls] == [1, 1, 2]
    assert stage.facts[-1] == LoopDone("steprun-1", 2, ok=2, failed=0, skipped=0)


async def test_a_delay_that_no_longer_fits_the_suspension_is_slept_in_the_slot(stage: Stage) -> None:
    large = ChildCall("digest-1", "jobs/child", workload={"text": "x" * MAX_WAITS_BYTES})
    failed = Outcome("error", error=ErrorInfo("connection", "gone"))
    resumed = Progress(task="act", attempt=2, runs=1, previous="act", delay_s=20.0, results={"act": failed})
    go = Go(1, {"1": resumed}, LoopProgress(), waits={"0": Wait((0,), "act", child=large)})
    command = stage.command(stage.plan(PARALLEL.replace(TASKS, RETRYING)), items=["a", "b"], max_in_flight=2)
    await stage.start()
    await stage.resume(command, go)
    await stage.advance(0.1)
    assert stage.names == ["loop.iteration.started"]
    await stage.advance(20.0)
    assert stage.names[-2:] == ["loop.iteration.done", "step.suspended"]


async def test_a_failure_ends_a_fail_fast_loop_with_parked_iterations(stage: Stage) -> None:
    await begin(stage, PARALLEL.replace("do: break", "do: fail"), ["a", "skip", "b"], max_in_flight=3)
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.index == 1
    assert "step.suspended" not in stage.names


async def test_a_best_effort_loop_keeps_its_failures_over_a_suspension(stage: Stage) -> None:
    command = await begin(stage, BEST_EFFORT.replace("do: break", "do: fail"), ["a", "skip"], max_in_flight=2)
    assert [fact.path for fact in stage.facts if isinstance(fact, LoopIterationFailed)] == [(1,)]
    assert stage.waits == [waiting(0, "a")]
    error = ErrorInfo("policy_fail", "it said so", index=1)
    stands = LoopProgress(low=0, above=[1], failed=1, first_error=error)
    await stage.resume(command, go_on(stage, stands, answers={"0": answered()}))
    assert stage.facts[-1] == LoopDone("steprun-1", 2, ok=1, failed=1, skipped=0)


async def test_a_crash_while_iterations_are_parked_parks_them_again(stage: Stage) -> None:
    endless = Endless()

    async def act(call: ToolCall) -> Any:
        return await endless(call) if call.inputs["item"] == "skip" else "done"

    stage.puppet.acts["before"] = act
    await begin(stage, PARALLEL, ["a", "skip"], max_in_flight=2)
    await stage.advance(0.1)
    go = go_on(stage, LoopProgress())
    await stage.answer_claims(lambda report: go)
    stage.broker.command_queue.forget_unacked()
    await stage.settle()
    endless.release.set()
    await stage.settle()
    assert stage.waits == [waiting(0, "a")]
    processed = [(fact.path, fact.task) for fact in stage.facts if isinstance(fact, TaskProcessed)]
    assert processed.count(((0,), "before")) == 1


async def test_a_stop_ends_a_loop_with_parked_iterations(stage: Stage) -> None:
    endless = Endless()

    async def act(call: ToolCall) -> Any:
        return await endless(call) if call.inputs["item"] == "skip" else "done"

    stage.puppet.acts["before"] = act
    await begin(stage, PARALLEL, ["a", "skip"], max_in_flight=2)
    await stage.stop_commands("command-1")
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "cancelled"


async def test_thousands_of_waits_go_by_without_a_task_for_each(stage: Stage) -> None:
    items = [f"i{number}" for number in range(1_000)]
    await begin(stage, PARALLEL, items, max_in_flight=1_000)
    await stage.until(lambda: "step.suspended" in stage.names)
    assert len(stage.waits) == 1_000
    names = {task.get_name() for task in asyncio.all_tasks()}
    assert len(names) < 20


async def test_an_iteration_that_had_begun_continues_with_its_own_scratch_scope(stage: Stage) -> None:
    command = stage.command(stage.plan(PARALLEL), items=["a"], max_in_flight=2)
    before = Outcome("ok", payload_of("x"))
    stands = Progress(task="rest", runs=1, previous="before", iter={"kept": "mine"}, results={"before": before})
    await stage.start()
    await stage.resume(command, Go(1, {"0": stands}, LoopProgress(), answers={"0": answered("bob")}))
    assert dict(stage.puppet.calls[0].inputs) == {"kept": "mine", "by": "bob"}
