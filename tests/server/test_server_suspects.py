"""Of what servers die, and of what they do not (PROTOCOL §5 *Poison*)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.engine.advance import advance
from noetl_stream.engine.replay import replay_entries
from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    ExecutionQuarantined,
    ExecutionRequested,
    Fact,
    ResumeRequested,
    SignalReceived,
    StepStarted,
    TimerFired,
)
from noetl_stream.model.ids import partition_of
from noetl_stream.ports.stores.store import Tick
from noetl_stream.server.inputs.quarantine import SUSPECTED, UNLOADABLE
from noetl_stream.server.memory import snapshots
from noetl_stream.server.ownership.partitions import CAREFUL_FROM, LOADING, SOUND_AFTER, SUSPICIONS
from noetl_stream.server.server import Server
from noetl_stream.server.ticks import fold
from noetl_testkit.entries import names_in
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import JOBS, playbook

POISON = "execution-poison"
OTHERS = [f"execution-{number}" for number in range(10)]
NEIGHBOURS = [one for one in (f"neighbour-{n}" for n in range(9000)) if partition_of(one) == partition_of(POISON)]
RESTS = playbook("rests", [{"step": "rest", "tool": [{"name": "rest", "kind": "wait", "for_s": 9}]}])
DEATHS = CAREFUL_FROM + SUSPICIONS
"""After two a partition is folded with care; three more, in a row, find the suspect."""


def kills(monkeypatch: pytest.MonkeyPatch, fact: type[Fact]) -> None:
    """Makes every server die that folds such a fact of :data:`POISON`."""

    def fails(plan: Any, state: Any, recorded: RecordedFact, execution_id: str, **others: Any) -> Any:
        if execution_id == POISON and isinstance(recorded.fact, fact):
            raise RuntimeError("a defect of the fold")
        return advance(plan, state, recorded, execution_id, **others)

    monkeypatch.setattr(fold, "advance", fails)


async def deaths(stage: Stage, is_over: Callable[[], bool], each_life: Callable[[int], Any] | None = None) -> int:
    """Starts a server whenever one has died, until ``is_over``. Returns how many died."""
    died = 0
    while not is_over():
        if each_life is not None:
            await each_life(died)
        _, _, task = stage.start_server()
        await stage.until(lambda task=task: task.done() or is_over())
        if task.done():
            assert isinstance(task.exception(), RuntimeError)
            stage.running.remove(task)
            died += 1
    return died


def is_set_aside(stage: Stage) -> bool:
    row = stage.tables.executions.get(POISON)
    return row is not None and row.status == "quarantined"


async def none_is_quarantined(stage: Stage) -> bool:
    facts = [fact for one in stage.tables.executions for fact in await stage.facts(one)]
    return not any(isinstance(fact, ExecutionQuarantined) for fact in facts)


async def test_an_execution_that_servers_die_of_is_quarantined_and_all_others_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills(monkeypatch, StepStarted)
    stage.start_worker()
    for one in (*OTHERS[:5], POISON, *OTHERS[5:]):
        await stage.request(one, f"request-{one}", ONE_STEP)
    assert await deaths(stage, lambda: is_set_aside(stage)) == DEATHS
    for one in OTHERS:
        assert (await stage.ended(one)).status == "completed"
    (fact,) = [one for one in await stage.facts(POISON) if isinstance(one, ExecutionQuarantined)]
    assert fact.reason == SUSPECTED
    assert stage.tables.partitions[partition_of(POISON)].suspicions == 0
    monkeypatch.undo()
    await stage.ask(POISON, ResumeRequested("resume-1"))
    assert (await stage.ended(POISON)).status == "completed", "it goes on once the defect is mended"


def kills_on_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every server die that reads the journal of :data:`POISON`."""

    def fails(execution_id: str, journal: Any, state: Any) -> Any:
        if execution_id == POISON:
            raise RuntimeError("a defect of the replay")
        return replay_entries(execution_id, journal, state)

    monkeypatch.setattr(snapshots, "replay_entries", fails)


async def begun(stage: Stage, for_s: float = 9) -> None:
    """Executions that rest, four of them of one partition; their server is killed."""
    stage.start_worker()
    _, host, _ = stage.start_server()
    for one in (*NEIGHBOURS[:3], POISON, *OTHERS):
        await stage.request(one, f"request-{one}", RESTS.replace('"for_s": 9', f'"for_s": {for_s}'))
    rows = stage.tables.executions
    await stage.until(lambda: all(one in rows and rows[one].status == "waiting" for one in (*NEIGHBOURS[:3], POISON)))
    host.kill()
    crashed(stage)


