from __future__ import annotations

import asyncio

import pytest

from noetl_stream.adapters.memory.store import MemoryStore
from noetl_stream.ports.store import Tick
from noetl_stream.testing.conformance_store import EndLeases, StoreConformance


class HeldClock:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def now_ms(self) -> int:
        return int(self.now_s * 1_000)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def store(clock: HeldClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def end_leases(clock: HeldClock) -> EndLeases:
    async def pass_a_day() -> None:
        clock.now_s += 86_400

    return pass_a_day


class TestMemoryStore(StoreConformance):
    async def test_a_tick_without_a_partition_cannot_be_fenced(self, store: MemoryStore) -> None:
        with pytest.raises(ValueError, match="at least one partition"):
            await store.commit(Tick("one", (), (), (), (), ()))
