"""Publishing when the server is away, hung, full or without streams."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
from msgspec.structs import replace
from nats_proxy import LossyProxy

from measured import samples_of
from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats import outbox
from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.cluster_report import nats_readings
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.outbox import MAX_UNDER_WAY
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.errors import OutcomeUnknown, PayloadRefused, Unreachable, UsageError
from noetl_stream.model.ids import partition_of
from noetl_stream.protocol.subjects import EVENTS
from noetl_testkit.conformance.event_log import ALL, decided, read
from noetl_testkit.waiting import TIMEOUT_S, until

SOON_S = 0.3


async def limit_events(connection: NatsConnection, messages: int) -> None:
    config = msgspec.json.decode(await connection.api(f"STREAM.INFO.{EVENTS}"))["config"]
    await connection.api(f"STREAM.UPDATE.{EVENTS}", {**config, "max_msgs": messages})


async def stored_subjects(connection: NatsConnection) -> dict[str, int]:
    answer = msgspec.json.decode(await connection.api(f"STREAM.INFO.{EVENTS}", {"subjects_filter": ">"}))
    return answer["state"].get("subjects") or {}


async def test_a_report_without_an_answer_has_an_unknown_outcome(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    log = await NatsEventLog.open(own_connection, SystemClock(), acknowledge_within_s=SOON_S)
    own_nats.pause()
    with pytest.raises(OutcomeUnknown, match=r"no acknowledgement within 0\.3 s"):
        await log.publish_request("run-1", "request-1", b"{}")
    own_nats.resume()
    # It may have been stored, and was: the same id says so.
    await log.publish_request("run-1", "request-1", b"{}")
    assert await log.last_sequence() == 1


async def test_a_report_in_flight_when_the_connection_is_lost_has_an_unknown_outcome(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    log = await NatsEventLog.open(own_connection, SystemClock(), acknowledge_within_s=10 * TIMEOUT_S)
    own_nats.pause()
    publishing = asyncio.create_task(log.publish_request("run-1", "request-1", b"{}"))
    await asyncio.sleep(0)
    own_nats.kill()
    with pytest.raises(OutcomeUnknown, match="the connection was lost"):
        async with asyncio.timeout(TIMEOUT_S):
            await publishing


async def test_a_report_without_a_connection_waits_for_it_as_long_as_for_an_answer(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    log = await NatsEventLog.open(own_connection, SystemClock())
    lost = asyncio.Event()
    own_connection.on_lost(lost.set)
    own_nats.kill()
    await lost.wait()
    with pytest.raises(Unreachable, match="no connection for 2 s"):
        await log.publish_request("run-1", "request-1", b"{}")


async def test_a_full_stream_rejects_a_report_with_a_clear_error(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    await limit_events(connection, 1)
    await log.publish_request("run-1", "request-1", b"{}")
    with pytest.raises(Unreachable, match=r"maximum messages exceeded .*the stream is full"):
        await log.publish_request("run-1", "request-2", b"{}")
    assert await log.last_sequence() == 1


async def test_a_missing_stream_refuses_a_report_and_says_how_to_fix_it(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock(), leader_wait_s=0)
    await connection.api(f"STREAM.DELETE.{EVENTS}")
    with pytest.raises(Unreachable, match=r"no stream takes this subject .*stream ensure"):
        await log.publish_request("run-1", "request-1", b"{}")


async def test_a_request_waits_while_no_stream_takes_it_as_in_an_election(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    await connection.api(f"STREAM.DELETE.{EVENTS}")
    publishing = asyncio.create_task(log.publish_request("run-1", "request-1", b"{}"))
    await asyncio.sleep(0)
    await connection.flush()
    assert not publishing.done()
    await ensure_streams(connection)
    assert await publishing == 1


async def test_decided_records_wait_for_room_in_a_full_stream(
    connection: NatsConnection, caplog: pytest.LogCaptureFixture
) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    await limit_events(connection, 1)
    with caplog.at_level(logging.WARNING):
        published = asyncio.ensure_future(log.publish_decided([decided("run-1", f"0.1.1.a.{n}") for n in range(3)]))
        await until(lambda: "the stream is full" in caplog.text)
    assert not published.done()
    await limit_events(connection, -1)
    async with asyncio.timeout(TIMEOUT_S):
        await published
    assert await log.last_sequence() == 3
    assert caplog.text.count("the stream is full") == 1


async def test_decided_records_wait_for_a_missing_stream(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    await connection.api(f"STREAM.DELETE.{EVENTS}")
    published = asyncio.ensure_future(log.publish_decided([decided("run-1", "0.1.1.a.0")]))
    await connection.flush()
    assert not published.done()
    await ensure_streams(connection)
    async with asyncio.timeout(TIMEOUT_S):
        await published
    assert await log.last_sequence() == 1


async def test_decided_records_are_sent_again_until_acknowledged_and_stored_once(
    proxy: LossyProxy, through_proxy: NatsConnection
) -> None:
    log = await NatsEventLog.open(through_proxy, SystemClock(), acknowledge_within_s=SOON_S)
    proxy.loses = lambda frame: b'"stream":"EVENTS"' in frame and b'"seq":2' in frame and b"duplicate" not in frame
    async with asyncio.timeout(TIMEOUT_S):
        await log.publish_decided([decided("run-1", f"0.1.1.a.{n}") for n in range(3)])
    assert proxy.lost.is_set()
    assert await log.last_sequence() == 3


async def test_records_in_flight_never_exceed_the_publish_queue_of_jetstream(
    proxy: LossyProxy, through_proxy: NatsConnection
) -> None:
    log = await NatsEventLog.open(through_proxy, SystemClock(), acknowledge_within_s=10 * TIMEOUT_S)
    proxy.loses = lambda frame: b'"stream":"EVENTS"' in frame
    published = log.publish_decided([decided("run-1", f"0.1.1.a.{n}") for n in range(3 * MAX_UNDER_WAY)])
    await through_proxy.flush()
    assert proxy.published == MAX_UNDER_WAY
    proxy.loses = lambda frame: False
    assert not published.done()


async def test_a_record_that_is_held_is_not_sent_again_when_it_is_published_again(
    proxy: LossyProxy, through_proxy: NatsConnection
) -> None:
    log = await NatsEventLog.open(through_proxy, SystemClock(), acknowledge_within_s=SOON_S)
    proxy.loses = lambda frame: b'"stream":"EVENTS"' in frame and b"duplicate" not in frame
    again = [log.publish_decided([decided("run-1", "0.1.1.a.0")]) for _ in range(50)]
    await through_proxy.flush()
    assert proxy.published == 1
    async with asyncio.timeout(TIMEOUT_S):
        assert await asyncio.gather(*again) == [1] * 50
    assert await log.last_sequence() == 1


@pytest.mark.verify
async def test_records_that_were_lost_on_the_way_are_all_stored_in_the_end(
    proxy: LossyProxy, through_proxy: NatsConnection
) -> None:
    log = await NatsEventLog.open(through_proxy, SystemClock(), acknowledge_within_s=SOON_S)
    await through_proxy.api(f"STREAM.DELETE.{EVENTS}")
    published = log.publish_decided([decided("run-1", f"0.1.1.a.{n}") for n in range(2 * MAX_UNDER_WAY)])
    await through_proxy.flush()
    await ensure_streams(through_proxy)
    async with asyncio.timeout(TIMEOUT_S):
        await published
    assert await log.last_sequence() == 2 * MAX_UNDER_WAY


async def test_decided_records_published_while_the_server_is_away_are_stored_in_order(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    log = await NatsEventLog.open(own_connection, SystemClock())
    stored: list[bytes] = []
    lost = asyncio.Event()
    own_connection.on_lost(lost.set)
    own_nats.kill()
    await lost.wait()
    published = [
        asyncio.ensure_future(log.publish_decided([decided("run-1", f"0.{n}.1.a.0", b"%d" % n)])) for n in range(50)
    ]
    own_nats.start()
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.gather(*published)
    for sequence in range(1, 51):
        answer = msgspec.json.decode(await own_connection.api(f"STREAM.MSG.GET.{EVENTS}", {"seq": sequence}))
        stored.append(msgspec.convert(answer["message"]["data"], bytes))
    assert stored == [b"%d" % n for n in range(50)]


async def test_events_of_a_connection_are_measured(own_nats: NatsServer, own_connection: NatsConnection) -> None:
    clock = SystemClock()
    log = await NatsEventLog.open(own_connection, clock)
    queue, blobs = await NatsCommandQueue.open(own_connection), await NatsBlobs.open(own_connection, clock)

    def measured() -> dict[str, float]:
        return samples_of(nats_readings(own_connection, log, queue, blobs))

    assert measured()["noetl_nats_connected"] == 1
    await blobs.put("a-key", b"x" * 300_000)
    assert await blobs.get("a-key") == b"x" * 300_000
    assert measured()["noetl_objects_written_bytes_total"] == measured()["noetl_objects_read_bytes_total"] == 300_000
    lost = asyncio.Event()
    own_connection.on_lost(lost.set)
    own_nats.pause()
    publishing = asyncio.ensure_future(log.publish_decided([decided("run-1", "0.1.1.a.0", b"1")]))
    await asyncio.sleep(0)
    own_nats.kill()
    await lost.wait()
    assert measured()["noetl_nats_connected"] == 0
    own_nats.start()
    async with asyncio.timeout(TIMEOUT_S):
        await publishing
    after = measured()
    assert (after["noetl_nats_connected"], after["noetl_nats_reconnects_total"]) == (1, 1)
    assert after["noetl_nats_publish_retries_total EVENTS"] >= 1
    assert after["noetl_nats_publish_retries_total COMMANDS"] == 0


async def test_refusals_by_jetstream_are_counted_by_code_while_the_message_is_retried(
    own_connection: NatsConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "REFUSED_S", 0.0)
    clock = SystemClock()
    log = await NatsEventLog.open(own_connection, clock)
    queue, blobs = await NatsCommandQueue.open(own_connection), await NatsBlobs.open(own_connection, clock)

    def measured() -> dict[str, float]:
        return samples_of(nats_readings(own_connection, log, queue, blobs))

    await limit_events(own_connection, 1)
    with pytest.raises(Unreachable):
        for number in range(2):
            await log.publish_report("run-1", "default", f"report-{number}", b"")
    assert (measured()["noetl_nats_messages_refused EVENTS"], log.outbox.refusal()) == (0, "")
    publishing = asyncio.ensure_future(log.publish_decided([decided("run-1", "0.1.1.a.0", b"1")]))
    await until(lambda: log.outbox.refused)
    found = measured()
    assert found["noetl_nats_messages_refused EVENTS"] == 1
    assert found["noetl_nats_publish_refusals_total 10077 EVENTS"] >= 2
    assert "maximum messages exceeded (error 10077)" in log.outbox.refusal()
    await limit_events(own_connection, -1)
    await publishing
    assert (measured()["noetl_nats_messages_refused EVENTS"], log.outbox.refusal()) == (0, "")


async def test_a_message_above_the_size_limit_of_the_server_is_refused(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    large = b"x" * connection.max_payload
    with pytest.raises(PayloadRefused, match=r"larger than the NATS server accepts .*max_payload"):
        await log.publish_request("run-1", "request-1", large)
    with pytest.raises(PayloadRefused):
        log.publish_decided([decided("run-1", "0.1.1.a.0", large)])
    # The connection has not suffered.
    await log.publish_request("run-1", "request-2", b"x" * (7 * 1024 * 1024))
    reader = await log.open_reader(ALL, 0)
    (message,) = await read(reader, 1)
    assert len(message.body) == 7 * 1024 * 1024


async def test_waiting_ends_when_the_log_is_closed(own_nats: NatsServer, own_connection: NatsConnection) -> None:
    log = await NatsEventLog.open(own_connection, SystemClock())
    own_nats.pause()
    published = log.publish_decided([decided("run-1", "0.1.1.a.0")])
    own_nats.resume()
    own_nats.kill()
    await log.close()
    with pytest.raises(Unreachable, match="the connection has ended"):
        await published


async def test_a_publish_right_after_opening_gets_its_answer(connection: NatsConnection) -> None:
    for number in range(1, 11):
        # Something is waiting to be written when the inbox for the answers is made.
        connection.wire.send("noetl.nudge.nobody", b"")
        log = await NatsEventLog.open(connection, SystemClock())
        assert await log.publish_request("run-1", f"request-{number}", b"{}") == number
        await log.close()


async def test_a_message_id_cannot_smuggle_commands_in(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    with pytest.raises(UsageError, match="is not a valid message id"):
        await log.publish_request("run-1", "x\r\n\r\nPUB noetl.events.1.a.reported 0\r\n", b"{}")
    assert await log.last_sequence() == 0


async def test_subjects_hold_partition_and_execution(connection: NatsConnection) -> None:
    log = await NatsEventLog.open(connection, SystemClock())
    await log.publish_request("run-1", "request-1", b"{}")
    await log.publish_decided([replace(decided("run-1", "0.1.1.a.0"), partition=31)])
    assert await stored_subjects(connection) == {
        f"noetl.events.{partition_of('run-1')}.run-1.requested": 1,
        "noetl.events.31.run-1.decided": 1,
    }
