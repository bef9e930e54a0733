"""Spans in memory, and the diagnosis of stores in memory: there is always room, and one clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.model.traces import Trace
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.self_reports import DatabaseFacts, NatsFacts, NatsStorage, StreamFacts, TableFacts
from noetl_stream.ports.stores.store import KnownServer
from noetl_stream.ports.traces import SPANS, Span
from noetl_stream.telemetry.measures import Reading

VERSION: Final = "in memory"


class MemoryTracing:
    """:class:`~noetl_stream.ports.traces.Tracing` that keeps all spans, unless a caller does not sample its own."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.dropped = 0

    def is_sampled(self, trace: Trace) -> bool:
        return trace.is_callers_sampled or not trace.caller

    def record(self, span: Span) -> None:
        self.spans.append(span)

    def drop(self, spans: int) -> None:
        self.dropped += spans

    def readings(self) -> Sequence[Reading]:
        return (SPANS.read_each({"exported": len(self.spans), "dropped": self.dropped}),)

    async def close(self) -> None:
        pass


class MemoryDatabaseDiagnosis:
    """:class:`~noetl_stream.ports.self_reports.DatabaseDiagnosis`."""

    def __init__(self, store: MemoryStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def facts(self) -> DatabaseFacts:
        return DatabaseFacts(
            version=VERSION,
            user="noetl_gateway",
            now_ms=self._clock.now_ms(),
            size_bytes=0,
            connections=1,
            max_connections=100,
            waits_for="",
            standbys=0,
            synchronous=0,
            certificate_ends_ms=None,
        )

    async def tables(self) -> list[TableFacts]:
        rows = sum(len(entries) for entries in self._store.tables.journals.values())
        return [TableFacts("event", 0, rows), TableFacts("execution", 0, len(self._store.tables.executions))]

    async def live_servers(self) -> list[KnownServer]:
        return [server for server in self._store.known_servers() if server.live]

    async def excess_rights(self, role: str) -> list[str]:
        return []

    async def newer_migrations(self) -> list[str]:
        return []


class MemoryNatsDiagnosis:
    """:class:`~noetl_stream.ports.self_reports.NatsDiagnosis`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def facts(self) -> NatsFacts:
        return NatsFacts(VERSION, "gateway", "", sync_s=0.0)

    async def stream(self, name: str) -> StreamFacts:
        return StreamFacts(name, exists=True, now_ms=self._clock.now_ms())

    async def storage(self) -> NatsStorage:
        return NatsStorage(0, None)

    async def stored_since(self, stream: str, from_ms: int) -> int:
        return 0
