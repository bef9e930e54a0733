from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.ports.stores.store import Tick
from noetl_testkit.conformance.store import StoreConformance
from noetl_testkit.conformance.store_rows import EndLeases
from noetl_testkit.memory.store import StagedStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> StagedStore:
    return StagedStore(clock)


@pytest.fixture
def end_leases(clock: ManualClock) -> EndLeases:
    async def advance_a_day() -> None:
        clock.advance(86_400)

    return advance_a_day


class TestMemoryStore(StoreConformance):
    async def test_a_tick_without_a_partition_cannot_be_fenced(self, store: StagedStore) -> None:
        with pytest.raises(ValueError, match="at least one partition"):
            await store.commit(Tick(owner="one", partitions=()))
