"""EVENTS is trimmed on a real nats-server, with the floor and the journals in a real Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

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
from noetl_stream.server.journal_records import disagreements
from noetl_stream.server.upkeep.upkeep import Trimmer
from noetl_stream.settings.retention_periods import RetentionSettings
from noetl_testkit.conformance.store_rows import entry_row, execution_row, taken, tick_of

LIVING, ENDED = "execution-living", "execution-ended"
MESSAGES = 40


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[NatsConnection]:
    server = NatsServer(tmp_path)
    server.start()
    opened = await NatsConnection.open(server.url, name="test")
    await ensure_streams(opened)
    yield opened
    await opened.close()
    server.kill()


@pytest.fixture
async def log(connection: NatsConnection) -> AsyncIterator[NatsEventLog]:
    opened = await NatsEventLog.open(connection, SystemClock())
    yield opened
    await opened.close()


def trimmer_of(log: NatsEventLog, store: PostgresStore, max_bytes: int) -> Trimmer:
    """One that leaves nothing alone because it is young."""
    settings = RetentionSettings(events_max_bytes=max_bytes)
    return Trimmer(log, store, store.cursors, store.retention, SystemClock(), settings, kept_ms=-3_600_000)


async def test_messages_go_up_to_the_floor_once_the_journal_that_lives_is_stored_again(
    log: NatsEventLog, connection: NatsConnection, postgres_store: PostgresStore, watcher: Any
) -> None:
    for number in range(MESSAGES):
        await log.publish_request(ENDED, f"request-{number}", b'"' + b"x" * 1_000 + b'"')
    (lease, *_) = leases = await taken(postgres_store, limit=32)
    entries = [entry_row(LIVING, 1), entry_row(LIVING, 2, decisions=b"[]"), entry_row(ENDED, 1)]
    rows = [
        execution_row(LIVING, partition=lease.id, started_ms=1, finished_ms=None, commands=1),
        execution_row(ENDED, partition=lease.id, started_ms=1, finished_ms=2),
    ]
    at_ms = await log.stored_at(MESSAGES) or 0
    tick = tick_of("one", leases)
    moved = [replace(advance, last_seq=MESSAGES, last_ms=at_ms) for advance in tick.partitions]
    await postgres_store.commit(replace(tick, partitions=moved, entries=entries, executions=rows))
    held = await log.stored_bytes()

    trimmer = trimmer_of(log, postgres_store, held - 1)
    through = await trimmer.trim()
    assert 0 < through < MESSAGES - 1
    assert await log.first_sequence() == through + 1
    assert await watcher.fetchval("select events_floor from noetl.meta") == through
    assert await log.stored_bytes() < held * 0.7
    stored = await stored_message(connection, EVENTS, {"last_by_subj": "noetl.events.*.*.checkpoint"})
    assert stored is not None
    record = codec.decode_record(stored.data)
    held_entries = [codec.decode_entry(raw) for raw in record.entries]
    assert (record.execution, record.first_position) == (LIVING, 1)
    assert [bytes(entry.facts) for entry in held_entries] == [entry.data for entry in entries[:2]]
    assert await trimmer.trim() == 0
    assert await disagreements(log, postgres_store, postgres_store.cursors) == []
