"""The memory that states take is bounded, and eviction changes nothing that is decided (PROTOCOL §7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from server_stage import ONE_STEP, Stage
from waiting_stage import EXECUTION, before_and_after, hear, is_waiting, rest, result_of, signal

from noetl_stream.errors import Unreachable
from noetl_stream.model.events import CancelRequested, PauseRequested, ResumeRequested
from noetl_stream.model.ids import digest_of
from noetl_stream.server.assembly import StateBounds
from noetl_stream.server.inputs import messages
from noetl_stream.server.memory.snapshots import EVICTED_BYTES
from noetl_stream.worker.child_playbooks import PlanClient
from noetl_testkit.simulation.work import playbook, work

LISTENS = playbook("listens", [{"step": "listen", "tool": [hear()]}])
RESTS = playbook("rests", [{"step": "patient", "tool": [rest(300)]}])
NO_ROOM = StateBounds(max_bytes=1)


async def waiting(stage: Stage, count: int) -> list[str]:
    """Executions that wait for a signal."""
    ids = [await stage.submit(LISTENS) for _ in range(count)]
    for one in ids:
        await is_waiting(stage, one)
    return ids


async def test_executions_that_wait_hold_no_more_than_the_bound(stage: Stage) -> None:
    stage.states = StateBounds(max_bytes=100_000)
    server = await stage.server()
    stage.start_worker()
    ids = await waiting(stage, 60)
    await stage.pass_time(1)
    executions = server.executions
    assert executions.size <= stage.states.max_bytes
    assert 0 < len(executions) < 60 and len(executions) + executions.evicted_count == 60
    for one in ids:
        await stage.ask(one, signal(payload=one))
        assert (await stage.ended(one)).status == "completed"
    assert (len(executions), executions.evicted_count, executions.size) == (0, 0, 0)


async def test_the_state_that_has_waited_longest_is_evicted_first(stage: Stage) -> None:
    stage.states = StateBounds(max_bytes=100_000)
    server = await stage.server()
    stage.start_worker()
    ids = []
    for _ in range(12):
        ids += await waiting(stage, 1)
    held = [one for one in ids if server.executions.get(one) is not None]
    assert held == ids[-len(held) :] and len(held) < 12


async def test_a_takeover_holds_no_more_than_the_bound(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await stage.server()
    stage.start_worker()
    ids = await waiting(stage, 30)
    first.stop()
    await stage.running[0]
    stage.states = NO_ROOM
    second = await stage.server()
    await stage.pass_time(1)
    assert (len(second.executions), second.executions.evicted_count) == (0, 30)
    assert second.executions.size == 30 * EVICTED_BYTES
    for one in ids:
        await stage.ask(one, signal())
        assert (await stage.ended(one)).status == "completed"


async def test_a_takeover_reads_no_journal_of_what_only_waits(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a timer is woken by it all the same, and what is paused when it is resumed."""
    first = await stage.server()
    stage.start_worker()
    timed, paused = [await stage.submit(RESTS) for _ in range(2)]
    (listening,) = await waiting(stage, 1)
    for one in (timed, paused):
        await is_waiting(stage, one)
    await stage.ask(paused, PauseRequested("pause-1"))
    await stage.pass_time(5)  # all records are published, so the next owner does not read them
    first.stop()
    await stage.running[0]
    read: list[str] = []
    journals = stage.store.real.journals

    async def reading(after: Any, *limit: int) -> Any:
        read.extend(after)
        return await journals(after, *limit)

    monkeypatch.setattr(stage.store.real, "journals", reading)
    second = await stage.server()
    await stage.pass_time(1)
    assert (read, second.executions.evicted_count, len(second.executions)) == ([], 3, 0)
    assert (await stage.ended(timed, 400)).status == "completed"
    await stage.pass_time(60)
    assert stage.tables.executions[paused].status == "paused"
    await stage.ask(paused, ResumeRequested("resume-1"))
    await stage.ask(listening, signal())
    for one in (paused, listening):
        assert (await stage.ended(one, 400)).status == "completed"


