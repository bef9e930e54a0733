"""Conformance of what a :class:`~noetl_stream.ports.stores.store.Store` knows of servers (PROTOCOL §5 *Poison*)."""

from __future__ import annotations

from operator import attrgetter

from msgspec.structs import replace

from noetl_stream.ports.stores.store import KnownServer, Store
from noetl_testkit.conformance.store_rows import LEASE_S


class ServerConformance:
    """Servers say which formats they read, and leave partitions to others."""

    async def test_servers_know_each_other_and_those_that_have_gone(self, store: Store) -> None:
        by_name = attrgetter("name")
        old, new = KnownServer("old", "1.0", 2, True), KnownServer("new", "1.1", 3, True)
        assert await store.appear("old", "1.0", 2, LEASE_S) == [old]
        assert sorted(await store.appear("new", "1.1", 3, LEASE_S), key=by_name) == [new, old]
        assert sorted(await store.appear("old", "1.0", 2, 0.0), key=by_name) == [new, replace(old, live=False)]

    async def test_a_partition_that_is_left_to_others_is_not_taken(self, store: Store) -> None:
        assert [lease.id for lease in await store.take_over("one", LEASE_S, 2, (), [0, 2])] == [1, 3]
