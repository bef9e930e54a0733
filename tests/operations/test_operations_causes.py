"""A failure is followed to where it began, down into the executions that were called."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from operations_stage import BY, OperationsStage
from shown_stage import Showing
from why_scenarios import HEAD, history_of

from noetl_stream.cli.execution.display.tables import print_execution, print_why
from noetl_stream.model.events import CancelRequested
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.operations.executions import direct
from noetl_stream.operations.executions.redacted import RedactedExecutions
from noetl_stream.operations.why import ended
from noetl_stream.ports.operations.executions import FailureDocument, RerunOptions, Start
from noetl_testkit.conformance.store_rows import execution_row
from noetl_testkit.scenario.scenario import Scenario
from noetl_testkit.simulation.work import playbook

RETRY = {"rules": [{"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 3}}]}
FETCH = {"name": "get", "kind": "work", "failures": 9, "spec": {"policy": RETRY}}
FINE = playbook("fine", [{"step": "only", "tool": {"kind": "noop"}}])
DEEPEST = playbook("deepest", [{"step": "fetch", "tool": FETCH}])
MIDDLE = playbook(
    "middle", [{"step": "all", "tool": {"name": "down", "kind": "playbook", "path": "simulation/deepest"}}]
)
CALLS = [
    {"name": name, "kind": "playbook", "path": f"simulation/{path}"}
    for name, path in (("first", "fine"), ("second", "middle"), ("third", "fine"))
]
OUTER = playbook("outer", [{"step": "calls", "tool": CALLS}])


async def fails_three_deep(stage: OperationsStage, deepest: str = DEEPEST) -> str:
    """An execution whose second call calls one that fails."""
    for name, source in (("deepest", deepest), ("middle", MIDDLE), ("fine", FINE)):
        await stage.playbooks.register(source.encode(), name, BY)
    return (await stage.run(OUTER)).execution_id


async def causes_in(stage: OperationsStage, execution_id: str, *paths: str) -> list[FailureDocument]:
    return (await stage.executions.why(execution_id, paths)).causes


async def test_a_failed_call_leads_to_the_attempt_that_failed_in_the_last_execution_called(
    stage: OperationsStage,
) -> None:
    outer, middle, deepest = found = await causes_in(stage, await fails_three_deep(stage))
    assert [one.path for one in found] == ["simulation/outer", "simulation/middle", "simulation/deepest"]
    assert (outer.step, outer.task, middle.step, middle.task) == ("calls", "second", "all", "down")
    assert outer.error is not None and outer.error.kind == "child_failed"
    assert (deepest.step, deepest.task, deepest.attempt, deepest.attempts) == ("fetch", "get", 3, 3)
    assert deepest.error is not None and (deepest.error.kind, deepest.error.message) == ("exception", "attempt 3 fails")
    run = await stage.executions.run_result(deepest.execution_id, deepest.step_run_id or "")
    assert (run.step, deepest.worker) == ("fetch", "worker")


async def test_of_three_called_executions_the_list_says_which_failed(stage: OperationsStage) -> None:
    failed = await fails_three_deep(stage)
    first = await stage.views.calls(failed, 1, None)
    rest = await stage.views.calls(failed, 10, first.next)
    assert [(one.path, one.status) for one in (*first.items, *rest.items)] == [
        ("simulation/fine", "completed"),
        ("simulation/middle", "failed"),
    ]
    assert rest.next is None and rest.items[0].execution_id == (await causes_in(stage, failed))[1].execution_id


async def test_a_caller_with_paths_sees_the_causes_at_its_paths_alone(stage: OperationsStage) -> None:
    failed = await fails_three_deep(stage)
    assert [one.path for one in await causes_in(stage, failed, "simulation/outer")] == ["simulation/outer"]


async def test_of_a_called_execution_with_a_long_journal_its_error_is_shown(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = await fails_three_deep(stage)
    monkeypatch.setattr(ended, "LONG_EVENTS", 5)
    outer, middle = await causes_in(stage, failed)
    assert (outer.task, middle.path, middle.step) == ("second", "simulation/middle", None)
    assert middle.error is not None and middle.error.kind == "child_failed"


async def test_a_called_execution_cancelled_by_a_person_is_the_cause(stage: OperationsStage) -> None:
    waits = {"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 60}
    await stage.playbooks.register(playbook("ears", [{"step": "ear", "tool": waits}]).encode(), "ears", BY)
    call = {"name": "call", "kind": "playbook", "path": "simulation/ears"}
    caller = await stage.executions.start(Start(playbook=playbook("calls", [{"step": "it", "tool": call}])), BY)
    called = None
    while called is None:
        await stage.until_status(caller.execution_id, "waiting")
        [wait] = (await stage.executions.why(caller.execution_id)).reasons
        called = wait.waiting_on and wait.waiting_on.child
    await stage.until_status(called.execution_id, "waiting")
    await stage.ask(called.execution_id, CancelRequested, reason="not today")
    await stage.executions.wait(caller.execution_id, 60)
    _, cancelled = await causes_in(stage, caller.execution_id)
    assert cancelled.error is not None
    assert (cancelled.path, cancelled.status, cancelled.error.kind) == ("simulation/ears", "cancelled", "cancelled")


async def test_an_execution_that_did_not_fail_has_no_cause(stage: OperationsStage) -> None:
    assert await causes_in(stage, (await stage.run(FINE)).execution_id) == []


async def test_a_failure_of_its_own_is_the_only_cause(stage: OperationsStage) -> None:
    source = playbook("needs", [{"step": "only", "tool": {"kind": "noop", "args": {"n": "{{ 1 // workload.n }}"}}}])
    [cause] = await causes_in(stage, (await stage.run(source, workload={"n": 0})).execution_id)
    assert cause.error is not None and (cause.step, cause.error.kind) == ("only", "expression_error")


async def test_the_secrets_of_a_called_execution_are_hidden_in_every_cause(stage: OperationsStage) -> None:
    said = {"name": "get", "kind": "noop", "args": {"it": "{{ 1 + workload.typed }}"}}
    deepest = playbook("deepest", [{"step": "fetch", "tool": said}], workload={"typed": "text"})
    failed = await fails_three_deep(stage, deepest)
    showing, secret = Showing(stage), "unsupported operand"
    await DirectCredentials(showing.credentials, showing.keys).put("pg", secret, "ann")
    executions = RedactedExecutions(stage.executions, showing.secrets)
    before = await executions.why(failed)
    await showing.give(before.causes[-1].execution_id)
    assert str(before).count(secret) >= len(before.causes) == 3  # that of the caller tells that of the called
    assert secret not in str(await executions.why(failed))


async def test_text_output_leads_from_the_failure_to_its_cause(
    stage: OperationsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = await fails_three_deep(stage)
    print_why(await stage.executions.why(failed))
    first, second, third = capsys.readouterr().out.splitlines()[-3:]
    assert first.startswith(f"failed: simulation/outer {failed} at calls.second, attempt 1: child_failed: ")
    assert second.startswith("caused by: simulation/middle ") and " at all.down, attempt 1: child_failed: " in second
    assert third.endswith(" at fetch.get, attempt 3 of 3: exception: attempt 3 fails")
    print_execution(await stage.executions.get(failed))
    assert f"cause: run `noetl-stream execution why {failed}`" in capsys.readouterr().out


async def test_the_inputs_of_an_execution_are_shown_and_of_large_ones_the_size(
    stage: OperationsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    source = playbook("asks", [{"step": "only", "tool": {"kind": "noop"}}], workload={"order": "A-1", "note": ""})
    small = await stage.run(source, workload={"note": "by phone"})
    assert small.workload == {"order": "A-1", "note": "by phone"}
    print_execution(small)
    assert "by phone" in capsys.readouterr().out
    large = await stage.run(source, workload={"note": "x" * 5_000})
    print_execution(large)
    assert large.workload == {"$large": {"size": 5_025}}
    assert "inputs: 5025 bytes; run `noetl-stream execution events" in capsys.readouterr().out


async def test_a_rerun_of_a_long_execution_shows_its_inputs(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "DESCRIBED_EVENTS", 5)
    steps = [
        {"step": "one", "tool": {"kind": "noop"}, "next": {"arcs": [{"step": "two"}]}},
        {"step": "two", "tool": FETCH},
    ]
    failed = await stage.run(playbook("asks", steps, workload={"order": "A-1"}))
    again = await stage.executions.rerun(failed.execution_id, RerunOptions(), BY)
    assert (await stage.executions.wait(again.execution_id, 60)).workload == {"order": "A-1"}


def test_the_traceback_of_a_task_is_shown_and_of_a_long_one_its_end() -> None:
    scenario = Scenario(HEAD + "workflow: [{step: work, tool: {name: act, kind: noop}}]\n")
    scenario.start()
    scenario.failed("work")
    history, text = history_of(scenario), f"{'x' * 9_000}\nValueError: no such order"
    [(run, failed)] = history.failed.items()
    outcome = replace(failed.fact.outcome, helper={"exception_type": "ValueError", "traceback": text})
    history.failed[run] = replace(failed, fact=replace(failed.fact, outcome=outcome))
    row = execution_row("execution-1", status="failed", finished_ms=1_004)
    assert ended.failure_of(row, history, scenario.plan).traceback == text[-8_000:]
