"""An order that is cancelled is undone, also in what it has called, and an operator can undo one later."""

from __future__ import annotations

import json
from typing import Any

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.errors import Conflict, UsageError
from noetl_stream.model.events import CancelRequested, SignalReceived
from noetl_stream.model.ids import undoing_of
from noetl_stream.ports.operations.executions import ExecutionDocument, RerunOptions, Start
from noetl_testkit.readers import reader_problems
from noetl_testkit.simulation.work import then, work


def undone_by(tool: Any) -> dict[str, Any]:
    return {"policy": {"compensation": {"tool": tool}}}


def playbook(name: str, workflow: list[dict[str, Any]], on: list[str] | None = None, **more: Any) -> str:
    more = {name.removesuffix("_"): value for name, value in more.items()}
    policy = {"compensation": {} if on is None else {"on": on}, **more}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"orders/{name}"}}
    return json.dumps({**head, "executor": {"spec": {"policy": policy}}, "workflow": workflow})


PAY = playbook("pay", [{"step": "charge", "tool": work({"charge": "c1"}), "spec": undone_by(work("{{ charge }}"))}])
CALL = {"kind": "playbook", "path": "orders/pay"}
CARRIER = {"kind": "wait", "signal": "carrier", "timeout_s": 3600}
STEPS = [
    {"step": "reserve", "tool": work(1), "spec": undone_by(work(2)), "next": then("pay")},
    {"step": "pay", "tool": CALL, "next": then("ship")},
    {"step": "ship", "tool": CARRIER},
]


async def ordered(stage: OperationsStage, source: str, pay: str = PAY) -> str:
    """An order that has been charged and waits for its carrier."""
    await stage.playbooks.register(pay.encode(), "pay", BY)
    found = await stage.executions.start(Start(playbook=source), BY)
    while "ship" not in [one.step for one in (await stage.executions.steps(found.execution_id))]:
        await stage.clock.sleep(0.1)
    await stage.until_status(found.execution_id, "waiting")
    return found.execution_id


def ran(stage: OperationsStage) -> list[str]:
    """The steps that have done something, in order."""
    return [effect.step for effect in stage.effects]


async def ended(stage: OperationsStage, execution_id: str) -> ExecutionDocument:
    return await stage.executions.wait(execution_id, 3600)


async def test_an_order_that_is_cancelled_is_refunded_and_released(stage: OperationsStage) -> None:
    order = await ordered(stage, playbook("order", STEPS))
    await stage.ask(order, CancelRequested, reason="the customer changed their mind")
    found = await ended(stage, order)
    assert (found.status, found.warnings) == ("cancelled", [])
    assert ran(stage) == ["reserve", "charge", "charge__compensation", "reserve__compensation"]
    assert found.undoes == ["reserve", "pay"]
    happened = {one.step: one.status for one in (await stage.views.graph(order)).steps}
    assert happened == {"reserve": "done", "pay": "done", "ship": "cancelled", "reserve__compensation": "done"}
    called, undoing = (await stage.views.calls(order, 10, None)).items
    assert (called.status, undoing.execution_id) == ("completed", undoing_of(called.execution_id))
    found = await stage.executions.get(undoing.execution_id)
    assert (found.status, found.rerun_of) == ("completed", called.execution_id)
    with pytest.raises(Conflict, match="were undone"):
        await stage.executions.rerun(order, RerunOptions(step="ship"), BY)


async def test_what_was_undone_is_run_again_from_the_first_of_it(stage: OperationsStage) -> None:
    """A retry would reuse what was undone, and is refused: no explanation names it."""
    broken = [
        *STEPS[:2],
        {"step": "ship", "tool": work(None, failures=1)},
        {"step": "note", "tool": work(1, failures=1)},
    ]
    await stage.playbooks.register(PAY.encode(), "pay", BY)
    started = await stage.executions.start(Start(playbook=playbook("order", broken, finally_="note")), BY)
    assert (await ended(stage, started.execution_id)).status == "failed"
    first, *others = (await stage.executions.why(started.execution_id)).reasons
    assert first.moves == f"`noetl-stream execution rerun {started.execution_id} reserve`, or from before it: " + (
        "what was undone is not reused"
    )
    [note] = [one for one in others if one.step == "note"]
    assert "which changes nothing, as it is the step of `finally`" in note.sentence
    with pytest.raises(Conflict, match="rerun from reserve"):
        await stage.executions.rerun(started.execution_id, RerunOptions(step="ship"), BY)
    assert (await stage.executions.rerun(started.execution_id, RerunOptions(step="reserve"), BY)).rerun_of


