"""What people read of a task that waits for a slot: where it is, which key it waits for, and who has it."""

from __future__ import annotations

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.operations.cluster import limit_with_slots
from noetl_stream.ports.operations.executions import Start
from noetl_stream.server.inputs.inbox import CatchingUp
from noetl_testkit.simulation.work import playbook, work

LIMIT = {"policy": {"limit": {"key": "acme", "concurrency": 1}}}
LOOP = {"in": [1, 2], "iterator": "n", "spec": {"mode": "parallel"}}
SENDS = playbook(
    "sends",
    [{"step": "each", "loop": LOOP, "tool": [{"name": "send", **work("sent", 500.0), "spec": LIMIT}]}],
)


async def test_a_task_that_waits_for_a_slot_is_shown_with_its_key_place_and_holder(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=SENDS), BY)
    id = started.execution_id
    await stage.clock.sleep(5)
    (reason,) = [one for one in (await stage.executions.why(id)).reasons if one.kind == "limit"]
    assert reason.sentence == (
        "Task `send` of step `each`, iteration 1, waits for a slot of key `acme` of namespace `simulation`: it is "
        f"number 1 of 1 in the queue, 1 of 1 are held by execution {id}, step `each`, task `send`."
    )
    assert (reason.step, reason.task, reason.iteration) == ("each", "send", [1])
    (wait,) = (await stage.executions.get(id)).waits or []
    assert (wait.task, wait.iteration, wait.what) == ("send", [1], "a slot of key acme")
    places = {token.place for token in (await stage.views.state(id, None)).tokens}
    assert places == {"running", "limit"}
    limit = await limit_with_slots(stage.store, "acme")
    assert [(one.execution_id, one.step, one.task) for one in limit.holders] == [(id, "each", "send")]
    assert [(one.execution_id, one.step, one.task) for one in limit.waiting] == [(id, "each", "send")]


async def test_a_waiter_for_a_limit_that_catches_up_gets_that_reason(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_still_behind(*_: object) -> bool:
        return False

    monkeypatch.setattr(CatchingUp, "look", is_still_behind)
    id = (await stage.executions.start(Start(playbook=SENDS), BY)).execution_id
    await stage.clock.sleep(5)
    limit = await limit_with_slots(stage.store, "acme")
    assert (limit.catching_up, limit.held, limit.queued, limit.next_at) == (True, 0, 2, None)
    reasons = [one for one in (await stage.executions.why(id)).reasons if one.kind == "limit"]
    assert len(reasons) == 2
    for reason in reasons:
        assert reason.moves.startswith("Postgres has caught up with EVENTS")
        assert reason.waiting_on.slot is not None and reason.waiting_on.slot.catching_up
