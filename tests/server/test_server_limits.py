"""Limits by key in servers: who waits gets its slot in order, whatever becomes of who held it (LANGUAGE §15)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace
from server_stage import Stage

from noetl_stream.model.aggregates import LIMIT, LimitSlot, limit_id
from noetl_stream.model.events import (
    CancelRequested,
    PauseRequested,
    ResumeRequested,
    SlotGranted,
    SlotReleased,
    SlotRequested,
)
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.submit import RequestRefused
from noetl_stream.ports.stores.store import Tick
from noetl_testkit.simulation.work import playbook, then, work

KEY = limit_id("acme", "simulation")
ONE = {"key": "acme", "limit": 1}


def limited(name: str = "limited", takes_s: float = 5.0, **concurrency: Any) -> str:
    """A playbook of which one execution runs at a time, unless ``concurrency`` says otherwise."""
    spec = {"spec": {"policy": {"concurrency": {**ONE, **concurrency}}}}
    return playbook(name, [{"step": "only", "tool": work("done", takes_s)}], executor=spec)


def limited_step(name: str = "stepwise", takes_s: float = 5.0, **limit: Any) -> str:
    spec = {"policy": {"limit": {"key": "acme", **(limit or {"concurrency": 1})}}}
    steps: list[dict[str, Any]] = [
        {"step": "call", "spec": spec, "tool": work("called", takes_s), "next": then("after")},
        {"step": "after", "tool": work("done", 0.2)},
    ]
    return playbook(name, steps)


def running(stage: Stage) -> list[str]:
    """The executions that hold the key, in the order of asking."""
    rows = [row for row in stage.tables.limits.rows.values() if row.granted_ms is not None]
    return [row.execution_id for row in sorted(rows, key=lambda row: row.number)]


def waiting(stage: Stage) -> list[str]:
    rows = [row for row in stage.tables.limits.rows.values() if row.granted_ms is None]
    return [row.execution_id for row in sorted(rows, key=lambda row: row.number)]


async def queued(stage: Stage, count: int, source: str | None = None) -> list[str]:
    """Starts so many executions; the first holds the key, and the others wait in this order."""
    ids = []
    for _ in range(count):
        ids.append(await stage.submit(source or limited()))
        await stage.until(lambda: len(running(stage)) == 1 and len(waiting(stage)) == len(ids) - 1)
    return ids


async def test_executions_with_one_key_run_one_after_the_other_in_order(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    ids = await queued(stage, 3)
    assert running(stage) == ids[:1] and waiting(stage) == ids[1:]
    assert [stage.tables.executions[one].status for one in ids] == ["running", "waiting", "waiting"]
    ends = [(await stage.ended(one)).finished_ms or 0 for one in ids]
    assert ends == sorted(ends) and ends[1] - ends[0] >= 5000 and ends[2] - ends[1] >= 5000
    assert not running(stage) and not waiting(stage)
    assert await stage.rebuilt_differences() == []


async def test_an_idle_key_is_forgotten_and_used_again(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.ended(await stage.submit(limited()))
    assert [row.kind for row in stage.tables.aggregates.rows.values()] == [LIMIT]
    await stage.pass_time(70)
    assert not stage.tables.aggregates.rows and not stage.tables.timers
    await stage.ended(await stage.submit(limited()))


async def test_an_execution_cancelled_while_it_waits_leaves_the_queue(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    first, second, third = await queued(stage, 3)
    await stage.ask(second, CancelRequested("cancel"))
    assert (await stage.ended(second)).status == "cancelled"
    await stage.until(lambda: waiting(stage) == [third])
    assert (await stage.ended(third)).status == "completed"
    assert (await stage.ended(first)).status == "completed"


async def test_an_execution_cancelled_while_it_runs_gives_its_slot_to_the_next(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    first, second = await queued(stage, 2, limited(takes_s=50))
    await stage.ask(first, CancelRequested("cancel"))
    await stage.until(lambda: not waiting(stage))
    assert running(stage) == [second]


async def test_a_paused_execution_keeps_its_slot(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    first, second = await queued(stage, 2)
    await stage.ask(first, PauseRequested("pause"))
    await stage.pass_time(60)
    assert running(stage) == [first] and waiting(stage) == [second]
    await stage.ask(first, ResumeRequested("resume"))
    assert (await stage.ended(second)).status == "completed"


async def test_a_server_that_dies_loses_no_place_in_the_queue(stage: Stage) -> None:
    _, host, _ = stage.start_server()
    stage.start_worker()
    ids = await queued(stage, 3)
    host.kill()
    await stage.server()
    assert [(await stage.ended(one, 200)).status for one in ids] == ["completed"] * 3


async def test_a_worker_that_dies_leaves_the_slot_to_the_run_that_takes_over(stage: Stage) -> None:
    await stage.server()
    worker = stage.start_worker()
    first, second = await queued(stage, 2, limited_step())
    worker.kill()
    stage.start_worker()
    assert (await stage.ended(first, 200)).status == (await stage.ended(second, 200)).status == "completed"
    assert [type(fact) for fact in await stage.facts(first)].count(SlotRequested) == 1


async def test_runs_of_a_step_share_the_key_and_give_it_back_before_the_next_step(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    first, second = await queued(stage, 2, limited_step())
    assert stage.tables.executions[second].status == "waiting" and not stage.tables.executions[second].commands
    for one in (first, second):
        assert (await stage.ended(one)).status == "completed"
        kinds = [type(fact) for fact in await stage.facts(one)]
        assert [kinds.count(kind) for kind in (SlotRequested, SlotGranted, SlotReleased)] == [1, 1, 1]
    assert await stage.rebuilt_differences() == []


async def test_a_rate_spaces_the_runs_of_a_step(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    source = limited_step(takes_s=0.1, rate={"per_s": 0.5, "burst": 1})
    ids = [await stage.submit(source) for _ in range(4)]
    for one in ids:
        assert (await stage.ended(one)).status == "completed"
    granted = sorted([row.at_ms for one in ids for row in await stage.journal(one) if row.name == "slot.granted"])
    assert all(2000 <= after - before <= 3000 for before, after in pairwise(granted))
    assert not stage.tables.limits.rows


async def test_an_execution_that_may_not_wait_is_refused(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    first = await stage.submit(limited(takes_s=20))
    await stage.until(lambda: running(stage) == [first])
    rejected = await stage.ended(await stage.submit(limited("eager", on_limit="reject")))
    discarded = await stage.ended(await stage.submit(limited("humble", on_limit="discard")))
    assert (rejected.status, discarded.status) == ("failed", "cancelled")
    assert b"limit_reached" in (rejected.error or b"") and b"1 held" in (discarded.error or b"")


async def test_a_newer_execution_takes_the_place_of_the_one_that_runs(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    source = limited(takes_s=20, on_limit="cancel_running")
    first = await stage.submit(source)
    await stage.until(lambda: running(stage) == [first])
    second = await stage.submit(source)
    row = await stage.ended(first)
    assert row.status == "cancelled" and second.encode() in (row.error or b"")
    assert (await stage.ended(second)).status == "completed"


async def test_a_child_that_uses_the_key_of_its_caller_does_not_wait_for_it(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    child = await stage.register(limited("child", 1.0))
    call = {"kind": "playbook", "path": child}
    steps = [{"step": "call", "tool": [call]}]
    stage.kinds = {**stage.kinds}
    parent = await stage.submit(playbook("parent", steps, executor={"spec": {"policy": {"concurrency": ONE}}}))
    assert (await stage.ended(parent)).status == "completed"


async def test_each_key_has_a_queue_of_its_own(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await queued(stage, 4, limited(takes_s=30))
    other = await stage.submit(limited("other", 0.5, key="globex"))
    assert (await stage.ended(other)).status == "completed"
    assert len(waiting(stage)) == 3


async def test_the_newest_that_asks_says_how_many_and_is_warned(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    first, second = await queued(stage, 2, limited(takes_s=30))
    third = await stage.submit(limited("wider", takes_s=30, limit=3))
    await stage.until(lambda: running(stage) == [first, second, third])
    await stage.until(lambda: stage.tables.executions[third].commands)
    (granted,) = [fact for fact in await stage.facts(third) if isinstance(fact, SlotGranted)]
    assert "3 at once now, as playbook simulation/wider says; it was 1 at once" in granted.warning


async def test_an_abandoned_slot_is_given_back(stage: Stage) -> None:
    """Nothing gives back the slot of an execution that is not there: servers look for such slots."""
    await stage.server(slots_s=30.0)
    stage.start_worker()
    first = await stage.submit(limited(takes_s=1))
    await stage.until(lambda: running(stage) == [first])
    (row,) = stage.tables.limits.rows.values()
    ghost = LimitSlot(row.number, "ghost", granted_ms=row.granted_ms or 0)
    del stage.tables.limits.rows[row.limit_id, row.holder]
    stage.tables.limits.rows[KEY, "ghost"] = replace(
        row, holder="ghost", execution_id="ghost", body=codec.encode(ghost)
    )
    second = await stage.submit(limited())
    await stage.ended(first)
    assert running(stage) == ["ghost"] and waiting(stage) == [second]
    assert (await stage.ended(second)).status == "completed"


READS = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: reads, path: tests/reads }
workflow: [ { step: start, tool: { kind: noop, args: { due: "{{ execution.due }}" } } } ]
"""
UNDONE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: undone, path: tests/undone }
workflow:
  - step: start
    tool: { kind: noop }
    spec: { policy: { compensation: { tool: { kind: noop } } } }