async def test_an_operator_undoes_an_order_that_has_ended_once(stage: OperationsStage) -> None:
    order = await ordered(stage, playbook("order", STEPS, on=[]))
    await stage.ask(order, CancelRequested, reason="the customer changed their mind")
    assert (await ended(stage, order)).status == "cancelled"
    assert ran(stage) == ["reserve", "charge"]
    undoing = await stage.executions.rerun(order, RerunOptions(undoes=True), BY)
    assert (undoing.execution_id, undoing.rerun_of) == (undoing_of(order), order)
    assert (await ended(stage, undoing.execution_id)).status == "completed"
    assert ran(stage) == ["reserve", "charge", "charge__compensation", "reserve__compensation"]
    with pytest.raises(Conflict, match=f"was undone by execution {undoing.execution_id}"):
        await stage.executions.rerun(order, RerunOptions(undoes=True), BY)
    with pytest.raises(Conflict, match="were undone by execution"):
        await stage.executions.rerun(order, RerunOptions(step="ship"), BY)
    with pytest.raises(Conflict, match="nothing is left to undo"):
        await stage.executions.rerun(undoing.execution_id, RerunOptions(undoes=True), BY)


async def test_a_call_that_could_not_be_undone_is_undone_by_an_operator_where_it_ran(stage: OperationsStage) -> None:
    refund = work("{{ charge }}", failures="{{ ctx.closed | default(1) }}")
    pay = playbook("pay", [{"step": "charge", "tool": work(1), "spec": undone_by(refund)}])
    order = await ordered(stage, playbook("order", STEPS), pay)
    await stage.ask(order, CancelRequested)
    assert (await ended(stage, order)).status == "cancelled"
    called, undoing = (await stage.views.calls(order, 10, None)).items
    assert undoing.status == "failed"

    again = (await stage.executions.rerun(order, RerunOptions(undoes=True), BY)).execution_id
    found = await ended(stage, again)
    assert found.status == "failed" and found.error is not None
    assert f"noetl-stream execution compensate {undoing.execution_id}" in found.error.message
    [failed, *_] = (await stage.executions.why(again)).reasons
    assert failed.moves == f"`noetl-stream execution compensate {again}`, which undoes what is left"

    mended = RerunOptions(undoes=True, ctx={"closed": 0})
    mending = await stage.executions.rerun(undoing.execution_id, mended, BY)
    assert (await ended(stage, mending.execution_id)).status == "completed"
    last = await stage.executions.rerun(again, RerunOptions(undoes=True), BY)
    assert (await ended(stage, last.execution_id)).status == "completed"
    assert ran(stage).count("reserve__compensation") == 1
    assert called.status == "completed"


async def test_a_rerun_of_what_undoes_nothing_looks_for_nothing_that_undid(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("noetl_stream.operations.executions.direct.find_undoing")
    order = await ordered(stage, playbook("order", [{"step": "pay", "tool": CALL, "next": then("ship")}, STEPS[-1]]))
    await stage.ask(order, CancelRequested)
    assert (await ended(stage, order)).status == "cancelled"
    again = await stage.executions.rerun(order, RerunOptions(step="ship"), BY)
    assert again.rerun_of == order


async def test_an_order_that_has_completed_is_not_undone(stage: OperationsStage) -> None:
    order = await ordered(stage, playbook("order", STEPS))
    await stage.ask(order, SignalReceived, signal="carrier")
    assert (await ended(stage, order)).status == "completed"
    with pytest.raises(Conflict, match="only one that failed or was cancelled is undone"):
        await stage.executions.rerun(order, RerunOptions(undoes=True), BY)


async def test_a_cancel_now_needs_a_reason_and_says_what_it_leaves(stage: OperationsStage) -> None:
    order = await ordered(stage, playbook("order", STEPS))
    with pytest.raises(UsageError, match="say why"):
        await stage.ask(order, CancelRequested, now=True)
    await stage.ask(order, CancelRequested, now=True, reason="audit")
    found = await ended(stage, order)
    assert [one.message for one in found.warnings or []] == [
        "pay is not undone: it was cancelled at once: audit",
        "reserve is not undone: it was cancelled at once: audit",
    ]
    assert ran(stage) == ["reserve", "charge"]


async def test_finally_runs_on_a_worker_with_the_end_in_scope(stage: OperationsStage) -> None:
    note = {"step": "note", "tool": work("{{ execution.status }} {{ execution.error.kind | default('-') }}")}
    order = await ordered(stage, playbook("order", [*STEPS, note], **{"finally": "note"}))
    await stage.ask(order, CancelRequested)
    assert (await ended(stage, order)).status == "cancelled"
    (run,) = [one for one in await stage.executions.steps(order) if one.step == "note"]
    assert (run.status, run.result) == ("done", "cancelled cancelled")


async def test_an_undoing_execution_shows_no_token_that_waited_there(stage: OperationsStage) -> None:
    never = {"policy": {"admit": {"rules": [{"when": "{{ ctx.go is defined }}", "then": {"allow": True}}]}}}
    steps = [
        {
            "step": "reserve",
            "tool": work(1),
            "spec": undone_by(work(2)),
            "next": then("held", "ship", mode="inclusive"),
        },
        {"step": "held", "spec": never, "tool": work(3)},
        STEPS[-1],
    ]
    order = await ordered(stage, playbook("held", steps, on=[]))
    await stage.ask(order, CancelRequested)
    assert (await ended(stage, order)).discarded_tokens == 1
    undoing = await stage.executions.rerun(order, RerunOptions(undoes=True), BY)
    assert (await ended(stage, undoing.execution_id)).status == "completed"
    assert await reader_problems(stage.store, undoing.execution_id) == []
