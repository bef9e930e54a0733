"""The tables of the fold's store in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from noetl_stream.adapters.memory.stores.aggregates import AggregateTables
from noetl_stream.adapters.memory.stores.limit_slots import LimitTables
from noetl_stream.ports.stores.store import (
    EntryRow,
    ExecutionRow,
    InboxRow,
    KnownServer,
    ObjectUseRow,
    PartitionLease,
    PlaybookRow,
    RequestRow,
    SnapshotRow,
    StaleReportRow,
    TimerRow,
)
from noetl_stream.protocol.rows import columns_of

NEVER_S = float("-inf")


@dataclass
class PartitionRow:
    """A partition, with its lease and its cursor."""

    id: int
    epoch: int = 0
    owner: str | None = None
    lease_until_s: float = NEVER_S
    given_back: bool = True
    crashes: int = 0
    tick: int = 0
    published_tick: int = 0
    last_seq: int = 0
    last_ms: int = 0
    generation: int = 0
    folding: str | None = None
    suspect: str | None = None
    suspicions: int = 0

    def lease(self) -> PartitionLease:
        return columns_of(PartitionLease, self)

    def is_live(self, now_s: float) -> bool:
        return self.owner is not None and self.lease_until_s > now_s


@dataclass
class MemoryTables:
    """The tables of a :class:`MemoryStore`, for tests to read and damage."""

    partitions: list[PartitionRow]
    journals: dict[str, dict[int, EntryRow]] = field(default_factory=dict)
    executions: dict[str, ExecutionRow] = field(default_factory=dict)
    requests: dict[tuple[str, str], RequestRow] = field(default_factory=dict)
    playbooks: dict[str, PlaybookRow] = field(default_factory=dict)
    timers: dict[tuple[str, str], TimerRow] = field(default_factory=dict)
    inbox: dict[int, InboxRow] = field(default_factory=dict)
    inbox_sent: int = 0
    events_floor: int = 0
    object_uses: dict[tuple[str, str], ObjectUseRow] = field(default_factory=dict)
    terms: set[tuple[str, str]] = field(default_factory=set)
    stale_reports: list[StaleReportRow] = field(default_factory=list)
    snapshots: dict[tuple[str, int], SnapshotRow] = field(default_factory=dict)
    servers: dict[str, tuple[KnownServer, float]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    aggregates: AggregateTables = field(default_factory=AggregateTables)
    limits: LimitTables = field(default_factory=LimitTables)