"""
BOUNDED = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: bounded, path: tests/bounded }
executor: { spec: { policy: { quotas: { step_runs: 5 } } } }
workflow: [ { step: start, tool: { kind: noop } } ]
"""
PLACED = BOUNDED.replace("policy: { quotas: { step_runs: 5 } }", "placement: { required: { zone: eu } }")
EMITS = UNDONE.replace("compensation: { tool: { kind: noop } }", "emit: { events: [ { name: done } ] }")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (limited(), "has limits by key"),
        (READS, "reads `execution`"),
        (UNDONE, "has compensation or finally"),
        (BOUNDED, "has quotas"),
        (PLACED, "has a placement"),
        (EMITS, "emits events"),
    ],
    ids=["limits", "execution", "compensation", "quotas", "placement", "emit"],
)
async def test_no_playbook_that_an_older_server_does_not_know_starts_while_one_runs(
    stage: Stage, source: str, why: str
) -> None:
    server = await stage.server()
    await stage.store.real.appear("older", "0.3.0", 2, 3600.0)
    await stage.until(lambda: not server.formats.know_aggregates)
    try:
        await stage.submit(source)
    except RequestRefused as refused:
        assert f"the playbook {why}, and a server of an older version still runs" in refused.message
    else:
        raise AssertionError("it was accepted")


async def test_an_execution_without_a_limit_asks_for_none_however_many_keys_are_in_use(stage: Stage) -> None:
    await stage.server()
    stage.start_worker(slots=32)
    for number in range(20):
        await stage.submit(limited(takes_s=500, key=f"key-{number}"))
    await stage.until(lambda: sum(row.commands for row in stage.tables.executions.values()) == 20)
    ticks: list[Tick] = []
    stage.store.before_commit = ticks.append
    before = stage.tables.limits.rows.copy()
    await stage.ended(await stage.submit(playbook("plain", [{"step": "only", "tool": work("done", 0.2)}])))
    assert ticks and not any(tick.aggregates or tick.limit_slots or tick.inbox or tick.inbox_folded for tick in ticks)
    assert stage.tables.limits.rows == before
