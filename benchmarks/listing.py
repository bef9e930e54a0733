"""What lists cost with a million ended executions, and what those cost running executions.

    python benchmarks/listing.py [executions] [events of each]

Embedded NATS and Postgres in two temporary homes, one of which is filled. Each query runs many times with different
values, for a page of 50, from the start or from a random cursor. `bench` then runs on both in turns, so that a drift of
the machine's speed affects both alike.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import asyncpg

from noetl_stream.hosting.bench import Bench, Figures, Load
from noetl_stream.model.ids import partition_of, uuid7
from noetl_stream.model.search_terms import error_terms, label_terms
from noetl_stream.operations.executions.selections import groups_of, histogram_of
from noetl_stream.ports.operations.executions import ExecutionFilter
from noetl_stream.ports.stores.store import ListingFilter, Store
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import connected_to, open_stack, prepare_embedded

DAY_MS: Final = 86_400_000
DAYS: Final = 30
ROUNDS: Final = 200
PAGE: Final = 50
COUNTED_TIMES: Final = 10
TURNS: Final = 6
LOAD: Final = Load(
    executions=500, steps=3, latency_runs=0, fan_out=100, in_flight=100, repeat=3, servers=1, workers=1, slots=256
)
AT_ONCE: Final = 50_000
"""Executions per COPY."""

COLUMNS: Final = (
    "execution_id", "partition", "status", "path", "version", "digest", "position", "started_ms", "updated_ms",
    "finished_ms", "result", "error", "ctx", "discarded", "trace_id", "labels",
)  # fmt: skip
TERM_COLUMNS: Final = ("term", "execution_id")
REQUEST_COLUMNS: Final = ("execution_id", "request_id", "answer", "position")
EVENT_COLUMNS: Final = ("execution_id", "position", "name", "source", "at_ms", "step_run_id", "data")
DATA: Final = json.dumps({"name": "task.processed", "task": "fetch", "outcome": {"result": {"value": "x" * 200}}})
TEAMS: Final = ("data", "web", "billing", "search", "mail", "ops", "labs", "audit")
MESSAGES: Final = (
    "GET https://api-{host}.example.com/orders/{id} answered with status 503",
    "connection to db-{host}.example.com was lost: timeout after 30 s",
    "could not read customer {id}: no such row",
)
OUTAGE: Final = "deadlock detected while order {id} was written to db-{host}.example.com"


class History:
    """Random executions, the same in every run. ``ids`` are in the order of their starts."""

    def __init__(self, count: int) -> None:
        self._random = random.Random(4)
        self._first_ms = int(time.time() * 1000) - DAYS * DAY_MS
        self.count = count
        self.paths = [f"team{number % 17}/flow{number}" for number in range(500)]
        times_ms = (self._first_ms + DAYS * DAY_MS * number // count for number in range(count))
        self.ids = [uuid7(at_ms, self._random.randbytes(10)) for at_ms in times_ms]

    def at_ms(self, share: float) -> int:
        """The time, in ms since the epoch, after this share of the whole period."""
        return self._first_ms + int(DAYS * DAY_MS * share)

    def rows(self, first: int, last: int) -> Iterator[tuple[dict[str, Any], set[str]]]:
        """The rows of executions ``first`` to ``last``, each with its search terms."""
        for number in range(first, last):
            drawn, at_ms = self._random, self.at_ms(number / self.count)
            in_outage = 0.30 < number / self.count < 0.33
            status = drawn.choices(("completed", "failed", "cancelled"), (4, 95, 1) if in_outage else (93, 5, 2))[0]
            error = self._error(OUTAGE if in_outage else drawn.choice(MESSAGES), status)
            labels = {"team": drawn.choices(TEAMS, (60, 20, 10, 5, 3, 1, 1, 0.01))[0], "tier": number % 3}
            if number % 10_000 == 7:
                labels["customer"] = f"c{number}"
            took_ms = drawn.randrange(20, 60_000)
            execution_id, end_ms = self.ids[number], at_ms + took_ms
            row = (
                execution_id, partition_of(execution_id), status, self._path(number), "1.0", "d" * 64, 20, at_ms,
                end_ms, end_ms, b'{"value":{"rows":[1,2,3]}}' if error is None else None,
                None if error is None else json.dumps(error).encode(), b'{"seen":1}', 0, "t" * 32,
                json.dumps(labels).encode(),
            )  # fmt: skip
            terms = label_terms(labels) | (error_terms(error) if error is not None else set())
            yield dict(zip(COLUMNS, row, strict=True)), terms

    def _path(self, number: int) -> str:
        """A few paths make up most executions; some are hardly ever run."""
        return self.paths[min(len(self.paths) - 1, int(self._random.paretovariate(0.7)) - 1)]

    def _error(self, message: str, status: str) -> dict[str, Any] | None:
        if status == "completed":
            return None
        if status == "cancelled":
            return {"kind": "cancelled", "message": "asked to"}
        drawn = self._random
        text = message.format(host=drawn.randrange(40), id=drawn.randrange(10**9))
        return {"kind": "exception", "message": text, "task": "fetch"}


async def fill(dsn: str, made: History, events: int) -> None:
    """Copies the executions into the tables, as the fold would have written them."""
    connection = await asyncpg.connect(dsn, timeout=60)
    await connection.set_type_codec("json", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary")
    data = DATA.encode()
    try:
        for first in range(0, made.count, AT_ONCE):
            rows = list(made.rows(first, min(made.count, first + AT_ONCE)))
            ids = [row["execution_id"] for row, _ in rows]
            terms = [(term, row["execution_id"]) for row, found_by in rows for term in found_by]
            journal = ((one, n, "task.processed", "worker", 0, "run", data) for one in ids for n in range(events))
            tables: tuple[tuple[str, tuple[str, ...], Any], ...] = (
                ("execution", COLUMNS, (tuple(row.values()) for row, _ in rows)),
                ("execution_term", TERM_COLUMNS, terms),
                ("request", REQUEST_COLUMNS, ((one, one, b'{"ok":true}', 1) for one in ids)),
                ("event", EVENT_COLUMNS, journal),
            )
            for name, columns, records in tables:
                await connection.copy_records_to_table(name, schema_name="noetl", columns=columns, records=records)
        await connection.execute("vacuum (analyze) noetl.execution, noetl.execution_term, noetl.request, noetl.event")
        sizes = await connection.fetch(
            "select relname, pg_total_relation_size(oid) / 1048576 from pg_class "
            "where relname in ('execution', 'execution_term', 'event') order by 1"
        )
        print("with indexes, MiB: " + ", ".join(f"{name} {size}" for name, size in sizes))
    finally:
        await connection.close()


def queries(made: History) -> dict[str, Callable[[], tuple[ListingFilter, str | None]]]:
    """Each kind of query: a filter, and the cursor to start from."""
    drawn = random.Random(5)

    def any_id() -> str:
        return drawn.choice(made.ids)

    def customer() -> str:
        return f"label:customer=c{drawn.randrange(made.count // 10_000) * 10_000 + 7}"

    def folder() -> str:
        return drawn.choice(made.paths).partition("/")[0]

    def a_day(**more: Any) -> ListingFilter:
        from_ms = made.at_ms(drawn.random() * 0.9)
        return ListingFilter(**more, started_from_ms=from_ms, started_before_ms=from_ms + DAY_MS)

    data, failed = "label:team=data", ("failed",)
    return {
        "all, newest": lambda: (ListingFilter(), None),
        "all, any page": lambda: (ListingFilter(), any_id()),
        "status, frequent": lambda: (ListingFilter(("completed",)), any_id()),
        "status, failed": lambda: (ListingFilter(failed), any_id()),
        "status, none has it": lambda: (ListingFilter(("paused",)), None),
        "status, two of them": lambda: (ListingFilter(("failed", "cancelled")), any_id()),
        "path, frequent": lambda: (ListingFilter(path=made.paths[0]), any_id()),
        "path, any": lambda: (ListingFilter(path=drawn.choice(made.paths)), None),
        "path and failed": lambda: (ListingFilter(failed, drawn.choice(made.paths[:50])), None),
        "folder": lambda: (ListingFilter(path=folder()), any_id()),
        "folder and failed": lambda: (ListingFilter(failed, folder()), any_id()),
        "folder and label": lambda: (ListingFilter(path=folder(), terms=(data,)), None),
        "label, frequent": lambda: (ListingFilter(terms=(data,)), any_id()),
        "label, one in 10,000": lambda: (ListingFilter(terms=("label:team=audit",)), None),
        "label, of one execution": lambda: (ListingFilter(terms=(customer(),)), None),
        "two labels, both frequent": lambda: (ListingFilter(terms=(data, "label:tier=1")), any_id()),
        "two labels, one rare": lambda: (ListingFilter(terms=(data, customer())), None),
        "label and failed": lambda: (ListingFilter(failed, terms=(data,)), any_id()),
        "label and a status none has": lambda: (ListingFilter(("paused",), terms=(data,)), None),
        "label and any path": lambda: (ListingFilter(path=drawn.choice(made.paths), terms=(data,)), None),
        "a day": lambda: (a_day(), None),
        "a day, failed": lambda: (a_day(statuses=failed), None),
        "a day, path and label": lambda: (a_day(path=made.paths[1], terms=(data,)), None),
        "word, frequent": lambda: (ListingFilter(terms=("word:timeout",)), any_id()),
        "word, only of long ago": lambda: (ListingFilter(terms=("word:deadlock",)), None),
        "word, none has it": lambda: (ListingFilter(terms=("word:nowhere",)), None),
        "three words": lambda: (ListingFilter(terms=("word:db", "word:lost", f"word:{drawn.randrange(40)}")), any_id()),
        "two words never together": lambda: (ListingFilter(terms=("word:deadlock", "word:503")), None),
        "word and path": lambda: (ListingFilter(path=made.paths[0], terms=("word:timeout",)), any_id()),
    }


async def ask(store: Store, made: History) -> None:
    """Prints p50 and p95 of each kind of query, and the most rows it returned."""
    print(f"{'query':<30} {'rows':>4} {'p50 ms':>8} {'p95 ms':>8} {'max ms':>8}")
    for name, query in queries(made).items():
        spans, found = [], 0
        for _ in range(ROUNDS):
            wanted, before = query()
            began_s = time.perf_counter()
            found = max(found, len(await store.list_executions(wanted, PAGE, before)))
            spans.append((time.perf_counter() - began_s) * 1e3)
        cut = statistics.quantiles(spans, n=100)
        print(f"{name:<30} {found:>4} {cut[49]:>8.2f} {cut[94]:>8.2f} {max(spans):>8.1f}", flush=True)


def counts(made: History) -> dict[str, tuple[ExecutionFilter, str]]:
    """Each kind of count: a filter, and what the groups are by; empty for a histogram."""
    since_ms = made.at_ms(0)
    return {
        "histogram, a day": (ExecutionFilter(started_from_ms=made.at_ms(1) - DAY_MS), ""),
        "histogram, 30 days": (ExecutionFilter(started_from_ms=since_ms), ""),
        "histogram, a folder": (ExecutionFilter(started_from_ms=since_ms, path="team0"), ""),
        "histogram, a frequent label": (ExecutionFilter(started_from_ms=since_ms, labels={"team": "data"}), ""),
        "histogram, a rare label": (ExecutionFilter(started_from_ms=since_ms, labels={"team": "audit"}), ""),
        "groups by path": (ExecutionFilter(), "path"),
        "groups by label": (ExecutionFilter(), "label:team"),
        "groups by path, failed": (ExecutionFilter(status=("failed",)), "path"),
    }


async def tally(store: Store, made: History) -> None:
    """Prints what each kind of count costs, and how many executions it has counted."""
    for name, (chosen, by) in counts(made).items():
        spans, counted = [], 0
        for _ in range(COUNTED_TIMES):
            began_s = time.perf_counter()
            if by:
                counted = sum(sum(one.counts.values()) for one in (await groups_of(store, chosen, by)).items)
            else:
                counted = sum((await histogram_of(store, chosen, 120, made.at_ms(1))).counts.values())
            spans.append((time.perf_counter() - began_s) * 1e3)
        print(f"{name:<30} {counted:>8} {statistics.median(spans):>8.1f} {max(spans):>8.1f}", flush=True)


async def steps_a_second(homes: dict[str, Path]) -> None:
    """Prints steps per second in each home, measured in turns, and the CPU of all processes per step."""
    seen: dict[str, list[Figures]] = {name: [] for name in homes}
    with ExitStack() as stack:
        for home in homes.values():  # each turn joins them: they keep running in between
            await prepare_embedded(stack.enter_context(open_stack(Settings(home_folder=home))))
        for _ in range(TURNS):
            for name, home in homes.items():
                with open_stack(Settings(home_folder=home)) as place:
                    async with connected_to(place, "listing") as connected:
                        seen[name].append(await Bench(place, connected, LOAD).run())
    for name, turns in seen.items():
        speeds = [speed for figures in turns for speed in figures.steps_per_s]
        cost_us = [sum(figures.cpu_us_per_step.values()) for figures in turns]
        print(
            f"{name}: {statistics.median(speeds):.0f} steps/s ({min(speeds):.0f} to {max(speeds):.0f}), "
            f"{statistics.median(cost_us):.0f} us of CPU per step ({min(cost_us):.0f} to {max(cost_us):.0f})",
            flush=True,
        )


async def measure(count: int, events: int, homes: dict[str, Path]) -> None:
    with open_stack(Settings(home_folder=homes["full"])) as place:
        await prepare_embedded(place)
        made, began_s = History(count), time.perf_counter()
        assert place.embedded is not None
        await fill(place.embedded.address.postgres_dsn, made, events)
        print(f"{count} executions of {events} events each, filled in {time.perf_counter() - began_s:.0f} s")
        async with connected_to(place, "listing") as connected:
            await ask(connected.store, made)
            await tally(connected.store, made)
    # Postgres is stopped in between, so that everything is written.
    await steps_a_second(homes)


if __name__ == "__main__":
    count, events = [*map(int, sys.argv[1:]), *(1_000_000, 6)[len(sys.argv) - 1 :]]
    both = {name: Path(tempfile.mkdtemp(prefix=f"listing-{name}-")) for name in ("empty", "full")}
    asyncio.run(measure(count, events, both))
