"""The tables of the fold's store in memory, and the ports that use only some of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

from msgspec.structs import replace

from noetl_stream.model.aggregates import LimitFact, is_limit
from noetl_stream.model.json import codec
from noetl_stream.model.rights import covers
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.aggregates import AggregateRow, HistoryRow, LimitSlotRow, PlacedSlot, WantedSlots
from noetl_stream.ports.stores.cursors import Cursor, Repair
from noetl_stream.ports.stores.dead_letters import DeadLetter, DeadLetterRow, HeldLetters, LetterBounds, LetterState
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
    Tick,
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
    behind: int = 0
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
class AggregateTables:
    """Tables of aggregates by id, and of histories by aggregate and number."""

    rows: dict[str, AggregateRow] = field(default_factory=dict)
    histories: dict[str, dict[int, HistoryRow]] = field(default_factory=dict)

    def write(self, tick: Tick) -> None:
        for row in tick.aggregates:
            before = self.rows.get(row.id)
            self.rows[row.id] = row if before is None else row.over(before)
        for gone in tick.aggregates_gone:
            self.rows.pop(gone.id, None)
            self.histories.pop(gone.id, None)
        for entry in tick.history:
            self.histories.setdefault(entry.aggregate_id, {})[entry.number] = entry
        for trimmed in tick.history_gone:
            kept = self.histories.get(trimmed.aggregate_id, {})
            for number in [number for number in kept if number <= trimmed.through]:
                del kept[number]


@dataclass
class LimitTables:
    """Tables of slots, by limit and holder."""

    rows: dict[tuple[str, str], LimitSlotRow] = field(default_factory=dict)

    def write(self, tick: Tick) -> None:
        for row in tick.limit_slots:
            key = (row.limit_id, row.holder)
            before = self.rows.get(key)
            self.rows[key] = row if before is None else row.over(before)
        for gone in tick.limit_slots_gone:
            self.rows.pop((gone.limit_id, gone.holder), None)

    def askers(self, inbox: Iterable[InboxRow]) -> set[str]:
        """The executions that hold or await slots, and those whose messages to limits are not folded yet."""
        facts = (codec.decode_aggregate_message(row.body).fact for row in inbox if is_limit(row.execution_id))
        asked = {fact.execution_id for fact in facts if isinstance(fact, LimitFact)}
        return asked | {row.execution_id for row in self.rows.values()}


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
    keys: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    stale_reports: list[StaleReportRow] = field(default_factory=list)
    snapshots: dict[tuple[str, int], SnapshotRow] = field(default_factory=dict)
    servers: dict[str, tuple[KnownServer, float]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    aggregates: AggregateTables = field(default_factory=AggregateTables)
    limits: LimitTables = field(default_factory=LimitTables)


class MemoryAggregates:
    """:class:`~noetl_stream.ports.stores.aggregates.AggregateStore`, over :attr:`tables`."""

    tables: MemoryTables

    async def aggregates(self, ids: Collection[str]) -> dict[str, AggregateRow]:
        rows = self.tables.aggregates.rows
        return {id: rows[id] for id in ids if id in rows}

    async def list_aggregates(
        self, kind: str, prefix: str, limit: int, after: str | None, scope: Sequence[str] = ()
    ) -> list[AggregateRow]:
        found = [row for row in self.tables.aggregates.rows.values() if row.kind == kind and row.key.startswith(prefix)]
        found = [row for row in found if covers(scope, row.key) and (after is None or row.key > after)]
        return sorted(found, key=lambda row: row.key)[:limit]

    async def aggregate_history(
        self, id: str, limit: int, before: int | None, statuses: Collection[str] = ()
    ) -> list[HistoryRow]:
        rows = self.tables.aggregates.histories.get(id, {})
        found = [rows[number] for number in sorted(rows, reverse=True) if before is None or number < before]
        return [row for row in found if not statuses or row.status in statuses][:limit]


class MemoryLimits:
    """:class:`~noetl_stream.ports.stores.aggregates.LimitStore`, over :attr:`tables`."""

    tables: MemoryTables

    async def limit_slots(self, wanted: Collection[WantedSlots]) -> dict[str, list[LimitSlotRow]]:
        slots = {}
        for one in wanted:
            rows = self._slots_of(one.limit_id)
            chosen = [row for row in rows if row.holder in one.holders]
            chosen += islice((row for row in rows if row.granted_ms is None), one.waiting)
            chosen += islice((row for row in rows if row.yields), one.yielding)
            if chosen:
                slots[one.limit_id] = _in_order({row.number: row for row in chosen}.values())
        return slots

    async def limit_slots_page(self, limit_id: str, held: bool, limit: int) -> list[LimitSlotRow]:
        return [row for row in self._slots_of(limit_id) if (row.granted_ms is not None) == held][:limit]

    async def limit_slots_of(self, execution_id: str, limit: int) -> list[PlacedSlot]:
        found = [row for row in self.tables.limits.rows.values() if row.execution_id == execution_id]
        found.sort(key=lambda row: (row.limit_id, row.number))
        return [PlacedSlot(row, self._place(row)) for row in found[:limit]]

    async def limit_slots_left(self, before_ms: int, limit: int) -> list[LimitSlotRow]:
        def is_left(row: LimitSlotRow) -> bool:
            execution = self.tables.executions.get(row.execution_id)
            if execution is None:
                return True
            return execution.finished_ms is not None and execution.finished_ms < before_ms

        found = [row for row in self.tables.limits.rows.values() if is_left(row)]
        return sorted(found, key=lambda row: (row.limit_id, row.number))[:limit]

    def _slots_of(self, limit_id: str) -> list[LimitSlotRow]:
        return _in_order(row for row in self.tables.limits.rows.values() if row.limit_id == limit_id)

    def _place(self, slot: LimitSlotRow) -> int:
        if slot.granted_ms is not None:
            return 0
        return sum(row.granted_ms is None and row.number <= slot.number for row in self._slots_of(slot.limit_id))


def _in_order(rows: Iterable[LimitSlotRow]) -> list[LimitSlotRow]:
    return sorted(rows, key=attrgetter("number"))


class MemoryDeadLetters:
    """:class:`~noetl_stream.ports.stores.dead_letters.DeadLetters` in memory; the port documents each method.

    ``requeue`` receives letters requeued into the inbox.
    """

    def __init__(self, requeue: Callable[[InboxRow], None]) -> None:
        self._requeue = requeue
        self.letters: dict[str, DeadLetter] = {}

    def __contains__(self, letter_id: object) -> bool:
        return letter_id in self.letters

    def write(self, row: DeadLetterRow) -> None:
        """Stores a dead letter, as the tick that skips its message does."""
        known = (letter.number for letter in self.letters.values())
        self.letters[row.id] = DeadLetter(max(known, default=0) + 1, row, "waiting", None, None)

    def forget(self, execution_id: str) -> None:
        """Removes the dead letters of a deleted execution."""
        self.letters = {id: one for id, one in self.letters.items() if one.row.execution_id != execution_id}

    async def page(self, limit: int, before: int | None) -> list[DeadLetter]:
        waiting = [
            replace(letter, row=replace(letter.row, body=b""))
            for letter in reversed(self.letters.values())
            if letter.state == "waiting" and (before is None or letter.number < before)
        ]
        return waiting[:limit]

    async def get(self, letter_id: str) -> DeadLetter | None:
        return self.letters.get(letter_id)

    async def known(self, letter_ids: Sequence[str]) -> set[str]:
        return self.letters.keys() & set(letter_ids)

    async def add(self, row: DeadLetterRow) -> None:
        if row.id not in self.letters:
            self.write(row)

    async def requeue(self, letter_id: str, by: str, at_ms: int) -> bool:
        letter = self._settle(letter_id, "requeued", by, at_ms)
        if letter is not None and letter.row.source == "inbox":
            self._requeue(columns_of(InboxRow, letter.row, id=f"requeue-{letter.row.id}"))
        return letter is not None

    async def discard(self, letter_id: str, by: str, at_ms: int) -> bool:
        letter = self._settle(letter_id, "discarded", by, at_ms)
        if letter is not None:
            self.letters[letter_id] = replace(letter, row=replace(letter.row, body=b""))
        return letter is not None

    async def held(self) -> HeldLetters:
        return HeldLetters(len(self.letters), sum(len(letter.row.body) for letter in self.letters.values()))

    async def trim(self, bounds: LetterBounds, now_ms: int, limit: int) -> int:
        held_bytes, gone = 0, list[str]()
        for place, (letter_id, letter) in enumerate(reversed(self.letters.items()), start=1):
            held_bytes += len(letter.row.body)
            too_old = letter.row.at_ms < now_ms - bounds.age_s * 1000
            if place > bounds.letters or held_bytes > bounds.bytes or too_old:
                gone.append(letter_id)
        for letter_id in (oldest := gone[::-1][:limit]):
            del self.letters[letter_id]
        return len(oldest)

    def _settle(self, letter_id: str, state: LetterState, by: str, at_ms: int) -> DeadLetter | None:
        letter = self.letters.get(letter_id)
        if letter is None or letter.state != "waiting":
            return None
        self.letters[letter_id] = replace(letter, state=state, settled_ms=at_ms, settled_by=by)
        return self.letters[letter_id]


class MemoryCursors:
    """:class:`~noetl_stream.ports.stores.cursors.Cursors` of a memory store; the port documents each method."""

    def __init__(self, tables: MemoryTables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock

    async def all(self) -> list[Cursor]:
        return [Cursor(row.id, row.last_seq, row.last_ms, row.published_tick) for row in self._tables.partitions]

    async def floor(self) -> int:
        return self._tables.events_floor

    async def move_floor(self, before: int, after: int) -> bool:
        if self._tables.events_floor != before:
            return False
        self._tables.events_floor = after
        return True

    async def repair(self, repairs: Sequence[Repair], owner: str | None = None) -> set[int]:
        now_s, repaired = self._clock.monotonic_s(), set()
        for one in repairs:
            row = self._tables.partitions[one.partition]
            is_anothers = row.is_live(now_s) and row.owner != owner
            if not is_anothers and row.last_seq == one.folded:
                row.owner, row.given_back = None, True
                row.last_seq, row.last_ms, row.published_tick = one.last_seq, one.last_ms, one.published_tick
                row.tick, row.epoch = max(row.tick, one.tick), max(row.epoch, one.epoch) + 1
                row.generation += 1
                repaired.add(row.id)
        return repaired
