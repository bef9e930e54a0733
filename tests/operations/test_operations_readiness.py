"""What a gateway says that it lacks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.errors import NotReady, Unreachable
from noetl_stream.operations.cluster import DirectReadiness
from noetl_stream.protocol import subjects
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.store import StagedStore

NO_SERVER = "no server answers: start one with `noetl-stream server`"


async def missing(verify_log: Any = None, verify_store: Any = None, *, server: bool = True) -> list[str]:
    return await (await readiness(verify_log, verify_store, server=server)).missing()


async def readiness(verify_log: Any, verify_store: Any, *, server: bool = True) -> DirectReadiness:
    clock = simulated_clock()
    broker = StagedBroker(clock)
    log: Any = broker.event_log
    store: Any = StagedStore(clock)
    for port, verify in ((log, verify_log), (store, verify_store)):
        if verify is not None:
            port.verify = verify

    async def answer(_subject: str, _body: bytes, reply: str) -> None:
        broker.bus.send(reply, b"server-1")

    if server:
        await broker.bus.listen(subjects.PING, answer, "servers")
    return DirectReadiness(log, store, broker.bus)


def raising(error: Exception) -> Any:
    async def verify() -> None:
        raise error

    return verify


async def hanging() -> None:
    await simulated_clock().sleep(3600)


async def test_nothing_is_missing_where_all_answer() -> None:
    assert await missing() == []


async def test_a_server_is_missing_where_none_answers() -> None:
    assert await missing(server=False) == [NO_SERVER]


@pytest.mark.parametrize(
    ("verify", "words"),
    [
        (raising(Unreachable("cannot reach it at postgresql://ann@10.1.2.3")), "does not answer"),
        (raising(NotReady("the schema at 10.1.2.3 is older", hint="migrate it")), "is not prepared: migrate it"),
        (hanging, "does not answer within 5 s"),
    ],
)
async def test_each_store_is_named_without_its_address(verify: Any, words: str) -> None:
    assert await missing(verify, verify) == [f"NATS {words}", f"Postgres {words}"]


async def test_however_many_ask_each_store_is_asked_once() -> None:
    asked = []

    async def verify() -> None:
        asked.append(1)

    shared = await readiness(verify, verify)
    assert await asyncio.gather(*(shared.missing() for _ in range(100))) == [[]] * 100
    assert len(asked) == 2
