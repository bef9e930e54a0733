from __future__ import annotations

import asyncio
from typing import Any

import pytest
from worker_stage import Endless, Refusing, Stage

from noetl_stream.model.events import LoopIterationFailed, StepFailed
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Drop, Go, Stop
from noetl_stream.worker.cancellation import Cancellations

ONE_ACT = """
- step: start
  tool:
  - {name: act, kind: puppet}
"""

RETRY = """
- step: start
  tool:
  - name: act
    kind: puppet
    spec: {policy: {rules: [{when: true, then: {do: retry, attempts: 3, delay: 4}}]}}
"""

LOOP = """
- step: start
  loop: {in: "{{ workload.items }}", iterator: item, spec: {mode: parallel, exec: local}}
  tool:
  - {name: act, kind: puppet}
"""


async def test_a_stop_ends_the_tool_and_the_step_fails_as_cancelled(stage: Stage) -> None:
    stage.puppet.acts["act"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    await stage.stop_commands("command-1", reason="cancelled by a user")
    assert stage.puppet.cancelled == ["act"]
    assert stage.names == ["step.started", "task.started", "step.failed"]
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "cancelled"
    assert "cancelled by a user" in failed.error.message
    assert await stage.queued() == set()


async def test_a_stop_ends_an_iteration_with_its_own_event(stage: Stage) -> None:
    stage.puppet.acts["act"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(LOOP), path=(2,), chain=[1], counts=[3]))
    await stage.stop_commands("command-1")
    failed = stage.facts[-1]
    assert isinstance(failed, LoopIterationFailed) and (failed.path, failed.error.kind) == ((2,), "cancelled")


async def test_a_stop_ends_a_retry_delay(stage: Stage) -> None:
    await stage.start()
    await stage.issue(stage.command(stage.plan(RETRY)))
    await stage.stop_commands("command-1")
    assert stage.names[-1] == "step.failed"
    assert len(stage.puppet.calls) == 1


async def test_a_stop_ends_all_iterations_of_a_local_loop_and_then_the_step(stage: Stage) -> None:
    stage.puppet.acts["act"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(LOOP), items=[1, 2, 3], max_in_flight=3))
    await stage.stop_commands("command-1")
    assert stage.puppet.cancelled == ["act"] * 3
    assert stage.names[-1] == "step.failed"
    assert "loop.iteration.failed" not in stage.names


async def test_a_stop_leaves_other_commands_alone(stage: Stage) -> None:
    stage.puppet.acts["act"] = endless = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    await stage.stop_commands("command-2")
    assert stage.puppet.cancelled == []
    endless.release.set()
    await stage.settle()
    assert stage.names[-1] == "step.done"


async def test_a_command_that_was_stopped_before_it_came_is_not_run(stage: Stage) -> None:
    await stage.start()
    await stage.stop_commands("command-1")
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    assert stage.puppet.calls == []
    (failed,) = stage.facts
    assert isinstance(failed, StepFailed) and failed.error.kind == "cancelled"
    assert await stage.queued() == set()


async def test_a_command_that_was_stopped_before_it_came_is_reported_without_looking_for_its_plan(stage: Stage) -> None:
    await stage.start()
    await stage.stop_commands("command-1")
    command = stage.command(stage.plan(ONE_ACT))
    stage.plans.plans.clear()
    await stage.issue(command)
    assert stage.names == ["step.failed"]
    assert stage.plans.lookups == 0


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_stop_while_the_plan_is_asked_for_cancels_the_run(stage: Stage, is_known: bool) -> None:
    await stage.start()
    command = stage.command(stage.plan(ONE_ACT))
    known = dict(stage.plans.plans)
    stage.plans.plans.clear()
    stage.plans.gate.clear()
    await stage.issue(command)
    await stage.stop_commands("command-1")
    stage.plans.plans |= known if is_known else {}
    stage.plans.gate.set()
    await stage.settle()
    await stage.advance(12.0, step_s=1.0)
    assert stage.puppet.calls == []
    (failed,) = stage.facts
    assert isinstance(failed, StepFailed) and failed.error.kind == "cancelled"
    assert await stage.queued() == set()


async def test_a_stop_while_a_claim_waits_for_its_answer_cancels_what_is_granted(stage: Stage) -> None:
    answers: list[Any] = [None, Go()]
    await stage.answer_claims(lambda report: answers.pop(0))
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_ACT), issue=2))
    await stage.stop_commands("command-1")
    assert stage.names == ["step.claimed"]
    await stage.advance(2.5)
    assert stage.puppet.calls == []
    failed = stage.facts[-1]
    assert isinstance(failed, StepFailed) and failed.error.kind == "cancelled"


async def test_a_stop_before_a_claim_is_refused_leaves_no_event(stage: Stage) -> None:
    answers: list[Any] = [None, Drop("cancelled")]
    await stage.answer_claims(lambda report: answers.pop(0))
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_ACT), issue=2))
    await stage.stop_commands("command-1")
    await stage.advance(2.5)
    assert set(stage.names) == {"step.claimed"}
    assert await stage.queued() == set()


async def test_a_stale_run_ends_without_a_report_and_is_acknowledged(stage: Stage) -> None:
    stage.puppet.acts["act"] = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    await stage.advance(0.05)
    nonce = stage.reports[0].nonce
    await stage.stop_commands("command-1", reason="stale", nonce=nonce)
    assert stage.puppet.cancelled == ["act"]
    assert stage.names == ["step.started", "task.started"]
    assert await stage.queued() == set()


async def test_a_stale_run_takes_no_healthy_run_of_its_command_with_it(stage: Stage) -> None:
    stage.puppet.acts["act"] = endless = Endless()
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    await stage.stop_commands("command-1", reason="stale", nonce="another-run")
    endless.release.set()
    await stage.settle()
    assert stage.names[-1] == "step.done"


async def test_a_stale_run_does_not_make_later_copies_stopped(stage: Stage) -> None:
    await stage.start()
    await stage.stop_commands("command-1", reason="stale", nonce="another-run")
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    assert stage.names[-1] == "step.done"


async def test_a_stop_that_comes_after_the_end_changes_nothing(stage: Stage) -> None:
    log = Refusing(stage.broker.event_log, "publish_report")
    log.refuses = True
    await stage.start(event_log=log)
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    await stage.stop_commands("command-1")
    log.refuses = False
    await stage.advance(1.0)
    assert stage.names == ["step.started", "task.started", "task.processed", "step.done"]


async def test_a_tool_that_swallows_its_cancellation_still_ends_cancelled(stage: Stage) -> None:
    async def stubborn(_call: object) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I go on"
        return "never"

    stage.puppet.acts["act"] = stubborn
    await stage.start()
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    await stage.stop_commands("command-1")
    assert stage.names == ["step.started", "task.started", "step.failed"]


async def test_the_number_of_remembered_stopped_commands_is_bounded() -> None:
    cancellations = Cancellations(remembered=2)
    await cancellations.on_stop("noetl.stop", codec.encode(Stop("execution", ["a", "b", "c"], "enough")), "")
    stops = [cancellations.stop_of(command_id) for command_id in "abc"]
    assert [stop and stop.reason for stop in stops] == [None, "enough", "enough"]


async def test_an_order_that_cannot_be_read_is_ignored(stage: Stage) -> None:
    await stage.start()
    stage.broker.bus.send("noetl.stop", b"not json")
    await stage.issue(stage.command(stage.plan(ONE_ACT)))
    assert stage.names[-1] == "step.done"
