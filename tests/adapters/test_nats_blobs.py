"""The object store when it is damaged, slow, full or asked by others."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats_proxy import LossyProxy

from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.blobs import CHUNK_BYTES, NatsBlobs
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.errors import BlobMissing, NotReady, StoreMissing, Unreachable
from noetl_stream.local.secrets import new_seed, public_nkey
from noetl_stream.protocol.nats_accounts import nats_accounts
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER
from noetl_stream.protocol.subjects import RESULTS, RESULTS_BUCKET
from noetl_stream.worker.waiting import persist
from noetl_testkit.waiting import TIMEOUT_S

THREE_CHUNKS = b"1" * CHUNK_BYTES + b"2" * CHUNK_BYTES + b"3"


async def message_count(connection: NatsConnection) -> int:
    count: int = msgspec.json.decode(await connection.api(f"STREAM.INFO.{RESULTS}"))["state"]["messages"]
    return count


async def test_a_put_waits_for_a_bucket_that_does_not_exist(connection: NatsConnection) -> None:
    blobs = await NatsBlobs.open(connection, SystemClock())
    await connection.api(f"STREAM.DELETE.{RESULTS}")
    storing = asyncio.create_task(persist(SystemClock(), "store a result", lambda: blobs.put("run-1/c1", THREE_CHUNKS)))
    with pytest.raises(StoreMissing, match="stream ensure"):
        await blobs.get("run-1/c1")
    assert not storing.done()
    await ensure_streams(connection)
    await asyncio.wait_for(storing, TIMEOUT_S)
    assert await blobs.get("run-1/c1") == THREE_CHUNKS


async def test_other_clients_of_nats_read_our_objects(connection: NatsConnection) -> None:
    blobs = await NatsBlobs.open(connection, SystemClock())
    await blobs.put("run-1/c1/1.1.abc/0", THREE_CHUNKS)
    store = await connection.client.jetstream().object_store(RESULTS_BUCKET)
    async with asyncio.timeout(TIMEOUT_S):
        assert (await store.get("run-1/c1/1.1.abc/0")).data == THREE_CHUNKS


async def test_we_read_what_other_tools_write_and_delete(connection: NatsConnection) -> None:
    blobs = await NatsBlobs.open(connection, SystemClock())
    store = await connection.client.jetstream().object_store(RESULTS_BUCKET)
    await store.put("by-hand", THREE_CHUNKS)
    assert await blobs.get("by-hand") == THREE_CHUNKS
    await store.delete("by-hand")
    with pytest.raises(BlobMissing):
        await blobs.get("by-hand")


async def test_chunks_are_small_and_a_losing_writer_leaves_none(connection: NatsConnection) -> None:
    blobs = await NatsBlobs.open(connection, SystemClock())
    await asyncio.gather(*(blobs.put("key", THREE_CHUNKS) for _ in range(3)))
    assert await message_count(connection) == 4


async def test_chunks_that_arrive_out_of_order_are_stored_again(
    connection: NatsConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that was refused while its stream had no leader, and is sent again behind the others."""
    blobs = await NatsBlobs.open(connection, SystemClock())
    send, sent = connection.wire.send, []

    def send_second_first(*message: Any) -> None:
        sent.append(message)
        if len(sent) == 2:
            send(*sent[1])
            send(*sent[0])
        elif len(sent) > 2:
            send(*message)

    monkeypatch.setattr(connection.wire, "send", send_second_first)
    await blobs.put("key", THREE_CHUNKS)
    assert await blobs.get("key") == THREE_CHUNKS
    assert await message_count(connection) == 4


@pytest.mark.parametrize("damage", ["a lost chunk", "another text in the place of the meta message"])
async def test_a_damaged_object_is_stored_again_once_it_is_deleted(connection: NatsConnection, damage: str) -> None:
    blobs = await NatsBlobs.open(connection, SystemClock())
    await blobs.put("key", THREE_CHUNKS)
    if damage == "a lost chunk":
        await connection.api(f"STREAM.MSG.DELETE.{RESULTS}", {"seq": 2})
    else:
        await connection.client.jetstream().publish(f"$O.{RESULTS_BUCKET}.M.a2V5", b"no meta")
    with pytest.raises(BlobMissing, match="damaged"):
        await blobs.get("key")
    await blobs.delete("key")
    await blobs.put("key", THREE_CHUNKS)
    assert await blobs.get("key") == THREE_CHUNKS


async def test_a_lost_chunk_is_damage(connection: NatsConnection) -> None:
    blobs = await NatsBlobs.open(connection, SystemClock())
    await blobs.put("key", THREE_CHUNKS)
    await connection.api(f"STREAM.MSG.DELETE.{RESULTS}", {"seq": 2})
    with pytest.raises(BlobMissing, match="the object key is damaged: 2 of its 3 chunks exist"):
        await blobs.get("key")


