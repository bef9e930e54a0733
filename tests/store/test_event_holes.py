"""Messages that a real nats-server has lost from the middle of EVENTS, with what a real Postgres has of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.streams import ensure_streams, stored_message
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.model.json import codec
from noetl_stream.protocol.subjects import EVENTS
from noetl_stream.server.upkeep.holes import HoleFinder
from noetl_testkit.conformance.store_rows import entry_row, execution_row, taken, tick_of
from noetl_testkit.waiting import TIMEOUT_S

MESSAGES = 20
LOST = 8
TOUCHED, LATER = "execution-touched", "execution-later"


@pytest.fixture
def server(tmp_path: Path) -> NatsServer:
    return NatsServer(tmp_path)


@pytest.fixture
async def connection(server: NatsServer) -> AsyncIterator[NatsConnection]:
    server.start()
    opened = await NatsConnection.open(server.url, name="test")
    await ensure_streams(opened)
    yield opened
    await opened.close()
    server.end()


@pytest.fixture
async def log(connection: NatsConnection) -> AsyncIterator[NatsEventLog]:
    opened = await NatsEventLog.open(connection, SystemClock(), heartbeat_s=0.2)
    yield opened
    await opened.close()


def flip_in_body(server_folder: Path) -> None:
    (block,) = server_folder.glob(f"nats-data/jetstream/*/streams/{EVENTS}/msgs/1.blk")
    content = block.read_bytes()
    at = content.index(b"body-%d." % LOST)
    block.write_bytes(content[:at] + b"B" + content[at + 1 :])


Damage = Callable[[], Awaitable[None]]


@pytest.fixture(params=["purged", "flipped"])
def damage(request: pytest.FixtureRequest, server: NatsServer, connection: NatsConnection, tmp_path: Path) -> Damage:
    """Loses one message: by a purge, of which NATS knows, or by a bit in its body, of which it does not."""

    async def purge() -> None:
        await connection.api(f"STREAM.PURGE.{EVENTS}", {"filter": f"noetl.events.*.run-{LOST}.>"})

    async def flip() -> None:
        restored = asyncio.Event()
        connection.on_restored(restored.set)
        server.stop()
        flip_in_body(tmp_path)
        server.start()
        async with asyncio.timeout(TIMEOUT_S):
            await restored.wait()

    return purge if request.param == "purged" else flip


async def test_a_message_lost_from_the_middle_is_named_once_and_the_journals_of_its_time_are_stored_again(
    log: NatsEventLog, connection: NatsConnection, postgres_store: PostgresStore, damage: Damage
) -> None:
    for number in range(1, MESSAGES + 1):
        await log.publish_request(f"run-{number}", f"request-{number}", b"body-%d." % number)
    (lease, *_) = leases = await taken(postgres_store, limit=32)
    lost_ms = await log.stored_at(LOST) or 0
    rows = [
        execution_row(TOUCHED, partition=lease.id, started_ms=lost_ms - 5, finished_ms=lost_ms),
        execution_row(LATER, partition=lease.id, started_ms=lost_ms + 3_600_000, finished_ms=None, commands=1),
    ]
    tick = tick_of("one", leases)
    moved = [replace(advance, last_seq=MESSAGES, last_ms=await log.stored_at(MESSAGES)) for advance in tick.partitions]
    entries = [entry_row(TOUCHED, 1), entry_row(LATER, 1)]
    await postgres_store.commit(replace(tick, partitions=moved, entries=entries, executions=rows))

    store = postgres_store
    finder, other = (
        HoleFinder(log, store, store.cursors, store.retention, store.dead_letters, SystemClock()) for _ in range(2)
    )
    await finder.look()
    assert finder.lost == 0
    await damage()
    await finder.look()
    await finder.look()
    await other.look()
    assert (finder.lost, other.lost) == (1, 0)
    (letter,) = await store.dead_letters.page(10, None)
    held = await log.held()
    read = "maybe before" if held.count == held.last else "after"
    assert letter.row.source_seq == LOST
    assert letter.row.reason == (
        f"EVENTS has lost its message {LOST}, {read} all had read it. "
        "Journals of that time that were written to it again: 1"
    )
    written = await stored_message(connection, EVENTS, {"seq": MESSAGES + 1})
    assert written is not None
    record = codec.decode_record(written.data)
    assert (record.execution, record.first_position) == (TOUCHED, 1)
    assert (await log.held()).last == MESSAGES + 1
