"""Snapshots of long executions are written with ticks, and change nothing that a server holds (PROTOCOL §5)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace
from server_stage import ONE_STEP, Stage
from waiting_stage import EXECUTION, GATE

from noetl_stream.engine.replay import replay
from noetl_stream.engine.snapshot import SNAPSHOT_FORMAT, decode_state, digest_of_snapshot, encode_state
from noetl_stream.model.events import CtxPatched
from noetl_stream.operations.executions.reading.states import state_at
from noetl_stream.ports.stores.store import SnapshotRow
from noetl_stream.server.assembly import StateBounds
from noetl_stream.server.memory import snapshots
from noetl_stream.server.server import Server

EVERY = 6


@pytest.fixture(autouse=True)
def often(stage: Stage) -> None:
    stage.states = StateBounds(snapshot_every=EVERY)


async def grow(stage: Stage, times: int, first: int = 0) -> None:
    """Patches the execution; each patch is at least one fact."""
    for number in range(first, first + times):
        await stage.ask(EXECUTION, CtxPatched(f"patch-{number}", patch={"n": number}))


async def long_one(stage: Stage) -> Server:
    server = await stage.server()
    await stage.request(EXECUTION, "request-1", GATE)
    await stage.until(lambda: EXECUTION in stage.tables.executions)
    await grow(stage, 2 * EVERY)
    await stage.pass_time(5)  # all records are published, so the next owner does not read them
    return server


def kept(stage: Stage) -> list[SnapshotRow]:
    return [row for _, row in sorted(stage.tables.snapshots.items())]


async def reads(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """After which position the journal is read, from now on."""
    found: list[int] = []
    read = stage.store.real.journals

    async def journals(after: Any, *limit: int) -> Any:
        found.extend(after.values())
        return await read(after, *limit)

    monkeypatch.setattr(stage.store.real, "journals", journals)
    return found


async def next_server(stage: Stage, before: Server) -> Server:
    """The next owner, which has loaded the execution."""
    before.stop()
    await stage.running[0]
    server = await stage.server()
    await server.executions.load([EXECUTION])
    return server


async def test_a_snapshot_holds_the_state_of_its_position(stage: Stage) -> None:
    await long_one(stage)
    journal = await stage.journal(EXECUTION)
    positions = [row.position for row in kept(stage)]
    assert len(positions) > 1 and all(after - before >= EVERY for before, after in pairwise(positions))
    for row in kept(stage):
        assert decode_state(row.body) == replay(EXECUTION, journal[: row.position])


async def test_a_short_execution_has_no_snapshot(stage: Stage) -> None:
    stage.states = StateBounds()
    await stage.server()
    stage.start_worker()
    await stage.ended(await stage.submit(ONE_STEP))
    assert kept(stage) == []


async def test_the_next_owner_reads_the_journal_from_the_last_snapshot_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await long_one(stage)
    found = await reads(stage, monkeypatch)
    second = await next_server(stage, server)
    assert found == [kept(stage)[-1].position]
    assert second.executions.state(EXECUTION) == await stage.state(EXECUTION)


def damaged(row: SnapshotRow) -> SnapshotRow:
    return replace(row, body=row.body[:-1] + b"]")


def of_an_earlier_format(row: SnapshotRow) -> SnapshotRow:
    return replace(row, format=SNAPSHOT_FORMAT - 1)


def beyond_the_journal(row: SnapshotRow) -> SnapshotRow:
    state = replace(decode_state(row.body), position=10_000)
    return with_body(replace(row, position=10_000), encode_state(state))


def with_body(row: SnapshotRow, body: bytes) -> SnapshotRow:
    return replace(row, body=body, digest=digest_of_snapshot(row.execution_id, row.position, body))


@pytest.mark.parametrize("spoil", [damaged, of_an_earlier_format, beyond_the_journal])
async def test_a_snapshot_that_does_not_fit_is_thrown_away_and_the_journal_replayed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, spoil: Any
) -> None:
    server = await long_one(stage)
    row = spoil(kept(stage)[-1])
    stage.tables.snapshots[EXECUTION, row.position] = row
    found = await reads(stage, monkeypatch)
    second = await next_server(stage, server)
    assert (found[0], second.snapshots.thrown_away, kept(stage)) == (0, 1, [])
    assert second.executions.state(EXECUTION) == await stage.state(EXECUTION)
    await grow(stage, EVERY, first=100)
    assert len(kept(stage)) == 1, "the next tick that is due writes another"


async def test_a_snapshot_of_a_newer_format_is_left_to_newer_servers(stage: Stage) -> None:
    server = await long_one(stage)
    row = replace(kept(stage)[-1], format=SNAPSHOT_FORMAT + 1)
    stage.tables.snapshots[EXECUTION, row.position] = row
    second = await next_server(stage, server)
    assert kept(stage)[-1] == row
    assert second.executions.state(EXECUTION) == await stage.state(EXECUTION)


@pytest.mark.parametrize("drawn", [True, False])
async def test_a_snapshot_that_is_drawn_is_compared_with_the_journal(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, drawn: bool
) -> None:
    """It says something that never was, under the right digest."""
    server = await long_one(stage)
    row = kept(stage)[-1]
    wrong = replace(decode_state(row.body), ctx={"never": True})
    stage.tables.snapshots[EXECUTION, row.position] = with_body(row, encode_state(wrong))
    monkeypatch.setattr(snapshots, "is_drawn", lambda digest: drawn)
    second = await next_server(stage, server)
    assert second.snapshots.thrown_away == drawn
    state = second.executions.state(EXECUTION)
    assert state is not None and (state == await stage.state(EXECUTION)) == drawn


async def test_a_snapshot_that_is_drawn_and_fits_is_used(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await long_one(stage)
    monkeypatch.setattr(snapshots, "is_drawn", lambda digest: True)
    monkeypatch.setattr(snapshots, "ENTRIES_AT_ONCE", 3)
    second = await next_server(stage, server)
    assert (second.snapshots.thrown_away, second.executions.state(EXECUTION)) == (0, await stage.state(EXECUTION))


async def test_a_state_too_large_for_a_snapshot_has_none_and_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MAX_SNAPSHOT_BYTES", 100)
    server = await long_one(stage)
    assert kept(stage) == [] and server.executions.state(EXECUTION) == await stage.state(EXECUTION)


async def test_large_states_are_kept_less_often(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots take no more space than the journal."""
    monkeypatch.setattr(snapshots, "BYTES_PER_FACT", 1)
    await long_one(stage)
    assert len(kept(stage)) == 1


async def test_the_state_at_any_position_is_that_of_the_nearest_snapshot_and_the_facts_from_there_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await long_one(stage)
    journal, store = await stage.journal(EXECUTION), stage.store.real
    first, last = kept(stage)[0], kept(stage)[-1]
    for position in range(len(journal) + 1):
        assert await state_at(store, EXECUTION, position) == replay(EXECUTION, journal[:position])
    read: list[int] = []
    whole = store.journal

    async def reading(execution_id: str, after: int, limit: int) -> Any:
        read.append(after)
        return await whole(execution_id, after, limit)

    monkeypatch.setattr(store, "journal", reading)
    await state_at(store, EXECUTION, last.position)
    assert read == []
    stage.tables.snapshots[EXECUTION, last.position] = damaged(last)
    assert await state_at(store, EXECUTION, last.position) == replay(EXECUTION, journal[: last.position])
    assert 0 not in read and first.position <= read[0] < last.position, "from the snapshot before it"


async def test_before_the_first_fact_and_without_an_execution_there_is_no_state(stage: Stage) -> None:
    await long_one(stage)
    assert await state_at(stage.store.real, EXECUTION, 0) is None
    assert await state_at(stage.store.real, "nobody", 10) is None