async def test_an_altered_chunk_is_damage(connection: NatsConnection) -> None:
    blobs = await NatsBlobs.open(connection, SystemClock())
    await blobs.put("key", b"good")
    answer = msgspec.json.decode(await connection.api(f"STREAM.MSG.GET.{RESULTS}", {"seq": 1}))
    subject = answer["message"]["subject"]
    await connection.api(f"STREAM.MSG.DELETE.{RESULTS}", {"seq": 1})
    await connection.client.jetstream().publish(subject, b"evil")
    with pytest.raises(BlobMissing, match="its checksum differs"):
        await blobs.get("key")


async def test_a_hung_server_does_not_hold_a_reader_for_ever(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    blobs = await NatsBlobs.open(own_connection, SystemClock(), timeout_s=0.3)
    await blobs.put("key", THREE_CHUNKS)
    own_nats.pause()
    with pytest.raises(Unreachable, match=r"key.* 0\.3 s"):
        await blobs.get("key")
    own_nats.resume()


async def test_an_answer_lost_in_the_middle_does_not_hold_a_reader_for_ever(
    proxy: LossyProxy, through_proxy: NatsConnection
) -> None:
    blobs = await NatsBlobs.open(through_proxy, SystemClock(), timeout_s=0.5)
    await blobs.put("key", THREE_CHUNKS)
    proxy.loses = lambda frame: b'"seq":2,' in frame
    with pytest.raises(Unreachable):
        await blobs.get("key")
    proxy.loses = lambda frame: False
    assert await blobs.get("key") == THREE_CHUNKS


async def test_a_put_that_is_not_answered_fails_and_can_be_repeated(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    blobs = await NatsBlobs.open(own_connection, SystemClock(), timeout_s=0.5)
    own_nats.pause()
    with pytest.raises(Unreachable, match="storing key took longer"):
        await blobs.put("key", THREE_CHUNKS)
    own_nats.resume()
    await blobs.put("key", THREE_CHUNKS)
    assert await blobs.get("key") == THREE_CHUNKS


async def test_a_put_whose_last_acknowledgement_is_lost_is_found_to_have_happened(
    proxy: LossyProxy, through_proxy: NatsConnection
) -> None:
    blobs = await NatsBlobs.open(through_proxy, SystemClock(), acknowledge_within_s=0.2)
    proxy.loses = lambda frame: b'"stream":"OBJ_noetl-results", "seq":2' in frame or b'results","seq":2' in frame
    await blobs.put("key", b"value")
    assert proxy.lost.is_set()
    assert await blobs.get("key") == b"value"


async def test_a_full_store_is_a_clear_error(connection: NatsConnection) -> None:
    blobs = await NatsBlobs.open(connection, SystemClock())
    config = msgspec.json.decode(await connection.api(f"STREAM.INFO.{RESULTS}"))["config"]
    await connection.api(f"STREAM.UPDATE.{RESULTS}", {**config, "max_bytes": CHUNK_BYTES})
    with pytest.raises(Unreachable, match=r"maximum bytes exceeded .*the stream is full"):
        await blobs.put("key", THREE_CHUNKS)
    assert await message_count(connection) == 0


async def test_a_writer_without_the_right_to_remove_chunks_reuses_those_that_are_stored(
    tmp_path: Path,
) -> None:
    """Else each attempt of a worker would leave its own, and take the room that is made."""
    seeds = {identity: new_seed() for identity in (ADMIN, SERVER, GATEWAY, "worker-default")}
    nats = NatsServer(tmp_path, nats_accounts({identity: public_nkey(seed) for identity, seed in seeds.items()}))
    nats.start()
    async with AsyncExitStack() as leaving:
        leaving.callback(nats.end)
        admin, worker = [
            await NatsConnection.open(nats.url, name="tests", nkey=seeds[one], identity=one)
            for one in (ADMIN, "worker-default")
        ]
        leaving.push_async_callback(admin.close)
        leaving.push_async_callback(worker.close)
        await ensure_streams(admin)
        config = msgspec.json.decode(await admin.api(f"STREAM.INFO.{RESULTS}"))["config"]
        blobs = await NatsBlobs.open(worker, SystemClock())

        async def bound(chunks: int) -> None:
            most = chunks * (CHUNK_BYTES + 1024)
            await admin.api(f"STREAM.UPDATE.{RESULTS}", {**config, "max_bytes": most})

        await bound(2)
        for attempt in (b"1", b"2", b"3"):  # sealed anew each time
            with pytest.raises(Unreachable, match="NATS refused an object: maximum bytes exceeded"):
                await blobs.put("key", 5 * CHUNK_BYTES * attempt)
        assert await message_count(admin) == 2
        await bound(6)
        await blobs.put("key", 5 * CHUNK_BYTES * b"4")
        assert await message_count(admin) == 5 + 1
        assert await blobs.get("key") == 5 * CHUNK_BYTES * b"1"
        await blobs.close()


async def test_a_role_is_not_ready_without_the_bucket(connection: NatsConnection) -> None:
    blobs = await NatsBlobs.open(connection, SystemClock())
    await connection.api(f"STREAM.DELETE.{RESULTS}")
    for attempt in (blobs.verify(), blobs.get("key"), blobs.put("key", b"")):
        with pytest.raises(NotReady, match="OBJ_noetl-results does not exist"):
            await attempt
