"""The queue after a power loss has taken its newest messages, but not what a consumer knows of them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from nats_process import NatsServer
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.protocol.subjects import COMMANDS
from noetl_testkit.conformance.command_queue import command, expect_present, issue, source_of, take


async def delivered(connection: NatsConnection) -> int:
    """The last sequence that the consumer of the pool has delivered."""
    answer = msgspec.json.decode(await connection.api(f"CONSUMER.INFO.{COMMANDS}.pool-default"))
    return int(answer["delivered"]["stream_seq"])


async def lose_the_end(own_nats: NatsServer, connection: NatsConnection, stream: Path) -> None:
    """Takes the power while NATS has synced nothing of COMMANDS but what its consumer knows."""
    own_nats.stop()
    for block in (stream / "msgs").iterdir():
        block.unlink()
    (stream / "meta.sum").write_bytes(b"")  # NATS syncs neither it nor the state of a consumer
    own_nats.start()
    await ensure_streams(connection)


async def with_a_consumer_ahead(own_nats: NatsServer, connection: NatsConnection, folder: Path) -> NatsCommandQueue:
    """A queue that is empty and begins anew, whose consumer has delivered five commands."""
    queue = await NatsCommandQueue.open(connection)
    source = await source_of(queue, "default")
    await issue(queue, *(command(f"c{number}") for number in range(5)))
    for one in await take(source, 5):
        one.ack()
    await expect_present(queue, set())
    await source.close()
    await lose_the_end(own_nats, connection, folder / "nats-data" / "jetstream" / "$G" / "streams" / COMMANDS)
    await queue.add_pool("default")
    assert await delivered(connection) == 5
    return queue


async def test_commands_are_delivered_although_a_consumer_is_ahead_of_its_stream(
    own_nats: NatsServer, own_connection: NatsConnection, tmp_path: Path
) -> None:
    queue = await with_a_consumer_ahead(own_nats, own_connection, tmp_path)
    await issue(queue, command("later"))
    await queue.present(mends=True)
    await expect_present(queue, set())  # it is purged, which servers see as a loss
    await issue(queue, command("again"))
    source = await source_of(queue, "default")
    (found,) = await take(source, 1)
    assert found.subject.endswith(".again")
    await source.close()


async def test_commands_are_issued_again_that_a_consumer_has_passed_over_before_a_server_looked(
    own_nats: NatsServer, own_connection: NatsConnection, tmp_path: Path
) -> None:
    queue = await with_a_consumer_ahead(own_nats, own_connection, tmp_path)
    await issue(queue, *(command(f"d{number}") for number in range(7)))
    source = await source_of(queue, "default")
    found = await take(source, 2)
    assert sorted(one.subject[-2:] for one in found) == ["d5", "d6"]
    await queue.present(mends=True)
    await expect_present(queue, {"d5", "d6"})  # the others are purged, which servers see as a loss
    for one in found:
        one.ack()
    await expect_present(queue, set())
    await source.close()
