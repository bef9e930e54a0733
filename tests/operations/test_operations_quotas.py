"""An execution that comes to more than a quota says so where people look (LANGUAGE §14 *Quotas*)."""

from __future__ import annotations

from operations_stage import BY, OperationsStage

from noetl_stream.model.events import PauseRequested, ResumeRequested
from noetl_stream.ports.operations.executions import ExecutionDocument, Start
from noetl_testkit.simulation.work import playbook, then, work

STEPS = [
    {"step": "first", "tool": work(1), "next": then("second")},
    {"step": "second", "tool": work(2), "next": then("third")},
    {"step": "third", "tool": work(3)},
]


async def begun(stage: OperationsStage, on_exceeded: str) -> ExecutionDocument:
    quotas = {"step_runs": 1, "on_exceeded": on_exceeded}
    text = playbook("bounded", STEPS, executor={"spec": {"policy": {"quotas": quotas}}})
    return await stage.executions.start(Start(playbook=text), BY)


async def test_get_shows_a_quota_that_was_exceeded_as_a_warning(stage: OperationsStage) -> None:
    found = await stage.executions.wait((await begun(stage, "warn")).execution_id, 3600)
    assert found.status == "completed"
    [warning] = found.warnings or ()
    message = "quotas.step_runs is 1, and the execution comes to 2"
    assert (warning.kind, warning.message) == ("quota_exceeded", message)


async def test_get_and_why_show_the_quota_that_an_execution_failed_of(stage: OperationsStage) -> None:
    found = await stage.executions.wait((await begun(stage, "fail")).execution_id, 3600)
    assert found.error is not None and (found.error.kind, found.error.code) == ("quota_exceeded", "step_runs")
    why = await stage.executions.why(found.execution_id)
    assert "quotas.step_runs is 1, and the execution comes to 2" in why.reasons[0].sentence


async def test_why_says_which_quota_has_paused_it_and_what_a_resume_gives(stage: OperationsStage) -> None:
    execution_id = (await begun(stage, "suspend")).execution_id
    await stage.until_status(execution_id, "paused")
    [paused, *_] = (await stage.executions.why(execution_id)).reasons
    text = "The execution is paused, since quotas.step_runs is 1, and the execution comes to 2."
    resume = f"`noetl-stream execution resume {execution_id}`; it may then use as much again"
    assert (paused.kind, paused.sentence, paused.moves) == ("paused", text, resume)

    await stage.ask(execution_id, ResumeRequested)
    await stage.until_status(execution_id, "paused")
    await stage.ask(execution_id, ResumeRequested)
    found = await stage.executions.wait(execution_id, 3600)
    assert (found.status, found.result) == ("completed", 3)
    warned = [one.message for one in found.warnings or ()]
    assert warned == [f"quotas.step_runs is {amount}, and the execution comes to {amount + 1}" for amount in (1, 2)]


async def test_a_pause_that_people_ask_for_later_is_theirs(stage: OperationsStage) -> None:
    quotas = {"step_runs": 1, "on_exceeded": "warn"}
    waits = {"step": "second", "tool": {"kind": "wait", "for_s": 3600}}
    text = playbook("bounded", [STEPS[0], waits], executor={"spec": {"policy": {"quotas": quotas}}})
    execution_id = (await stage.executions.start(Start(playbook=text), BY)).execution_id
    await stage.until_status(execution_id, "waiting")
    await stage.ask(execution_id, PauseRequested, reason="lunch")
    [paused, *_] = (await stage.executions.why(execution_id)).reasons
    assert paused.sentence == "The execution is paused by token:ada (lunch)."
