"""A nats-server that is killed and started again while everything is under way: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio

from nats_process import NatsServer
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.errors import OutcomeUnknown, ReaderBroken, Unreachable
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_testkit.conformance.command_queue import command
from noetl_testkit.conformance.event_log import ALL, decided
from noetl_testkit.waiting import TIMEOUT_S, until

REPORTS = 2_000
KILLS = 3


async def report_all(log: NatsEventLog, acknowledged: dict[str, int], worker: int) -> None:
    """Publishes until each report is acknowledged, as a worker does."""
    for number in range(worker, REPORTS, 20):
        while f"report-{number}" not in acknowledged:
            try:
                sequence = await log.publish_request(f"run-{number % 50}", f"report-{number}", b"%d" % number)
            except (OutcomeUnknown, Unreachable):
                await asyncio.sleep(0.01)
            else:
                acknowledged[f"report-{number}"] = sequence


async def read_all(log: NatsEventLog, read: list[ReportedMessage], breaks: list[str]) -> None:
    """Reads on from the last sequence with a new reader whenever one breaks, as a server does."""
    while True:
        try:
            reader = await log.open_reader(ALL, read[-1].sequence if read else 0)
            while True:
                read += await reader.next_batch(512)
        except ReaderBroken as error:
            breaks.append(str(error))
        except Unreachable:
            await asyncio.sleep(0.01)


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(
    own_nats: NatsServer, own_connection: NatsConnection
) -> None:
    log = await NatsEventLog.open(own_connection, SystemClock(), acknowledge_within_s=1)
    queue = await NatsCommandQueue.open(own_connection, acknowledge_within_s=1)
    acknowledged: dict[str, int] = {}
    read: list[ReportedMessage] = []
    breaks: list[str] = []
    reading = asyncio.create_task(read_all(log, read, breaks))
    reporting = [asyncio.create_task(report_all(log, acknowledged, worker)) for worker in range(20)]
    published: list[asyncio.Future[None]] = []

    async with asyncio.timeout(3 * TIMEOUT_S):
        for kill in range(1, KILLS + 1):
            while len(acknowledged) < kill * REPORTS // (KILLS + 1):
                number = len(published)
                published.append(asyncio.ensure_future(log.publish_decided([decided("run-1", f"0.{number}.1.a.0")])))
                published.append(asyncio.ensure_future(queue.issue([command(f"c{number}")], {})))
                await asyncio.sleep(0)
                await asyncio.wait(published, timeout=0.005)
            own_nats.kill()
            own_nats.start()
        await asyncio.gather(*reporting, *published)
        last = await log.last_sequence()
        await until(lambda: bool(read) and read[-1].sequence >= max(acknowledged.values()))
    reading.cancel()

    sequences = [message.sequence for message in read]
    assert sequences == sorted(set(sequences))
    by_sequence = {message.sequence: message for message in read}
    for message_id, sequence in acknowledged.items():
        assert by_sequence[sequence].body == message_id.removeprefix("report-").encode()
    assert len(breaks) >= KILLS
    assert max(sequences) <= last
    assert set(await queue.present()) == {f"c{number}" for number in range(0, len(published), 2)}
