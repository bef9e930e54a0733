"""Makes spans of committed journals, beside the loop that commits them.

Law: a commit costs a copy of references, and only for executions that are sampled. Waiting segments are bounded; the
excess is dropped and counted. A span is made from the journal alone, so it is the same whichever server makes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from noetl_stream.engine.state import Execution
from noetl_stream.errors import NoetlError
from noetl_stream.lru import LruCache
from noetl_stream.model.traces import execution_span, trace_of
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.traces import SpanLink, Tracing
from noetl_stream.server.ticks.tick import JournalSegment, PendingTick
from noetl_stream.server.tracing.spans import JournalReading, TracedExecution
from noetl_stream.storage.journal import fact_of, facts_of, pieces

log = logging.getLogger(__name__)

MAX_WAITING_BYTES: Final = 32 * 1024 * 1024
READINGS_KEPT: Final = 10_000
AT_ONCE_BYTES: Final = 64 * 1024
"""The size from which a segment is read in a thread, so that the loop goes on meanwhile."""

CLOSE_S: Final = 2.0


class _Committed(NamedTuple):
    execution: TracedExecution
    segment: JournalSegment


class ServerTraces:
    """Makes the spans of the executions of a server.

    Args:
        store: The store with the journals of executions that another server has begun.
    """

    def __init__(self, tracing: Tracing, store: Store) -> None:
        self.tracing = tracing
        self._store = store
        self._waiting: deque[_Committed] = deque()
        self._waiting_bytes = 0
        self._is_wanted = asyncio.Event()
        self._readings: LruCache[str, JournalReading] = LruCache(READINGS_KEPT)

    def add_segments(self, tick: PendingTick) -> None:
        """Takes the journal segments of a committed tick."""
        for execution_id, segment in tick.segments.items():
            execution = _traced_execution(tick.touched[execution_id].state)
            if not self.tracing.is_sampled(execution.trace):
                continue
            if self._waiting_bytes + segment.size > MAX_WAITING_BYTES:
                self.tracing.drop(len(segment.entries))
                continue
            self._waiting_bytes += segment.size
            self._waiting.append(_Committed(execution, segment))
            self._is_wanted.set()

    async def run(self) -> None:
        """Makes spans until cancelled."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            await self._make_waiting_spans()

    async def close(self) -> None:
        """Makes the waiting spans, within :data:`CLOSE_S`, and exports them."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._make_waiting_spans()
        except TimeoutError:
            self.tracing.drop(sum(len(one.segment.entries) for one in self._waiting))
        await self.tracing.close()

    async def _make_waiting_spans(self) -> None:
        while self._waiting:
            execution, segment = self._waiting.popleft()
            self._waiting_bytes -= segment.size
            try:
                await self._make_spans(execution, segment)
            except NoetlError as error:
                self._readings.drop(execution.execution_id)
                self.tracing.drop(len(segment.entries))
                log.info("spans are dropped: %s", error, extra={"execution": execution.execution_id})
            await asyncio.sleep(0)

    async def _make_spans(self, execution: TracedExecution, segment: JournalSegment) -> None:
        reading = await self._reading_before(execution, segment.first_position)
        facts = (fact for one in segment.entries for fact in facts_of(one.row(execution.execution_id)))
        if segment.size <= AT_ONCE_BYTES:
            spans = reading.take(facts)
        else:
            spans = await asyncio.to_thread(reading.take, facts)
        for span in spans:
            self.tracing.record(span)
        if reading.has_ended:
            self._readings.drop(execution.execution_id)

    async def _reading_before(self, execution: TracedExecution, position: int) -> JournalReading:
        """Returns the reading of the journal before ``position``: a new one if the cached one has a gap."""
        execution_id = execution.execution_id
        reading = self._readings.get(execution_id)
        if reading is not None and reading.position == position - 1:
            return reading
        reading = JournalReading(execution, await self._links(execution))
        if position > 1:
            async for piece in pieces(self._store, execution_id):
                before = [row for row in piece if row.position < position]
                reading.take(map(fact_of, before))
                if len(before) < len(piece):
                    break
        self._readings.put(execution_id, reading)
        return reading

    async def _links(self, execution: TracedExecution) -> Sequence[SpanLink]:
        """Returns the link to the original of a rerun, in its trace."""
        row = await self._store.execution(execution.rerun_of) if execution.rerun_of else None
        if row is None:
            return ()
        original = trace_of(row.execution_id, row.trace_id, "")
        return (SpanLink(original.trace_id, execution_span(row.execution_id)),)


def _traced_execution(state: Execution) -> TracedExecution:
    parent = state.parent
    return TracedExecution(
        execution_id=state.execution_id,
        trace=trace_of(state.execution_id, state.trace_id, state.caller_span),
        path=state.path,
        version=state.version,
        caller="" if parent is None else parent.execution_id,
        caller_step_run="" if parent is None else parent.step_run_id,
        rerun_of=state.rerun_of,
    )
