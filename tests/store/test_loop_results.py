"""The result of a loop with very many iterations is read piece by piece."""

from __future__ import annotations

import random

import msgspec

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.model.events import LoopDone, LoopIterationDone, LoopIterationFailed, LoopStarted, TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload
from noetl_stream.ports.stores.store import EntryRow, StoredEntry
from noetl_stream.storage.loop_results import ENTRIES_AT_ONCE, gather_iterations
from noetl_testkit.conformance.store_rows import execution_row, following, taken, tick_of

COUNT = 5 * ENTRIES_AT_ONCE + 7
FAILED = 3


class CountedStore(MemoryStore):
    """Notes how many entries are read at once."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.pieces: list[int] = []

    async def iteration_results(self, execution_id: str, step_run_id: str, after: int, limit: int) -> list[StoredEntry]:
        found = await super().iteration_results(execution_id, step_run_id, after, limit)
        self.pieces.append(len(found))
        return found


def reported(position: int, index: int) -> EntryRow:
    outcome = Outcome("ok", Payload(msgspec.Raw(codec.encode({"n": index}))))
    processed = TaskProcessed("work", 1, outcome, "continue", path=(index,))
    failed = LoopIterationFailed((index,), ErrorInfo("exception", "no"))
    facts = [processed, failed if index == FAILED else LoopIterationDone((index,))]
    return entry(position, codec.encode(facts), report_id=f"c.1.1.nonce.{index}", number=0)


def entry(position: int, data: bytes, **more: object) -> EntryRow:
    return EntryRow(execution_id="a", position=position, source="worker", at_ms=1, step_run_id="run", data=data, **more)


async def test_a_loop_of_many_iterations_is_gathered_in_pieces_and_in_order() -> None:
    store = CountedStore(ManualClock())
    order = random.Random(7).sample(range(COUNT), COUNT)
    rows = [reported(2 * place + 2, index) for place, index in enumerate(order)]
    rows = [entry(1, codec.encode([LoopStarted("run", COUNT)])), *rows]
    rows.append(entry(2 * COUNT + 2, codec.encode([LoopDone("run", COUNT, COUNT - 1, 1, 0)])))
    (lease,) = await taken(store)
    tick = tick_of("one", [lease], executions=[execution_row("a")])
    await store.commit(tick)
    await store.commit(following(tick, entries=rows))
    data = await gather_iterations(store, MemoryBroker(ManualClock()).blobs, "a", "run")
    assert data == codec.encode([None if index == FAILED else {"n": index} for index in range(COUNT)])
    assert store.pieces == [ENTRIES_AT_ONCE] * 5 + [COUNT + 2 - 5 * ENTRIES_AT_ONCE, 0]
