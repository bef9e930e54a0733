"""Events that a step emits, in a server: in the journal once, and told to triggers (LANGUAGE §7, §15)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.engine.effects import TellOfEvent
from noetl_stream.errors import NoetlError, OutcomeUnknown
from noetl_stream.model.aggregates import EmittedEvents, EventEmitted, TriggerRegistered, TriggerTerms, aggregate_id
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import ExecutionRequested, StepEmitted
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.submit import ask_aggregate
from noetl_stream.server.ticks.watching import MAX_TOLD_BYTES, READ_EVERY_S, WatchingTriggers

SHIPPING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: ship, path: shop/ship, version: "3" }
workload: { order: 7 }
workflow:
- step: ship
  tool: { kind: noop }
  spec:
    policy:
      emit:
        events:
        - { name: taken, on: [ started ] }
        - { name: order_shipped, data: { order: "{{ workload.order }}" } }
"""


async def waits_for(stage: Stage, name: str, path: str = "shop/*", trigger: str = "ops/shipped") -> str:
    """Registers a playbook of one step, and a trigger on an event that starts it; returns the playbook's path."""
    starts = await stage.register(ONE_STEP)
    terms = TriggerTerms(
        playbook=starts, event=EmittedEvents(name=name, path=path), workload={"of": "{{ event.data.order }}"}
    )
    fact = TriggerRegistered("register", trigger, terms=terms, revision=1)
    await ask_aggregate(stage.requests, stage.broker.bus, stage.clock, "starter", fact)
    await stage.pass_time(2 * READ_EVERY_S)
    return starts


async def heard(stage: Stage, trigger: str = "ops/shipped") -> list[dict[str, Any]]:
    """The events that a trigger was told of, oldest first."""
    rows = await stage.store.real.aggregate_history(aggregate_id("starter", trigger), 1000, None)
    return [codec.decode_json(row.body)["event"] for row in reversed(rows)]


async def test_an_event_that_a_step_emits_is_in_the_journal_and_starts_what_waits_for_it(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    starts = await waits_for(stage, "order_shipped")
    await waits_for(stage, "order_lost", trigger="ops/lost")
    await waits_for(stage, "order_shipped", "other/*", trigger="ops/other")
    first = await stage.submit(SHIPPING)
    await stage.ended(first)
    await stage.pass_time(10)
    [follower] = stage.tables.executions.keys() - {first}
    row = await stage.ended(follower)
    asked = (await stage.facts(follower))[0]
    assert isinstance(asked, ExecutionRequested) and (row.path, asked.workload) == (starts, {"of": 7})
    assert [fact.event for fact in await stage.facts(first) if isinstance(fact, StepEmitted)] == [
        "taken",
        "order_shipped",
    ]
    [event] = await heard(stage)
    assert event.pop("id").startswith(f"{first}.") and event.pop("time") <= iso(stage.clock.now_ms())
    assert event == {
        "name": "order_shipped",
        "execution_id": first,
        "path": "shop/ship",
        "version": "3",
        "step": "ship",
        "data": {"order": 7},
    }
    assert await heard(stage, "ops/lost") == await heard(stage, "ops/other") == []


@pytest.mark.parametrize("moment", ["before_commit", "after_commit"])
async def test_an_event_whose_server_dies_around_its_commit_is_emitted_and_delivered_once(
    stage: Stage, moment: str
) -> None:
    _, host, _ = stage.start_server()
    await stage.until(lambda: len(stage.store.real.tables.servers) > 0)
    stage.start_worker()
    await waits_for(stage, "order_shipped")
    dead = asyncio.Event()

    def die(tick: Any) -> NoetlError | None:
        if not any(b"event_emitted" in row.body for row in tick.inbox) or dead.is_set():
            return None
        dead.set()
        return OutcomeUnknown("the connection broke")

    setattr(stage.store, moment, die)
    first = await stage.submit(SHIPPING)
    await stage.until(dead.is_set)
    host.kill()
    await stage.pass_time(10)
    await stage.server()
    await stage.ended(first)
    await stage.pass_time(10)
    emitted = [fact.event for fact in await stage.facts(first) if isinstance(fact, StepEmitted)]
    assert emitted == ["taken", "order_shipped"]
    assert len(await heard(stage)) == 1 and len(stage.tables.executions) == 2


async def test_events_that_postgres_has_lost_are_delivered_again_and_start_the_former_executions(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    await stage.until(lambda: len(stage.store.real.tables.servers) > 0)
    stage.start_worker()
    await waits_for(stage, "order_shipped")
    before = stage.store.real.dump()
    first = await stage.submit(SHIPPING)
    await stage.ended(first)
    await stage.until(lambda: len(stage.tables.executions) == 2)
    was_started = set(stage.tables.executions)
    host.kill()
    stage.store.real.restore(before)
    await stage.server()
    await stage.pass_time(30)
    assert len(await heard(stage)) == 1
    assert set(stage.tables.executions) == was_started


async def test_half_of_what_is_left_to_an_execution_is_split_among_those_that_wait_for_its_event(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    for number in range(2):
        await waits_for(stage, "order_shipped", trigger=f"ops/shipped{number}")
    running = await stage.submit(SHIPPING)
    await stage.ended(running)
    await stage.pass_time(10)
    after = await stage.state(running)
    assert after is not None
    triggers = WatchingTriggers(stage.store)
    await triggers.refresh(0)
    fact = StepEmitted("run", "ship", "order_shipped", "completed")
    told = [one.message.fact for one in triggers.event_messages(after, TellOfEvent(fact, 9), {}, after.at_ms)]
    shares = [(one.share, one.depth, one.emitted.id) for one in told if isinstance(one, EventEmitted)]
    assert shares == [(250, 1, f"{running}.9")] * 2


async def test_an_event_for_very_many_triggers_is_delivered_without_large_data(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    for number in range(100):
        await waits_for(stage, "order_shipped", trigger=f"ops/shipped{number}")
    running = await stage.submit(SHIPPING)
    await stage.ended(running)
    after = await stage.state(running)
    assert after is not None
    triggers = WatchingTriggers(stage.store)
    await triggers.refresh(0)
    fact = StepEmitted("run", "ship", "order_shipped", "completed", {"text": "x" * 200_000})
    told = list(triggers.event_messages(after, TellOfEvent(fact, 9), {}, after.at_ms))
    events = [one.message.fact.emitted for one in told if isinstance(one.message.fact, EventEmitted)]
    assert [(event.data, event.omitted) for event in events] == [({}, ["data"])] * 100
    assert sum(one.size for one in told) < MAX_TOLD_BYTES
