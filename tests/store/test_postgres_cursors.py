from __future__ import annotations

from msgspec.structs import replace

from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.ports.stores.cursors import Cursor, Repair
from noetl_testkit.conformance.store_rows import committed, lease_of, taken


async def test_a_cursor_is_repaired_by_the_owner_of_its_partition_or_where_there_is_none(
    postgres_store: PostgresStore,
) -> None:
    store, cursors = postgres_store, postgres_store.cursors
    await committed(store)
    folded = (await cursors.all())[0]
    assert folded == Cursor(0, 1, 1)
    lost = Repair(0, 1, 0, 0, published_tick=0)
    assert await cursors.repair([lost]) == set()
    assert await cursors.repair([lost], "two") == set()
    assert await cursors.repair([replace(lost, folded=7)], "one") == set()
    assert await cursors.repair([lost], "one") == {0}
    assert (await cursors.all())[0] == Cursor(0, 0, 0)
    (again,) = await taken(store, "two")
    assert again == lease_of(0, epoch=3, tick=1, generation=1)


async def test_a_repair_takes_over_the_ticks_and_epochs_that_events_has_heard_of(postgres_store: PostgresStore) -> None:
    await postgres_store.cursors.repair([Repair(0, 0, 5, 50, published_tick=7, tick=7, epoch=4)])
    (lease,) = await taken(postgres_store)
    assert lease == lease_of(0, epoch=6, tick=7, published_tick=7, last_seq=5, last_ms=50, generation=1)
