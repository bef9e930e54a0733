"""Whether nats-server stays flat while executions come and go: EVENTS trimmed, and for comparison not.

    python benchmarks/trimming.py [--executions 320000] [--max-mib 64] [--living 100]

A nats-server of its own, with nats.conf. The messages are of the size and number of executions of three steps; no
engine runs, the cursors follow the end of EVENTS. The trimmer is that of servers. Its clock is an hour fast, since it
leaves the last two minutes alone; for the same reason message ids are forgotten after two seconds. Prints the memory of
nats-server (RSS) and what EVENTS holds, as executions go by.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import psutil
import uvloop

from adapter_nats import nats_server
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.protocol import NANOSECONDS
from noetl_stream.adapters.nats.streams import ensure_streams, stream_info
from noetl_stream.model.ids import partition_of, uuid7
from noetl_stream.ports.streams.event_log import DecidedMessage
from noetl_stream.protocol.subjects import EVENTS
from noetl_stream.server.upkeep.upkeep import Trimmer
from noetl_stream.settings.retention_periods import RetentionSettings
from noetl_testkit.conformance.store_rows import entry_row, execution_row
from noetl_testkit.memory.journals import MemoryRetention

RECORD = b'{"entries":"' + b"x" * 400 + b'"}'
REPORT = b'{"events":"' + b"x" * 290 + b'"}'
RECORDS, REPORTS = 4, 3
"""Journal records and reports of an execution."""

AT_ONCE = 250
SHOWN = 16


class Early(SystemClock):
    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


async def measure(url: str, process: psutil.Process, count: int, bounds: RetentionSettings | None, living: int) -> None:
    clock = Early()
    store = MemoryStore(clock)
    connection = await NatsConnection.open(url, name="benchmark")
    await ensure_streams(connection)
    config = (await stream_info(connection, EVENTS)).config
    await connection.api(f"STREAM.UPDATE.{EVENTS}", {**config, "duplicate_window": 2 * NANOSECONDS})
    log = await NatsEventLog.open(connection, clock)
    for number in range(living):
        name = f"living-{number}"
        store.tables.executions[name] = execution_row(name, partition=0, started_ms=0)
        store.tables.journals[name] = {place: entry_row(name, place) for place in range(1, 30)}
    trimmer = Trimmer(log, store, store.cursors, MemoryRetention(store), clock, bounds) if bounds else None
    print(f"{'executions':>10} {'EVENTS MiB':>11} {'messages':>9} {'RSS MiB':>8} {'seconds':>8}", flush=True)
    began_s = time.perf_counter()
    for done in range(0, count, AT_ONCE):
        await publish(log, [uuid7(clock.now_ms(), clock.random_bytes(10)) for _ in range(AT_ONCE)])
        if done % (count // SHOWN // 4) < AT_ONCE and trimmer is not None:
            last = await log.last_sequence()
            for partition in store.tables.partitions:
                partition.last_seq = last
            await trimmer.trim()
        if (done + AT_ONCE) % (count // SHOWN) < AT_ONCE:
            held = await log.last_sequence() - await log.first_sequence() + 1
            print(
                f"{done + AT_ONCE:>10} {await log.stored_bytes() / 2**20:>11.0f} {held:>9}"
                f" {process.memory_info().rss / 2**20:>8.0f} {time.perf_counter() - began_s:>8.0f}",
                flush=True,
            )
    await log.close()
    await connection.close()


async def publish(log: NatsEventLog, names: list[str]) -> None:
    """All messages of these executions, on three subjects each. The third is that of reports elsewhere."""
    records = [(name, number) for number in range(RECORDS) for name in names]
    reports = [(name, number) for number in range(REPORTS) for name in names]
    await asyncio.gather(
        *(log.publish_request(name, f"{name}.request", REPORT) for name in names),
        log.publish_decided(
            [DecidedMessage(partition_of(name), name, f"{name}.{number}", RECORD) for name, number in records]
        ),
        log.publish_checkpoints(
            [DecidedMessage(partition_of(name), name, f"{name}.r{number}", REPORT) for name, number in reports]
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=320_000)
    parser.add_argument("--max-mib", type=int, default=64, help="the bound of EVENTS; 0: it is not trimmed")
    parser.add_argument("--living", type=int, default=100, help="executions that do not end")
    options = parser.parse_args()
    bounds = RetentionSettings(events_max_bytes=options.max_mib * 2**20) if options.max_mib else None
    with nats_server() as url:
        (process,) = psutil.Process().children()
        uvloop.run(measure(url, process, options.executions, bounds, options.living))


if __name__ == "__main__":
    main()