async def test_an_execution_that_servers_die_of_when_they_load_it_is_quarantined_and_all_others_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(stage)
    kills_on_loading(monkeypatch)
    before = stage.tables.executions[POISON]
    assert await deaths(stage, lambda: is_set_aside(stage)) <= DEATHS
    row = stage.tables.executions[POISON]
    assert (row.ctx, row.path, row.started_ms) == (before.ctx, before.path, before.started_ms)
    for one in (*NEIGHBOURS[:3], *OTHERS):
        assert (await stage.ended(one)).status == "completed"
    (fact,) = [one for one in await stage.facts(POISON) if isinstance(one, ExecutionQuarantined)]
    assert fact.reason == UNLOADABLE
    assert stage.tables.partitions[partition_of(POISON)].suspicions == 0


async def test_a_quarantined_execution_is_not_loaded_until_it_is_resumed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(stage)
    kills_on_loading(monkeypatch)
    await deaths(stage, lambda: is_set_aside(stage))
    server, _, serving = stage.start_server()
    await stage.until(lambda: len(server.ownership) == 16)
    assert UNLOADABLE in str(await stage.ask(POISON, SignalReceived("signal", signal="go", payload=None)))
    assert not serving.done()
    monkeypatch.undo()
    await stage.ask(POISON, ResumeRequested("resume"))
    assert (await stage.ended(POISON)).status == "completed", "it goes on once the defect is mended"


async def test_an_execution_that_loads_well_is_not_suspected(stage: Stage) -> None:
    await begun(stage, 300)
    partition = stage.tables.partitions[partition_of(POISON)]
    for _ in range(DEATHS):
        partition.given_back, partition.crashes, partition.owner = False, CAREFUL_FROM, "dead"
        partition.folding = f"{LOADING}{POISON}"  # as if it had died there
        server, host, _ = stage.start_server()
        await stage.until(lambda server=server: server.executions.state(POISON) is not None)
        await stage.until(lambda: partition.suspicions == 0)
        host.kill()
    await stage.server()
    assert (await stage.ended(POISON, 600)).status == "completed"


async def test_a_start_that_servers_die_of_is_refused_and_kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    kills(monkeypatch, ExecutionRequested)
    stage.start_worker()
    body = await stage.request(POISON, "request-1", ONE_STEP)
    await stage.request(OTHERS[0], "request-2", ONE_STEP)
    assert await deaths(stage, lambda: (POISON, "request-1") in stage.tables.requests) == DEATHS
    assert (await stage.ended(OTHERS[0])).status == "completed"
    (letter,) = await stage.store.real.dead_letters.page(100, None)
    kept = await stage.store.real.dead_letters.get(letter.row.id)
    assert kept is not None and kept.row.body == body and POISON not in stage.tables.executions
    assert stage.tables.partitions[partition_of(POISON)].suspicions == 0


async def test_a_timer_that_servers_die_of_is_found_in_a_partition_where_all_else_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills(monkeypatch, TimerFired)
    stage.start_worker()
    await stage.request(POISON, "request-1", RESTS)

    async def begin_others(died: int) -> None:
        for number in range(died * 40, died * 40 + 40):
            await stage.request(NEIGHBOURS[number], f"request-of-{number}", ONE_STEP)

    assert await deaths(stage, lambda: is_set_aside(stage), begin_others) == DEATHS
    for one in NEIGHBOURS[: DEATHS * 40]:
        assert (await stage.ended(one)).status == "completed"


def crashed(stage: Stage) -> None:
    """Owners of all partitions have died: the next ones fold with care."""
    for row in stage.tables.partitions:
        row.crashes, row.given_back = CAREFUL_FROM - 1, False


async def careful(stage: Stage) -> Server:
    """A server that folds every partition with care."""
    crashed(stage)
    return await stage.server()


async def test_care_ends_after_a_few_sound_turns(stage: Stage) -> None:
    stage.start_worker()
    server = await careful(stage)
    row = stage.tables.partitions[partition_of(POISON)]
    assert server.ownership.is_careful(row.id)
    for one in NEIGHBOURS[: SOUND_AFTER + 1]:
        await stage.request(one, f"request-{one}", ONE_STEP)
        await stage.ended(one)
    assert not server.ownership.is_careful(row.id)
    assert (row.crashes, row.folding, row.suspicions) == (0, None, 0)


async def test_care_for_an_idle_partition_slows_no_other_down(stage: Stage) -> None:
    idle = stage.tables.partitions[partition_of(POISON)]
    idle.crashes, idle.given_back = CAREFUL_FROM - 1, False
    ones = [one for one in OTHERS if partition_of(one) != idle.id]
    for one in ones:
        await stage.request(one, f"request-{one}", ONE_STEP)
    begun: list[int] = []

    def count(tick: Tick) -> None:
        begun.append(names_in(tick).count("execution.requested"))

    stage.store.before_commit = count
    server = await stage.server()
    await stage.until(lambda: sum(begun) == len(ones))
    assert server.ownership.is_careful(idle.id) and max(begun) > 1


