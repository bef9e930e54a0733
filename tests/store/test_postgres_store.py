from __future__ import annotations

from typing import Any

import pytest

from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.ports.stores.store import Tick
from noetl_testkit.conformance.store import StoreConformance
from noetl_testkit.conformance.store_rows import EndLeases


@pytest.fixture
def store(postgres_store: PostgresStore) -> PostgresStore:
    return postgres_store


@pytest.fixture
def end_leases(watcher: Any) -> EndLeases:
    async def set_into_the_past() -> None:
        await watcher.execute(
            "update noetl.partition set lease_until = now() - interval '1 second' where owner is not null"
        )

    return set_into_the_past


class TestPostgresStore(StoreConformance):
    async def test_a_tick_without_a_partition_cannot_be_fenced(self, store: PostgresStore) -> None:
        with pytest.raises(ValueError, match="at least one partition"):
            await store.commit(Tick(owner="one", partitions=()))
