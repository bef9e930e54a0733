"""Files of NATS that were damaged: what is known elsewhere is made again, and what cannot be is named."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from command_sources import next_of, serve_queues

from nats_process import NatsServer
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_testkit.conformance.command_queue import command, issue
from noetl_testkit.waiting import TIMEOUT_S

COMMANDS = ("one", "two", "three")


def damage(server_folder: Path, name: str, at: bytes) -> None:
    """Flips the bits of three bytes after the first place that has ``at``, in a file of each consumer of COMMANDS."""
    files = list(server_folder.glob(f"nats-data/jetstream/*/streams/COMMANDS/obs/*/{name}"))
    assert files
    for file in files:
        content = file.read_bytes()
        start = content.index(at) + len(at)
        flipped = bytes(byte ^ 0xFF for byte in content[start : start + 3])
        file.write_bytes(content[:start] + flipped + content[start + 3 :])


async def restarted(server: NatsServer, connection: NatsConnection, folder: Path, name: str, at: bytes) -> None:
    """Kills the server, damages files, and returns when the connection is back."""
    restored = asyncio.Event()
    connection.on_restored(restored.set)
    server.kill()
    damage(folder, name, at)
    server.start()
    async with asyncio.timeout(TIMEOUT_S):
        await restored.wait()


async def test_a_consumer_whose_files_are_damaged_is_made_again_and_gives_out_its_commands(
    own_nats: NatsServer, own_connection: NatsConnection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = await NatsCommandQueue.open(own_connection)
    await queue.add_pool("default")
    await issue(queue, *map(command, COMMANDS))
    await restarted(own_nats, own_connection, tmp_path, "o.dat", b"")
    await serve_queues(queue, own_connection)
    source = await queue.open_source("default")
    source.request(3)
    taken = {delivery.subject.rpartition(".")[2] for delivery in await next_of(source, 3)}
    assert taken == set(COMMANDS)
    assert "cannot read its files of the consumer pool-default" in caplog.text
    assert [pool.unreadable for pool in await queue.pools()] == [""]
    await source.close()
    await queue.close()


async def test_a_consumer_that_nats_takes_offline_is_named_with_its_reason(
    own_nats: NatsServer, own_connection: NatsConnection, tmp_path: Path
) -> None:
    queue = await NatsCommandQueue.open(own_connection)
    await queue.add_pool("default")
    await restarted(own_nats, own_connection, tmp_path, "meta.inf", b'"deliver')
    (pool,) = await queue.pools()
    assert pool.unreadable.startswith("consumer pool-default: ")
    assert "decoding error" in pool.unreadable
    await queue.close()
