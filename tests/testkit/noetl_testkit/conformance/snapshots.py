"""Conformance of the snapshots of a :class:`~noetl_stream.ports.stores.store.Store` (PROTOCOL §5 *Snapshots*)."""

from __future__ import annotations

from msgspec.structs import replace

from noetl_stream.errors import Fenced
from noetl_stream.ports.stores.store import SnapshotRow, Store
from noetl_testkit.conformance.store_rows import committed, entry_row, execution_row, following, taken, tick_of
from noetl_testkit.waiting import expect_error


def snapshot_row(execution_id: str, position: int, body: bytes = b"\0body") -> SnapshotRow:
    return SnapshotRow(execution_id=execution_id, position=position, format=1, digest="digest", body=body)


class SnapshotConformance:
    """Snapshots are written with a tick, found from any position, and may be deleted."""

    async def test_the_last_snapshot_below_a_position_is_found(self, store: Store) -> None:
        rows = [snapshot_row("a", position, b"%d" % position) for position in (100, 200)]
        tick = await committed(store, snapshots=[rows[0], snapshot_row("b", 7)])
        await store.commit(following(tick, snapshots=[rows[1]]))
        assert await store.snapshots(["a", "b", "c"]) == {"a": rows[1], "b": snapshot_row("b", 7)}
        assert await store.snapshots(["a"], 199) == await store.snapshots(["a"], 100) == {"a": rows[0]}
        assert await store.snapshots(["a"], 99) == {}

    async def test_a_snapshot_that_is_in_the_way_is_replaced_and_refuses_no_tick(self, store: Store) -> None:
        tick = await committed(store, snapshots=[snapshot_row("a", 100)])
        again = replace(snapshot_row("a", 100), digest="another", format=2)
        await store.commit(following(tick, snapshots=[again]))
        assert await store.snapshots(["a"]) == {"a": again}

    async def test_a_tick_that_is_refused_writes_no_snapshot(self, store: Store) -> None:
        await expect_error(Fenced, store.commit(tick_of("two", await taken(store), snapshots=[snapshot_row("a", 1)])))
        assert await store.snapshots(["a"]) == {}

    async def test_a_large_tick_writes_its_snapshots(self, store: Store) -> None:
        entries = [entry_row("a", position) for position in range(1, 200)]
        await committed(store, entries=entries, snapshots=[snapshot_row("a", 199)])
        assert await store.snapshots(["a"]) == {"a": snapshot_row("a", 199)}

    async def test_snapshots_can_be_dropped(self, store: Store) -> None:
        await committed(store, snapshots=[snapshot_row("a", 100), snapshot_row("a", 200), snapshot_row("b", 1)])
        await store.drop_snapshots("a")
        assert await store.snapshots(["a", "b"]) == {"b": snapshot_row("b", 1)}

    async def test_snapshots_are_deleted_with_their_execution(self, store: Store) -> None:
        ended = execution_row("a", status="completed", finished_ms=2_000)
        rows = [snapshot_row("a", 1), snapshot_row("a", 2), snapshot_row("b", 1)]
        await committed(store, entries=[entry_row("a", 1)], executions=[ended], snapshots=rows)
        assert await store.delete_execution("a")
        assert await store.snapshots(["a", "b"]) == {"b": rows[2]}
