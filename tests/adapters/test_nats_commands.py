"""Deliveries across lost lines, deleted consumers, ended leases and busy loops."""

from __future__ import annotations

import asyncio
import threading

import msgspec
import pytest
from nats_proxy import LossyProxy

from nats_process import NatsServer
from noetl_stream.adapters.nats.bus import NatsBus
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.errors import NotReady, Unreachable, UsageError
from noetl_stream.model.ids import PARTITIONS, partition_of
from noetl_stream.protocol import subjects
from noetl_stream.protocol.subjects import ASK_QUEUE, COMMANDS
from noetl_testkit.conformance.command_queue import (
    command,
    expect_present,
    issue,
    source_of,
    take,
)
from noetl_testkit.waiting import TIMEOUT_S


async def consumer_config(connection: NatsConnection, pool: str) -> dict[str, object]:
    answer = msgspec.json.decode(await connection.api(f"CONSUMER.INFO.{COMMANDS}.pool-{pool}"))
    config: dict[str, object] = answer["config"]
    return config


async def test_a_pool_has_one_durable_consumer(connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(connection)
    one, other = await source_of(queue, "default"), await source_of(queue, "default")
    config = await consumer_config(connection, "default")
    assert config["filter_subject"] == "noetl.commands.default.>"
    assert config["ack_policy"] == "explicit"
    assert config["ack_wait"] == 30_000_000_000
    assert config["max_deliver"] == -1
    names = msgspec.json.decode(await connection.api(f"CONSUMER.NAMES.{COMMANDS}"))["consumers"]
    assert names == ["pool-default"]
    await one.close()
    await other.close()


async def test_a_pool_name_that_is_not_valid_in_a_subject_is_refused(connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(connection)
    with pytest.raises(UsageError, match="is not a valid pool name"):
        await queue.open_source("a.b")


async def test_without_the_stream_nothing_opens(connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(connection)
    await connection.api(f"STREAM.DELETE.{COMMANDS}")
    for attempt in (source_of(queue, "default"), queue.present()):
        with pytest.raises(NotReady, match="COMMANDS does not exist"):
            await attempt


async def test_a_lease_that_ends_delivers_the_command_again(connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(connection, ack_wait_s=0.1)
    await issue(queue, command("c1"))
    source = await source_of(queue, "default")
    await take(source, 1)
    (again,) = await take(source, 1)
    assert again.num_delivered == 2
    await source.close()


async def test_a_command_returned_with_a_delay_comes_again(connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(connection)
    await issue(queue, command("c1"))
    source = await source_of(queue, "default")
    (delivery,) = await take(source, 1)
    delivery.nak(0.05)
    (again,) = await take(source, 1)
    assert again.num_delivered == 2
    await source.close()


async def test_a_thread_keeps_the_lease_while_the_loop_is_busy(connection: NatsConnection) -> None:
    ack_wait_s = 0.5
    queue = await NatsCommandQueue.open(connection, ack_wait_s=ack_wait_s)
    await issue(queue, command("c1"))
    source = await source_of(queue, "default")
    (delivery,) = await take(source, 1)
    busy = threading.Event()

    def renew_for_three_leases() -> None:
        for _ in range(int(3 * ack_wait_s / 0.1)):
            delivery.in_progress()
            busy.wait(0.1)

    renewing = threading.Thread(target=renew_for_three_leases)
    renewing.start()
    # The loop does nothing else meanwhile: a renewal that needed it would come too late.
    renewing.join()
    second = asyncio.ensure_future(take(source, 1))
    await queue.present()
    await connection.flush()
    assert not second.done(), "the lease has ended although it was renewed"
    delivery.ack()
    await expect_present(queue, set())
    second.cancel()
    await source.close()


async def test_a_source_continues_after_its_consumer_was_deleted(connection: NatsConnection) -> None:
    queue, bus = await NatsCommandQueue.open(connection), NatsBus(connection)

    async def make(subject: str, _body: bytes, reply: str) -> None:
        await queue.add_pool(subject.rpartition(".")[2])
        bus.send(reply, b"")

    await bus.listen(f"{ASK_QUEUE}.*", make)
    source = await queue.open_source("default")
    source.request(1)
    await connection.flush()
    await connection.api(f"CONSUMER.DELETE.{COMMANDS}.pool-default")
    await issue(queue, command("c1"))
    async with asyncio.timeout(TIMEOUT_S):
        delivery = await source.next()
    assert delivery.num_delivered == 1
    await source.close()


async def test_without_a_server_a_pool_has_no_queue(connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(connection)
    with pytest.raises(Unreachable, match="pool default has no queue: no server has made it"):
        await queue.open_source("default")


async def test_a_source_continues_with_its_credit_after_a_restart_of_the_server(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    queue = await NatsCommandQueue.open(own_connection)
    source = await source_of(queue, "default")
    connected_ms = source.connected_ms
    source.request(3)
    await issue(queue, command("c1"))
    async with asyncio.timeout(TIMEOUT_S):
        await source.next()
    own_nats.kill()
    own_nats.start()
    issued = asyncio.ensure_future(issue(queue, command("c2"), command("c3"), command("c4")))
    async with asyncio.timeout(TIMEOUT_S):
        await source.next()
        await source.next()
    await issued
    fourth = asyncio.ensure_future(source.next())
    assert set(await queue.present()) == {"c1", "c2", "c3", "c4"}
    assert not fourth.done(), "more was delivered than was asked for"
    assert source.connected_ms > connected_ms
    fourth.cancel()
    await source.close()


async def test_a_delivery_can_be_acknowledged_on_a_new_line(proxy: LossyProxy, through_proxy: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(through_proxy)
    source = await source_of(queue, "default")
    await issue(queue, command("c1"))
    (delivery,) = await take(source, 1)
    restored = asyncio.Event()
    through_proxy.on_restored(restored.set)
    proxy.cut()
    async with asyncio.timeout(TIMEOUT_S):
        await restored.wait()
    delivery.ack()
    await expect_present(queue, set())
    await source.close()


async def test_a_copy_that_reappears_after_a_restart_is_older_than_the_connection(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    queue = await NatsCommandQueue.open(own_connection, ack_wait_s=1)
    source = await source_of(queue, "default")
    await issue(queue, command("c1"))
    await take(source, 1)
    own_nats.kill()
    own_nats.start()
    # A killed server forgets deliveries: the copy may come as its first, but never as one to be run unasked.
    (again,) = await take(source, 1)
    assert again.stored_ms < source.connected_ms
    await source.close()


async def test_an_issue_with_a_lost_acknowledgement_is_resent_and_queued_once(
    proxy: LossyProxy, through_proxy: NatsConnection
) -> None:
    queue = await NatsCommandQueue.open(through_proxy, acknowledge_within_s=0.2)
    proxy.loses = lambda frame: b'"stream":"COMMANDS"' in frame and not proxy.lost.is_set()
    await issue(queue, command("c1", issue=2))
    assert proxy.lost.is_set()
    assert set(await queue.present()) == {"c1"}
    source = await source_of(queue, "default")
    (delivery,) = await take(source, 1)
    delivery.ack()
    await expect_present(queue, set())
    await source.close()


async def test_commands_issued_while_the_server_is_away_are_stored(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    queue = await NatsCommandQueue.open(own_connection)
    own_nats.kill()
    issued = asyncio.ensure_future(issue(queue, *(command(f"c{n}") for n in range(100))))
    own_nats.start()
    await issued
    assert set(await queue.present()) == {f"c{n}" for n in range(100)}


async def test_a_recreated_queue_has_no_fences(connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(connection)
    fences = await queue.fence("one", {partition_of("run-1"): 1})
    await connection.api(f"STREAM.PURGE.{COMMANDS}")
    assert await queue.issue([command("c1")], fences) == fences.keys()
    again = await queue.fence("one", {partition_of("run-1"): 1})
    assert await queue.issue([command("c1")], again) == set()


async def test_an_unreadable_record_is_no_fence(connection: NatsConnection) -> None:
    queue, bus = await NatsCommandQueue.open(connection), NatsBus(connection)
    bus.send(subjects.fence(7), b"not a fence")
    await connection.flush()
    assert (await queue.fence("one", {7: 1})).keys() == {7}


async def test_two_servers_that_fence_at_once_agree(connection: NatsConnection) -> None:
    one, other = await NatsCommandQueue.open(connection), await NatsCommandQueue.open(connection)
    older, newer = await asyncio.gather(
        one.fence("one", dict.fromkeys(range(PARTITIONS), 1)), other.fence("other", dict.fromkeys(range(PARTITIONS), 2))
    )
    assert newer.keys() == set(range(PARTITIONS))
    assert await one.fence("one", dict.fromkeys(range(PARTITIONS), 1)) == {}
    assert all(older.get(partition, 0) < newer[partition] for partition in newer)


async def test_a_worker_is_given_no_fence(connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(connection)
    fences = await queue.fence("one", dict.fromkeys(range(PARTITIONS), 1))
    source = await source_of(queue, "default")
    await queue.issue([command("c1")], fences)
    (delivery,) = await take(source, 1)
    assert delivery.body == command("c1").body
    await source.close()


async def test_ten_thousand_commands_pass_two_sources(connection: NatsConnection) -> None:
    queue = await NatsCommandQueue.open(connection)
    sources = [await source_of(queue, "default") for _ in range(2)]
    issued = asyncio.ensure_future(issue(queue, *(command(f"c{n}", body=b"%d" % n) for n in range(10_000))))
    done: list[int] = []

    async def work(number: int) -> None:
        source = sources[number]
        source.request(64)
        while True:
            delivery = await source.next()
            done.append(int(delivery.body))
            delivery.ack()
            source.request(1)

    workers = [asyncio.create_task(work(number)) for number in range(2)]
    await issued
    await expect_present(queue, set())
    assert sorted(done) == list(range(10_000))
    for worker in workers:
        worker.cancel()
    for source in sources:
        await source.close()
