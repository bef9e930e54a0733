"""The result of a loop with very many iterations is read piece by piece."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Collection
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.errors import BlobMissing
from noetl_stream.model.events import LoopDone, LoopIterationDone, LoopIterationFailed, LoopStarted, TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload
from noetl_stream.ports.stores.store import EntryRow, StoredEntry
from noetl_stream.storage.journal import FIRST_READ, MOST_READ
from noetl_stream.storage.loop_results import PIECE_BYTES, LoopResult, gather_iterations
from noetl_testkit.conformance.store_rows import execution_row, following, taken, tick_of

COUNT = 5 * MOST_READ + 7
FAILED = 3


class CountedStore(MemoryStore):
    """Notes how many entries are read at once, and how many bytes these have."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.pieces: list[int] = []
        self.sizes: list[int] = []

    async def iteration_results(self, execution_id: str, step_run_id: str, after: int, limit: int) -> list[StoredEntry]:
        return self._noted(await super().iteration_results(execution_id, step_run_id, after, limit))

    async def entries_at(self, execution_id: str, positions: Collection[int]) -> list[StoredEntry]:
        return self._noted(await super().entries_at(execution_id, positions))

    def _noted(self, found: list[StoredEntry]) -> list[StoredEntry]:
        self.pieces.append(len(found))
        self.sizes.append(sum(len(entry.data) for entry in found))
        return found


def reported(position: int, index: int, text: str = "") -> EntryRow:
    outcome = Outcome("ok", Payload(msgspec.Raw(codec.encode(value_of(index, text)))))
    processed = TaskProcessed("work", 1, outcome, "continue", path=(index,))
    failed = LoopIterationFailed((index,), ErrorInfo("exception", "no"))
    facts = [processed, failed if index == FAILED else LoopIterationDone((index,))]
    return entry(position, codec.encode(facts), report_id=f"c.1.1.nonce.{index}", number=0)


def value_of(index: int, text: str) -> dict[str, Any]:
    return {"n": index, "text": text} if text else {"n": index}


def entry(position: int, data: bytes, **more: object) -> EntryRow:
    return EntryRow(execution_id="a", position=position, source="worker", at_ms=1, step_run_id="run", data=data, **more)


async def stored(count: int, text: str = "") -> CountedStore:
    """A loop whose iterations have ended in any order."""
    store = CountedStore(ManualClock())
    order = random.Random(7).sample(range(count), count)
    rows = [reported(2 * place + 2, index, text) for place, index in enumerate(order)]
    rows = [entry(1, codec.encode([LoopStarted("run", count)])), *rows]
    rows.append(entry(2 * count + 2, codec.encode([LoopDone("run", count, count - 1, 1, 0)])))
    (lease,) = await taken(store)
    tick = tick_of("one", [lease], executions=[execution_row("a")])
    await store.commit(tick)
    await store.commit(following(tick, entries=rows))
    return store


def result_of(count: int, text: str = "") -> list[Any]:
    return [None if index == FAILED else value_of(index, text) for index in range(count)]


async def test_a_loop_of_many_iterations_is_gathered_in_pieces_and_in_order() -> None:
    store = await stored(COUNT)
    data = await gather_iterations(store, MemoryBroker(ManualClock()).blobs, "a", "run")
    assert data == codec.encode(result_of(COUNT))
    assert (store.pieces[0], max(store.pieces), sum(store.pieces)) == (FIRST_READ, MOST_READ, COUNT + 2)


@pytest.mark.parametrize("kept_bytes", [0, 1_000, 1_000_000])
async def test_results_that_are_not_kept_are_read_again_in_order(kept_bytes: int) -> None:
    store = await stored(COUNT)
    loop = await LoopResult.read(store, MemoryBroker(ManualClock()).blobs, "a", "run", kept_bytes)
    pieces = [piece async for piece in loop.pieces()]
    assert b"".join(pieces) == codec.encode(result_of(COUNT))
    assert loop.size == len(b"".join(pieces)) - len("[null]") - (COUNT - 1)
    assert max(store.pieces) == MOST_READ


async def test_a_long_result_is_in_memory_a_few_pieces_at_a_time() -> None:
    text = "x" * 40_000
    store, count = await stored(800, text), 800
    tracemalloc.start()
    try:
        loop = await LoopResult.read(store, MemoryBroker(ManualClock()).blobs, "a", "run")
        digest, sizes = sha256(), []
        async for piece in loop.pieces():
            digest.update(piece)
            sizes.append(len(piece))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert digest.digest() == sha256(codec.encode(result_of(count, text))).digest()
    assert loop.size > 30_000_000
    most = PIECE_BYTES + 100_000
    assert max(sizes) <= most
    assert max(store.sizes) <= FIRST_READ * 41_000
    assert peak < 6 * PIECE_BYTES


async def test_a_journal_that_is_deleted_meanwhile_is_a_lost_result() -> None:
    store = await stored(COUNT)
    loop = await LoopResult.read(store, MemoryBroker(ManualClock()).blobs, "a", "run", kept_bytes=0)
    store.tables.journals.clear()
    with pytest.raises(BlobMissing, match="is being deleted"):
        [piece async for piece in loop.pieces()]


async def test_nested_loops_are_nested_lists_whether_their_results_are_kept_or_not() -> None:
    store = CountedStore(ManualClock())
    paths = [(1, 1), (0, 0), (1, 0)]
    done = [
        [
            TaskProcessed("first", 1, Outcome("ok", Payload(msgspec.Raw(b'"not this"'))), "continue", path=path),
            TaskProcessed("work", 1, Outcome("ok", Payload(msgspec.Raw(codec.encode([*path])))), "continue", path=path),
            LoopIterationDone(path),
        ]
        for path in paths
    ]
    inner = [LoopDone("run", 1, 1, 0, 0, path=(0,)), LoopDone("run", 2, 2, 0, 0, path=(1,))]
    facts = [[LoopStarted("run", 2)], *done, [*inner, LoopDone("run", 2, 2, 0, 0)]]
    rows = [entry(10 * place + 1, codec.encode(some)) for place, some in enumerate(facts)]
    (lease,) = await taken(store)
    tick = tick_of("one", [lease], executions=[execution_row("a")])
    await store.commit(tick)
    await store.commit(following(tick, entries=rows))
    for kept_bytes in (0, 7, 1_000):
        loop = await LoopResult.read(store, MemoryBroker(ManualClock()).blobs, "a", "run", kept_bytes)
        shown = b"".join([piece async for piece in loop.pieces(lambda data: data.replace(b"1", b"9"))])
        assert codec.decode_json(shown) == [[[0, 0]], [[9, 0], [9, 9]]]
