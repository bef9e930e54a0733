"""How many messages per second the NATS adapter stores, reads, issues and delivers, on the fast and on the plain path.

    python benchmarks/adapter_nats.py [--messages 20000] [--url nats://127.0.0.1:4222]

Without ``--url`` it starts its own nats-server with nats.conf. CPU is that of this process, without the server's. The
speed of a machine drifts: compare only the two paths of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.ports.streams.event_log import DecidedMessage
from noetl_stream.protocol.subjects import COMMANDS, EVENTS
from noetl_testkit.conformance.command_queue import source_of

BODY = b'{"entries":"' + b"x" * 380 + b'"}'
REPORTERS = 256
SLOTS = 256


async def report(log: NatsEventLog, count: int) -> None:
    """Reports from many workers, each of which waits for an acknowledgement before its next report."""
    numbers = iter(range(count))

    async def reporter() -> None:
        for number in numbers:
            await log.publish_request(f"run-{number % 1000}", f"report-{number}", BODY)

    await asyncio.gather(*(reporter() for _ in range(REPORTERS)))


async def read(log: NatsEventLog, count: int) -> None:
    """One reader of all partitions, as a server has."""
    reader = await log.open_reader(range(PARTITIONS), 0)
    seen = 0
    while seen < count:
        seen += len(await reader.next_batch(512))
    await reader.close()


async def decide(log: NatsEventLog, count: int) -> None:
    """Decided records in ticks of 100."""
    for start in range(0, count, 100):
        records = [DecidedMessage(n % PARTITIONS, f"run-{n}", f"0.{n}.1.a.0", BODY) for n in range(start, start + 100)]
        await log.publish_decided(records)


async def issue(queue: NatsCommandQueue, count: int) -> None:
    """Commands in ticks of 100."""
    for start in range(0, count, 100):
        numbers = range(start, start + 100)
        await queue.issue([QueuedCommand("default", f"run-{n}", f"c{n}", 1, BODY) for n in numbers], {})


async def deliver(queue: NatsCommandQueue, count: int) -> None:
    """Deliveries to one worker, which acknowledges each and requests another."""
    source = await source_of(queue, "default")
    source.request(SLOTS)
    for _ in range(count):
        delivery = await source.next()
        delivery.ack()
        source.request(1)
    await source.close()


async def round_trips(log: NatsEventLog, count: int) -> None:
    """A report and its reading, one after the other."""
    reader = await log.open_reader(range(PARTITIONS), await log.last_sequence())
    for number in range(count):
        await asyncio.gather(log.publish_request("run-1", f"trip-{number}", BODY), reader.next_batch(1))
    await reader.close()


async def measure(name: str, count: int, run: Callable[[], Awaitable[None]]) -> None:
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    await run()
    took_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    print(f"  {name:<22} {count / took_s:>9,.0f} messages/s   {cpu_s / count * 1e6:>6.1f} µs CPU each")


async def measure_path(url: str, count: int, *, fast: bool) -> None:
    connection = await NatsConnection.open(url, name="adapter benchmark", fast=fast)
    print(type(connection.wire).__name__)
    await ensure_streams(connection)
    log = await NatsEventLog.open(connection, SystemClock())
    queue = await NatsCommandQueue.open(connection)
    await measure("report (256 waiting)", count, lambda: report(log, count))
    await measure("read", count, lambda: read(log, count))
    await measure("decide (ticks of 100)", count, lambda: decide(log, count))
    await measure("issue (ticks of 100)", count, lambda: issue(queue, count))
    await measure("deliver and ack", count, lambda: deliver(queue, count))
    await measure("report-read, in turn", count // 10, lambda: round_trips(log, count // 10))
    for stream in (EVENTS, COMMANDS):
        await connection.api(f"STREAM.DELETE.{stream}")
    await connection.close()


async def run(url: str, count: int) -> None:
    for fast in (True, False):
        await measure_path(url, count, fast=fast)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--url", help="a server to use; its streams EVENTS and COMMANDS are deleted")
    options = parser.parse_args()
    if options.url:
        uvloop.run(run(options.url, options.messages))
        return
    with nats_server() as url:
        uvloop.run(run(url, options.messages))


@contextmanager
def nats_server() -> Iterator[str]:
    """The url of a server of its own, which ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    binary = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or "nats-server"
    config = Path(__file__).parents[1] / "nats.conf"
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "-c", str(config), "-a", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
        try:
            yield f"nats://127.0.0.1:{port}"
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
