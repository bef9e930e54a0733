"""How long schedules take that are all due in the same second, and what they cost while they wait.

    python benchmarks/schedules.py [schedules]

Embedded NATS and Postgres, one server and one worker, in a temporary home. Each schedule starts a playbook of one no-op
step. The CPU of the server at rest is that of 20 seconds, without schedules and with 1,000 that are not due.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench_stack import running, until
from noetl_stream.hosting.processes import Supervised
from noetl_stream.model.aggregates import ScheduleRegistered, ScheduleTerms, Timetable
from noetl_stream.operations.executions.submit import ask_aggregate
from noetl_stream.operations.playbooks import entry_of
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.ports.stores.store import ListingFilter
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.tools.registry import kinds_of
from noetl_stream.wiring.operations import installed_kinds
from noetl_stream.wiring.stack import StackAccess, connected_to, open_stack, prepare_embedded
from noetl_stream.wiring.stores import Connected

AT_ONCE = 200
REST_S = 20.0
PATH = "bench/tick"
SOURCE = json.dumps(
    {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "tick", "path": PATH},
        "workflow": [{"step": "only", "tool": {"kind": "noop"}}],
    }
)


async def register(connected: Connected, count: int, due_ms: int) -> float:
    """Registers schedules that are due once. Returns the seconds it took."""
    gate, began_s = asyncio.Semaphore(AT_ONCE), time.perf_counter()
    terms = ScheduleTerms(playbook=PATH, timetable=Timetable(at_ms=(due_ms,)), missed="all")

    async def one(number: int) -> None:
        path = f"bench/schedule-{number}"
        fact = ScheduleRegistered(f"register-{number}-{due_ms}", path, "bench", terms=terms, revision=due_ms)
        async with gate:
            await ask_aggregate(connected.requests, connected.bus, connected.clock, "starter", fact)

    await asyncio.gather(*map(one, range(count)))
    return time.perf_counter() - began_s


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder, open_stack(Settings(home_folder=Path(folder))) as place:
        await prepare_embedded(place)
        async with connected_to(place, "noetl-bench") as connected:
            await measure(place, connected, count)


async def measure(place: StackAccess, connected: Connected, count: int) -> None:
    store, clock = connected.store, connected.clock
    plan = compile_playbook(SOURCE, kinds_of(installed_kinds()))
    entry = entry_of(SOURCE, plan, registered_ms=clock.now_ms(), registered_by="bench")
    await store.catalog.register(entry, SOURCE)
    async with running(place, ["server"], ["worker", "--slots", "32"]) as (server, _):

        async def owned() -> bool:
            return all(view.live for view in await store.read_partitions())

        await until(owned)
        print(f"CPU of the server at rest: {await cpu_at_rest(server):.1f} %")
        await register(connected, 1_000, clock.now_ms() + 30 * 24 * 3_600_000)
        print(f"with 1,000 idle schedules: {await cpu_at_rest(server):.1f} %")
        due_ms = clock.now_ms() + 1_000 * max(10, count // 100)
        took_s = await register(connected, count, due_ms)
        print(f"registered: {count / took_s:.0f} a second")
        await asyncio.sleep(max(0.0, due_ms / 1000 - time.time()))

        async def ended() -> bool:
            living = sum((await store.living_by_status()).values())
            rows = await store.list_executions(ListingFilter(path=PATH), count, None)
            return len(rows) == count and not living

        await until(ended)
        rows = await store.list_executions(ListingFilter(path=PATH), count, None)
        starts = sorted(row.started_ms - due_ms for row in rows)
        ends = max((row.finished_ms or 0) - due_ms for row in rows)
        print(f"{count} schedules due in one second: half started after {starts[count // 2] / 1000:.1f} s, ", end="")
        print(f"all after {starts[-1] / 1000:.1f} s; all ended after {ends / 1000:.1f} s")


async def cpu_at_rest(server: Supervised) -> float:
    """Percent of one CPU."""
    process = psutil.Process(server.pid or 0)
    before_s = sum(process.cpu_times()[:2])
    await asyncio.sleep(REST_S)
    return float(100 * (sum(process.cpu_times()[:2]) - before_s) / REST_S)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
