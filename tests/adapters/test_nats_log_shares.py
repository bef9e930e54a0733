"""On a real nats-server, whose LOGS drops its oldest messages, one namespace cannot erase the lines of another."""

from __future__ import annotations

import asyncio

import pytest

from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import LogsBounds, ensure_streams
from noetl_stream.adapters.nats.task_logs import NatsTaskLogs
from noetl_stream.protocol.subjects import named_in_logs, task_logs
from noetl_stream.server.upkeep.log_shares import LogTrimmer
from noetl_testkit.conformance.task_logs import everything, stored

MAX_BYTES = 1 << 20
LINES = b"x" * 60_000


async def write(logs: NatsTaskLogs, namespace: str, first: int, count: int, body: bytes = LINES) -> None:
    subject = task_logs("default", f"of-{namespace}", named_in_logs(namespace))
    published = (stored(logs, subject, f"{namespace}.{number}", body) for number in range(first, first + count))
    assert set(await asyncio.gather(*published)) == {""}


@pytest.mark.parametrize("is_trimmed", [True, False])
async def test_a_flood_of_a_namespace_leaves_the_lines_of_another(connection: NatsConnection, is_trimmed: bool) -> None:
    await ensure_streams(connection, logs=LogsBounds(max_bytes=MAX_BYTES))
    logs = await NatsTaskLogs.open(connection)
    trimmer = LogTrimmer(logs)
    await write(logs, "quiet", 0, 3, b"mine")
    for number in range(0, 60, 4):
        await write(logs, "loud", number, 4)
        if is_trimmed:
            await trimmer.trim()
    assert await everything(logs, "of-quiet") == ([b"mine"] * 3 if is_trimmed else [])
    assert 4 * len(LINES) <= sum(map(len, await everything(logs, "of-loud"))) <= MAX_BYTES
    await logs.close()