async def test_care_leaves_time_to_renew_the_leases(stage: Stage) -> None:
    for one in NEIGHBOURS[:100]:
        await stage.request(one, f"request-{one}", ONE_STEP)
    set_folding = stage.store.real.set_folding

    async def slow(*arguments: Any) -> None:
        await stage.clock.sleep(0.2)
        await set_folding(*arguments)

    stage.store.real.set_folding = slow  # type: ignore[method-assign]
    stage.start_worker()
    server = await careful(stage)
    assert server.ownership.is_careful(partition_of(POISON))
    for one in NEIGHBOURS[:100]:
        assert (await stage.ended(one, 600)).status == "completed"
    assert {row.epoch for row in stage.tables.partitions} == {1}


async def test_an_execution_folded_without_a_tick_is_not_suspected(stage: Stage) -> None:
    server = await careful(stage)
    row = stage.tables.partitions[partition_of(POISON)]
    async with server.ownership.folding_alone(POISON):
        assert row.folding == POISON
    assert row.folding is None


class Slow(FaultInjector):
    """Every call of the store takes its time, so that servers die inside calls too."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point.startswith("store."):
            await self._stage.clock.sleep(0.05)


async def test_an_execution_folded_in_every_turn_is_not_suspected_because_servers_are_killed_repeatedly(
    stage: Stage,
) -> None:
    random = Random(1)
    stage.start_worker()
    crashed(stage)
    (job,) = [one for one in JOBS if one.name == "nested"]
    found = 0
    for life in range(12):
        await stage.request(NEIGHBOURS[life], f"request-{life}", job.source)
        server, host, _ = stage.start_server(stage.host("server", Slow(stage)))
        await stage.until(lambda server=server: partition_of(POISON) in server.ownership.ids)
        found += stage.tables.partitions[partition_of(POISON)].suspicions
        await stage.pass_time(random.uniform(0.5, 3))
        host.kill()
    assert found, "some were killed while they folded"
    await stage.server()
    for one in NEIGHBOURS[:12]:
        assert (await stage.ended(one)).status == "completed"
    assert await none_is_quarantined(stage)


@pytest.mark.parametrize("frozen_s", [0, 5])
async def test_an_owner_that_is_heard_of_has_not_died_when_it_loses_a_lease(stage: Stage, frozen_s: float) -> None:
    first = await stage.server()
    second, host, _ = stage.start_server()
    await stage.until(lambda: len(first.ownership) == len(second.ownership) == 16)
    lost, *_ = [row for row in stage.tables.partitions if row.owner == host.name]
    if frozen_s:
        host.freeze()
    await stage.pass_time(frozen_s)
    stage.expire(lost.id)
    await first.ownership.take(1, 6.0, stage.clock.monotonic_s())
    assert lost.owner == first.owner
    assert lost.crashes == (1 if frozen_s else 0)


async def test_a_partition_given_back_while_it_is_folded_with_care_suspects_none(stage: Stage) -> None:
    stage.start_worker()
    server = await careful(stage)
    await stage.request(POISON, "request-1", ONE_STEP)
    row = stage.tables.partitions[partition_of(POISON)]
    await server.ports.store.set_folding(server.owner, row.id, row.epoch, POISON)
    server.stop()
    await stage.running[-1]
    await stage.server()
    assert (row.folding, row.suspicions, row.crashes) == (None, 0, CAREFUL_FROM)
    assert (await stage.ended(POISON)).status == "completed"


async def test_a_message_under_the_subject_of_another_partition_moves_no_cursor_back(stage: Stage) -> None:
    number = partition_of(POISON)
    stray = next(one for one in OTHERS if partition_of(one) != number)
    row = stage.tables.partitions[number]
    row.crashes, row.given_back = CAREFUL_FROM - 1, False  # folded with care, as the partition of the stray is not
    await stage.request(POISON, "request-first", ONE_STEP)
    last = stage.broker.event_log.store_stray(number, stray, b"garbage")
    cursors: list[int] = []

    def note(tick: Tick) -> None:
        cursors.extend(one.last_seq for one in tick.partitions if one.id == number)

    stage.store.before_commit = note
    stage.start_server()
    await stage.until(lambda: last in cursors and POISON in stage.tables.executions)
    assert cursors == sorted(cursors)
    (letter,) = await stage.store.real.dead_letters.page(10, None)
    assert letter.row.execution_id == stray