async def test_a_timer_of_an_execution_that_is_not_in_memory_fires(stage: Stage) -> None:
    stage.states = NO_ROOM
    server = await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", RESTS)
    await is_waiting(stage, EXECUTION)
    await stage.until(lambda: server.executions.is_evicted(EXECUTION))
    await stage.pass_time(290)
    assert server.executions.is_evicted(EXECUTION)
    assert (await stage.ended(EXECUTION)).status == "completed"


async def test_a_timer_whose_execution_cannot_be_loaded_fires_later(stage: Stage) -> None:
    stage.states = NO_ROOM
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", RESTS)
    await is_waiting(stage, EXECUTION)
    read = stage.store.real.journals
    left = [Unreachable("the store is away")] * 2

    async def journals(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return await read(*arguments)

    stage.store.real.journals = journals  # type: ignore[method-assign]
    assert (await stage.ended(EXECUTION, 400)).status == "completed"
    assert not left


async def test_a_lost_command_of_an_execution_that_is_not_in_memory_is_issued_again(stage: Stage) -> None:
    stage.states = NO_ROOM
    server = await stage.server(reconcile_s=2.0)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.until(lambda: server.executions.is_evicted(EXECUTION))
    (lost,) = await stage.broker.command_queue.present()
    stage.broker.command_queue.lose(lost)
    stage.start_worker()
    assert (await stage.ended(EXECUTION)).status == "completed"
    assert await stage.issues(EXECUTION) == [1, 2]


async def test_a_worker_is_answered_about_an_execution_that_is_not_in_memory(stage: Stage) -> None:
    stage.states = NO_ROOM
    server = await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    worker = await stage.manual_worker()
    command, _ = await worker.take()
    await stage.until(lambda: server.executions.is_evicted(EXECUTION))
    plan = await PlanClient(stage.kinds).load(command.digest, stage.asker(command))
    assert plan.digest == digest_of(ONE_STEP)
    assert server.executions.is_evicted(EXECUTION), "it is only read"


async def test_an_execution_that_is_not_in_memory_is_cancelled(stage: Stage) -> None:
    stage.states = NO_ROOM
    server = await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", RESTS)
    await is_waiting(stage, EXECUTION)
    await stage.until(lambda: server.executions.is_evicted(EXECUTION))
    await stage.ask(EXECUTION, CancelRequested("cancel-1"))
    assert (await stage.ended(EXECUTION)).status == "cancelled"


async def test_a_long_journal_that_leaves_little_does_not_count_in_full(stage: Stage) -> None:
    """The bound is on what a state holds, not on what its journal has seen."""
    steps = [
        {
            "step": "many",
            "loop": {"in": "{{ range(300) | list }}", "iterator": "n", "spec": {"mode": "parallel"}},
            "tool": [{"name": "one", **work("{{ 'x' * 2000 }}")}],
            "next": {"arcs": [{"step": "listen"}]},
        },
        {"step": "listen", "tool": [hear()]},
    ]
    stage.states = StateBounds(max_bytes=2_000_000)
    server = await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", playbook("long", steps))
    await stage.until(lambda: EXECUTION in stage.tables.executions)
    row = await is_waiting(stage, EXECUTION)
    await stage.pass_time(1)
    assert row.finished_ms is None
    assert server.executions.evictions == 0 and server.executions.get(EXECUTION) is not None


async def test_a_result_survives_eviction_in_between(stage: Stage) -> None:
    stage.states = StateBounds(max_bytes=1, snapshot_every=4)
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", before_and_after(hear()))
    await is_waiting(stage, EXECUTION)
    await stage.ask(EXECUTION, signal())
    assert result_of(await stage.ended(EXECUTION)) == "kept"


async def test_a_turn_loads_a_bounded_number_of_executions(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.states = NO_ROOM
    server = await stage.server()
    stage.start_worker()
    ids = await waiting(stage, 12)
    await stage.until(lambda: server.executions.evicted_count == 12)
    monkeypatch.setattr(messages, "LOADED_AT_ONCE", 3)
    loaded: list[int] = []
    load = server.executions.load

    async def loads(execution_ids: Any) -> None:
        wanted = list(execution_ids)
        await load(wanted)
        loaded.append(len(server.executions))

    monkeypatch.setattr(server.executions, "load", loads)
    await asyncio.gather(*(stage.ask(one, signal()) for one in ids))
    for one in ids:
        assert (await stage.ended(one)).status == "completed"
    assert max(loaded) <= 4
