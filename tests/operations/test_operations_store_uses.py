"""How full the stores are, and when they will be, as a gateway watches them."""

from __future__ import annotations

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.errors import Unreachable
from noetl_stream.operations.doctor.readings import LEAST_S, LOOK_S, WINDOW_S, StoreWatch
from noetl_stream.ports.self_reports import NatsFacts, NatsStorage, StoreUse, StreamFacts
from noetl_testkit.memory.observation import MemoryDatabaseDiagnosis

MOST = 1_000_000


class Growing:
    """A NATS whose streams hold what a test says."""

    def __init__(self) -> None:
        self.bytes = 0
        self.is_away = False

    async def facts(self) -> NatsFacts:
        raise NotImplementedError

    async def stream(self, name: str) -> StreamFacts:
        return StreamFacts(name, exists=True, size_bytes=self.bytes, max_bytes=10 * MOST)

    async def storage(self) -> NatsStorage:
        if self.is_away:
            raise Unreachable("NATS does not answer")
        return NatsStorage(self.bytes, MOST, [StoreUse("nats-server n1:8222", self.bytes, None)])

    async def stored_since(self, stream: str, from_ms: int) -> int:
        raise NotImplementedError


class Stage:
    def __init__(self) -> None:
        self.clock, self.nats = ManualClock(), Growing()
        database = MemoryDatabaseDiagnosis(MemoryStore(self.clock), self.clock)
        self.watch = StoreWatch(self.nats, database, self.stored, self.clock, 5 * MOST)

    async def stored(self) -> dict[str, int]:
        return {"team/a": 120, "team/b": 3}

    async def look(self, *held: int) -> dict[str, StoreUse]:
        """What is seen after these numbers of bytes were seen, a minute apart."""
        for count in held:
            self.nats.bytes = count
            await self.watch.look()
            self.clock.advance(LOOK_S)
        return {one.name: one for one in self.watch.uses()}


async def test_each_store_is_seen_with_its_bound() -> None:
    found = await Stage().look(400)
    assert {name: (one.bytes, one.max_bytes) for name, one in found.items()} == {
        "EVENTS": (400, 10 * MOST),
        "COMMANDS": (400, 10 * MOST),
        "OBJECTS": (400, 10 * MOST),
        "LOGS": (400, None),
        "all streams": (400, MOST),
        "nats-server n1:8222": (400, None),
        "Postgres": (0, 5 * MOST),
        "objects of executions": (123, None),
    }


async def test_a_growing_store_has_a_time_until_it_is_full_and_others_have_none() -> None:
    stage, minutes = Stage(), int(LEAST_S / LOOK_S) + 1
    found = await stage.look(*(1_000 * number for number in range(minutes - 1)))
    assert found["all streams"].full_in_s is None, "a few minutes say nothing"
    found = await stage.look(1_000 * (minutes - 1))
    left = (MOST - 1_000 * (minutes - 1)) / 1_000 * LOOK_S
    assert found["all streams"].full_in_s == left
    assert found["EVENTS"].full_in_s == left + 9 * MOST / 1_000 * LOOK_S
    assert found["LOGS"].full_in_s is None is found["Postgres"].full_in_s
    found = await stage.look(*[1_000 * minutes] * int(WINDOW_S / LOOK_S + 1))
    assert found["all streams"].full_in_s is None, "it has not grown for an hour"


async def test_a_store_that_does_not_answer_is_left_out_until_it_does() -> None:
    stage = Stage()
    await stage.look(1, 2)
    stage.nats.is_away = True
    assert list(await stage.look(3)) == ["Postgres", "objects of executions"]
    stage.nats.is_away = False
    assert "all streams" in await stage.look(4)
