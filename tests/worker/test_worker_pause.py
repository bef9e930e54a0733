from __future__ import annotations

from typing import Any

from worker_stage import Endless, Stage, inputs_of

from noetl_stream.model.events import LoopDone, LoopIterationDone, StepFailed, StepSuspended, Wait
from noetl_stream.model.json import codec
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.messages import Go, LoopProgress, Stop
from noetl_stream.model.outcome import Outcome
from noetl_stream.tools.contract import ToolCall
from noetl_stream.worker.cancellation import Cancellations

LOOP = """
- step: start
  loop: {in: [1], iterator: item, spec: SPEC}
  tool:
  - {name: act, kind: puppet, item: "{{ item }}"}
  - {name: after, kind: noop}
"""
SEQUENTIAL = LOOP.replace("SPEC", "{}")
PARALLEL = LOOP.replace("SPEC", "{mode: parallel, exec: local}")
PIPELINE = "- step: start\n  tool:\n  - {name: act, kind: puppet}\n  - {name: after, kind: puppet}\n"

NESTED = """
- step: start
  loop:
    in: [1]
    iterator: a
    loop: {in: "{{ a }}", iterator: b}
  tool: [{name: act, kind: puppet, item: "{{ b }}"}]
"""


async def pause(stage: Stage, command_id: str = "command-1") -> None:
    await stage.stop_commands(command_id, reason="paused", pausing=True)


async def test_a_paused_loop_finishes_what_runs_and_begins_nothing_new(stage: Stage) -> None:
    stage.puppet.acts["act"] = endless = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(PARALLEL), items=[1, 2, 3, 4], max_in_flight=2))
    await pause(stage)
    assert stage.puppet.cancelled == []
    assert "step.suspended" not in stage.names
    endless.release.set()
    await stage.settle()
    assert inputs_of(stage.puppet.calls, "item") == [1, 2]
    assert [fact.path for fact in stage.facts if isinstance(fact, LoopIterationDone)] == [(0,), (1,)]
    assert stage.waits == []
    assert await stage.queued() == set()


async def test_a_paused_loop_continues_where_it_stopped(stage: Stage) -> None:
    stage.puppet.acts["act"] = endless = Endless()
    await stage.start()
    command = stage.command(stage.plan(SEQUENTIAL), items=[1, 2])
    await stage.issue(command)
    await pause(stage)
    endless.release.set()
    await stage.settle()
    assert stage.waits == []
    await stage.resume(command, Go(1, loop=LoopProgress(low=1, ok=1)))
    assert inputs_of(stage.puppet.calls, "item") == [1, 2]
    assert stage.facts[-1] == LoopDone("steprun-1", 2, 2, 0, 0)


async def test_a_loop_that_has_ended_when_it_is_paused_completes(stage: Stage) -> None:
    stage.puppet.acts["act"] = endless = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=[1]))
    await pause(stage)
    endless.release.set()
    await stage.settle()
    assert stage.facts[-1] == LoopDone("steprun-1", 1, 1, 0, 0)


async def test_a_paused_loop_reports_its_parked_iterations(stage: Stage) -> None:
    endless = Endless()

    async def act(call: ToolCall) -> Any:
        return await endless(call) if call.inputs["item"] == 2 else "done"

    stage.puppet.acts["act"] = act
    rest = "{name: after, kind: wait, for_s: 60}"
    await stage.start()
    plan = stage.plan(PARALLEL.replace("{name: after, kind: noop}", rest))
    command = stage.command(plan, items=[1, 2, 3], max_in_flight=2)
    await stage.issue(command)
    await pause(stage)
    endless.release.set()
    await stage.settle()
    assert stage.waits == [Wait((0,), "after", for_s=60), Wait((1,), "after", for_s=60)]
    assert inputs_of(stage.puppet.calls, "item") == [1, 2]
    assert isinstance(stage.facts[-1], StepSuspended) and stage.facts[-1].paused


async def test_waiting_and_answered_tasks_are_not_forgotten_by_a_pause(stage: Stage) -> None:
    rest = "{name: after, kind: wait, for_s: 60}"
    await stage.start()
    plan = stage.plan(PARALLEL.replace("{name: after, kind: noop}", rest))
    command = stage.command(plan, items=[1, 2, 3], max_in_flight=3)
    await stage.issue(command)
    noted = Wait((2,), "after", for_s=60, since_ms=5)
    recorded = stage.recorded.progress
    answers: dict[str, Outcome | None] = {"1": Outcome("ok", payload_of(None))}
    go = Go(1, {"1": recorded["1"], "2": recorded["2"]}, LoopProgress(), answers=answers, waits={"2": noted})
    await pause(stage, "steprun-1-segment-1")
    await stage.resume(command, go)
    assert [fact.path for fact in stage.facts if isinstance(fact, LoopIterationDone)] == [(1,)]
    assert stage.waits == [noted]
    assert len(stage.puppet.calls) == 3


async def test_an_inner_loop_pauses_before_its_own_next_iteration(stage: Stage) -> None:
    stage.puppet.acts["act"] = endless = Endless()
    await stage.start()
    command = stage.command(stage.plan(NESTED), items=[[1, 2, 3], [4]])
    await stage.issue(command)
    await pause(stage)
    endless.release.set()
    await stage.settle()
    assert inputs_of(stage.puppet.calls, "item") == [1]
    assert stage.waits == []
    go = Go(1, loop=LoopProgress(inner={0: LoopProgress(low=1, ok=1, items=[1, 2, 3])}))
    await stage.resume(command, go)
    assert inputs_of(stage.puppet.calls, "item") == [1, 2, 3, 4]
    assert stage.facts[-1] == LoopDone("steprun-1", 2, 2, 0, 0)


async def test_a_pipeline_without_loop_continues_to_its_end(stage: Stage) -> None:
    stage.puppet.acts["act"] = endless = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(PIPELINE)))
    await pause(stage)
    endless.release.set()
    await stage.settle()
    assert [call.task for call in stage.puppet.calls] == ["act", "after"]
    assert stage.names[-1] == "step.done"


async def test_a_loop_that_was_paused_before_it_came_does_not_begin(stage: Stage) -> None:
    await stage.start()
    await pause(stage)
    command = stage.command(stage.plan(SEQUENTIAL), items=[1])
    await stage.issue(command)
    assert stage.names == ["step.suspended"]
    await stage.resume(command, Go(1))
    assert stage.names[1] == "loop.started"
    assert stage.names[-1] == "loop.done"


async def test_a_paused_loop_can_still_be_stopped(stage: Stage) -> None:
    stage.puppet.acts["act"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(SEQUENTIAL), items=[1, 2]))
    await pause(stage)
    await stage.stop_commands("command-1")
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "cancelled"


async def test_a_command_that_was_stopped_is_not_merely_paused_by_a_later_word() -> None:
    cancellations = Cancellations()
    for pausing in (False, True):
        await cancellations.on_stop("noetl.stop", codec.encode(Stop("execution", ["a"], "enough", pausing=pausing)), "")
    stop = cancellations.stop_of("a")
    assert stop is not None and not stop.pausing
