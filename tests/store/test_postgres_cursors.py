from __future__ import annotations

from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.ports.cursors import Cursor
from noetl_stream.testing.conformance.store_rows import committed, lease_of, taken


async def test_a_cursor_moves_where_nobody_owns_its_partition(postgres_store: PostgresStore) -> None:
    store, cursors = postgres_store, postgres_store.cursors
    await committed(store)
    folded = (await cursors.all())[0]
    assert folded == Cursor(0, 1, 1)
    assert await cursors.move([folded], [Cursor(0, 0, 0)]) == set()
    await store.give_back("one", [(0, 1)], [1])
    assert await cursors.move([Cursor(0, 7, 7)], [Cursor(0, 0, 0)]) == set()
    assert await cursors.move([folded], [Cursor(0, 0, 0)]) == {0}
    assert (await cursors.all())[0] == Cursor(0, 0, 0)
    (again,) = await taken(store, "two")
    assert again == lease_of(0, epoch=3, tick=1, published_tick=1, generation=1)
