"""Heartbeats of a running attempt: reported now and then, and given to the next attempt (LANGUAGE §12 *python*)."""

from __future__ import annotations

from typing import Any

from worker_stage import Stage

from noetl_stream.model.events import TaskHeartbeat, TaskProcessed
from noetl_stream.model.messages import Go, Progress
from noetl_stream.tools.contract import ToolCall, ToolFailure

RETRIED = """
- step: start
  tool:
  - name: act
    kind: puppet
    spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 2, delay: 1}}]}}
"""


def result(stage: Stage) -> bytes:
    return bytes([fact.outcome.result.value for fact in stage.facts if isinstance(fact, TaskProcessed)][-1])


def beats(stage: Stage) -> list[tuple[int, Any]]:
    return [(fact.attempt, fact.details) for fact in stage.facts if isinstance(fact, TaskHeartbeat)]


async def test_of_many_heartbeats_one_in_ten_seconds_is_reported(stage: Stage) -> None:
    async def act(call: ToolCall) -> str:
        for row in range(25):
            call.beat({"row": row})
            await stage.clock.sleep(1)
        return "done"

    stage.puppet.acts["act"] = act
    await stage.start()
    await stage.issue(stage.command(stage.plan(RETRIED)))
    await stage.advance(30.0, step_s=0.5)
    assert beats(stage) == [(1, {"row": 0}), (1, {"row": 10}), (1, {"row": 20})]
    assert stage.names[-1] == "step.done"


async def test_the_next_attempt_gets_the_last_details_which_a_failure_reports_before_it(stage: Stage) -> None:
    async def act(call: ToolCall) -> Any:
        if call.attempt == 2:
            return call.previous_details
        assert call.previous_details is None
        call.beat(1)
        call.beat(2)
        raise ToolFailure.of("exception", "broken")

    stage.puppet.acts["act"] = act
    await stage.start()
    await stage.issue(stage.command(stage.plan(RETRIED)))
    await stage.advance(5.0, step_s=0.5)
    assert beats(stage) == [(1, 1), (1, 2)]
    names = [name for name in stage.names if name.startswith("task.")]
    assert names == ["task.started", *["task.heartbeat"] * 2, "task.processed", "task.started", "task.processed"]
    assert result(stage) == b"2"


async def test_a_run_that_takes_over_gets_the_last_details_of_the_run_before(stage: Stage) -> None:
    async def act(call: ToolCall) -> Any:
        return call.previous_details

    stage.puppet.acts["act"] = act
    await stage.answer_claims(lambda report: Go(progress={"": Progress(details={"row": 7})}))
    await stage.start()
    await stage.issue(stage.command(stage.plan(RETRIED), issue=2))
    assert result(stage) == b'{"row":7}'


async def test_another_task_of_the_step_gets_no_details(stage: Stage) -> None:
    seen: list[Any] = []

    async def act(call: ToolCall) -> str:
        seen.append(call.previous_details)
        call.beat(call.task)
        return "done"

    stage.puppet.acts |= {"one": act, "two": act}
    await stage.start()
    tasks = "".join(f"  - {{name: {name}, kind: puppet}}\n" for name in ("one", "two"))
    await stage.issue(stage.command(stage.plan(f"- step: start\n  tool:\n{tasks}")))
    assert seen == [None, None]
