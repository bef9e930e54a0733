"""The fold's store in memory, with its dead letters, for tests without a database.

It behaves like the store on Postgres. Several servers of one test share one; nothing survives the process.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TypeVar

from msgspec.structs import replace

from noetl_stream.adapters.memory.stores.tables import (
    MemoryAggregates,
    MemoryCursors,
    MemoryDeadLetters,
    MemoryLimits,
    MemoryTables,
    PartitionRow,
)
from noetl_stream.errors import Fenced, JournalConflict, PayloadRefused, RequestAnswered
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.model.json import codec
from noetl_stream.model.labels import LOST_AFTER_S
from noetl_stream.model.rights import covers
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.store import (
    LONGEST_LEASE_S,
    ExecutionRow,
    InboxItem,
    InboxRow,
    KnownServer,
    ListedExecution,
    ListingFilter,
    ObjectUseRow,
    PartitionAdvance,
    PartitionLease,
    PartitionView,
    PlaybookRow,
    RequestRow,
    SnapshotRow,
    StoredEntry,
    StoredEvent,
    Tick,
    TimerRow,
)
from noetl_stream.ports.stores.tallies import ExecutionTally, RecentExecution, TallyKey
from noetl_stream.protocol.rows import Row, columns_of, json_columns
from noetl_stream.storage.journal import page_of

_Key = TypeVar("_Key", bound=Hashable)


class MemoryStore(MemoryAggregates, MemoryLimits):
    """:class:`~noetl_stream.ports.stores.store.Store` in memory. Leases run by ``clock.monotonic_s``."""

    def __init__(self, clock: Clock, partitions: int = PARTITIONS) -> None:
        self._clock = clock
        self.tables = MemoryTables([PartitionRow(id) for id in range(partitions)])
        self.fed: dict[tuple[int, int], tuple[int, bytes]] = {}
        self.fed_floor: dict[int, int] = {}
        self.cursors = MemoryCursors(self.tables, clock)
        self.dead_letters = MemoryDeadLetters(self._send)

    async def verify(self) -> None:
        """Does nothing: a store in memory is always ready."""

    async def durability_warnings(self) -> list[str]:
        return self.tables.warnings

    async def close(self) -> None:
        """Keeps all data: another server of the same test may still use the store."""

    # --- ticks ----------------------------------------------------------------------------------------------------

    async def commit(self, tick: Tick) -> None:
        """Commits a tick. See :meth:`noetl_stream.ports.stores.store.Store.commit`.

        Raises:
            ValueError: the tick has no partition to fence it.
            JournalConflict: a position or request already exists; nothing was written.
            PayloadRefused: a column is not JSON, or the tick has an execution twice; nothing was written.
        """
        if not tick.partitions:
            raise ValueError("a tick must name at least one partition")
        self._pass_fence(tick.owner, tick.partitions)
        self._refuse_duplicates(tick)
        _refuse_broken_json(tick)
        for advance in tick.partitions:
            partition = self.tables.partitions[advance.id]
            partition.tick, partition.crashes = advance.tick + 1, advance.crashes
            if not advance.crashes or (partition.folding and partition.folding == partition.suspect):
                partition.suspicions = 0
            partition.folding = None
            partition.last_seq, partition.last_ms = advance.last_seq, advance.last_ms
            partition.published_tick = advance.published_tick
        for entry in tick.entries:
            self.tables.journals.setdefault(entry.execution_id, {})[entry.position] = entry
        for row in tick.executions:
            before = self.tables.executions.get(row.execution_id)
            self.tables.executions[row.execution_id] = row if before is None else row.over(before)
        self.tables.requests.update(((row.execution_id, row.request_id), row) for row in tick.requests)
        for playbook in tick.playbooks:
            self.keep_playbook(playbook)
        for letter in tick.dead_letters:
            self.dead_letters.write(letter)
        self.tables.stale_reports += tick.stale_reports
        self.tables.snapshots.update(((row.execution_id, row.position), row) for row in tick.snapshots)
        for fed in tick.feed:
            self.fed[fed.partition, fed.tick] = (self._clock.now_ms(), fed.entries)
        self.tables.aggregates.write(tick)
        self.tables.limits.write(tick)
        for trimmed in tick.requests_gone:
            requests = self.tables.requests
            answered = [key for key, row in requests.items() if row.position <= trimmed.through]
            for key in answered:
                if key[0] == trimmed.execution_id:
                    del requests[key]
        self._wait(tick)

    def _wait(self, tick: Tick) -> None:
        tables = self.tables
        for gone in tick.timers_gone:
            tables.timers.pop((gone.execution_id, gone.timer_id), None)
        tables.timers.update(((timer.execution_id, timer.timer_id), timer) for timer in tick.timers)
        for seq in tick.inbox_folded:
            tables.inbox.pop(seq, None)
        for message in tick.inbox:
            self._send(message)
        for use in tick.object_uses:
            tables.object_uses.setdefault((use.execution_id, use.key), use)
        tables.terms.update((row.term, row.execution_id) for row in tick.terms)
        tables.terms.difference_update((row.term, row.execution_id) for row in tick.terms_gone)

    def _send(self, message: InboxRow) -> None:
        self.tables.inbox_sent += 1
        self.tables.inbox[self.tables.inbox_sent] = message

    def keep_playbook(self, row: PlaybookRow) -> None:
        """Stores a playbook source by its digest, for the catalog too; an existing one stays unchanged."""
        self.tables.playbooks.setdefault(row.digest, row)

    def _pass_fence(self, owner: str, advances: Sequence[PartitionAdvance]) -> None:
        ids = {advance.id for advance in advances}
        held = all(
            (row := self._row(advance.id)) is not None
            and (row.epoch, row.tick, row.owner) == (advance.epoch, advance.tick, owner)
            for advance in advances
        )
        if not held or len(ids) != len(advances):
            raise Fenced("another server has a partition of this tick, or the tick was committed before")

    def _refuse_duplicates(self, tick: Tick) -> None:
        journals = self.tables.journals
        entries = [(entry.execution_id, entry.position) for entry in tick.entries]
        requests = [(row.execution_id, row.request_id) for row in tick.requests]
        sent = {row.id for row in self.tables.inbox.values()}
        for what, keys, stored in (
            ("event", entries, {key for key in entries if key[1] in journals.get(key[0], {})}),
            ("request", requests, self.tables.requests),
            ("inbox message", [message.id for message in tick.inbox], sent),
            ("dead letter", [letter.id for letter in tick.dead_letters], self.dead_letters),
        ):
            duplicates = [key for key in keys if key in stored] or _duplicates(keys)
            if duplicates:
                conflict = RequestAnswered if what == "request" else JournalConflict
                raise conflict(f"{what} was about to be written twice: {duplicates[0]}")
        for execution_id in _duplicates(row.execution_id for row in tick.executions):
            raise PayloadRefused(f"a tick has an execution twice: {execution_id}")

    # --- leases ---------------------------------------------------------------------------------------------------

    async def appear(self, name: str, version: str, reads: int, live_s: float) -> list[KnownServer]:
        now_s = self._clock.monotonic_s()
        self.tables.servers[name] = (KnownServer(name, version, reads, True), now_s + live_s)
        return self.known_servers()

    def known_servers(self) -> list[KnownServer]:
        now_s = self._clock.monotonic_s()
        return [replace(server, live=until_s > now_s) for server, until_s in self.tables.servers.values()]

    async def take_over(
        self, owner: str, lease_s: float, limit: int, alive: Collection[str] = (), left: Collection[int] = ()
    ) -> list[PartitionLease]:
        now_s = self._clock.monotonic_s()
        free = [
            row
            for row in self.tables.partitions
            if row.id not in left
            and (row.owner is None or not now_s <= row.lease_until_s <= now_s + 2 * LONGEST_LEASE_S)
        ]
        taken = free[:limit]
        for row in taken:
            if not row.given_back and row.owner not in alive:
                row.crashes += 1
                if row.folding:
                    row.suspicions = row.suspicions + 1 if row.folding == row.suspect else 1
                    row.suspect = row.folding
            row.epoch += 1
            row.owner = owner
            row.lease_until_s = now_s + lease_s
            row.given_back, row.folding = False, None
        return [row.lease() for row in taken]

    async def set_folding(
        self, owner: str, partition: int, epoch: int, execution_id: str | None, cleared: bool = False
    ) -> None:
        row = self._row(partition)
        if row is None or (row.owner, row.epoch) != (owner, epoch):
            raise Fenced("another server has the partition")
        if cleared and row.folding and row.folding == row.suspect:
            row.suspicions = 0
        row.folding = execution_id

    async def end_frozen(self, alive: Collection[str]) -> list[str]:
        return []  # it has no transaction that takes time

    async def renew(self, owner: str, epochs: Sequence[tuple[int, int]], lease_s: float, behind: int = 0) -> set[int]:
        mine = [row for id, epoch in epochs if (row := self._row(id)) and (row.owner, row.epoch) == (owner, epoch)]
        for row in mine:
            row.lease_until_s, row.behind = self._clock.monotonic_s() + lease_s, behind
        return {row.id for row in mine}

    async def give_back(self, owner: str, epochs: Sequence[tuple[int, int]], published: Sequence[int]) -> None:
        for (id, epoch), published_tick in zip(epochs, published, strict=True):
            row = self._row(id)
            if row is not None and (row.owner, row.epoch) == (owner, epoch):
                row.owner, row.given_back, row.lease_until_s = None, True, self._clock.monotonic_s()
                row.folding = None
                row.published_tick = max(row.published_tick, published_tick)

    async def read_partitions(self, ids: Collection[int] | None = None) -> list[PartitionView]:
        now_s = self._clock.monotonic_s()
        return [
            columns_of(PartitionView, row, live=row.is_live(now_s))
            for row in self.tables.partitions
            if ids is None or row.id in ids
        ]

    async def owned(self, owner: str) -> list[PartitionLease]:
        return [row.lease() for row in self.tables.partitions if row.owner == owner]

    async def owner_count(self) -> int:
        now_s = self._clock.monotonic_s()
        return len({row.owner for row in self.tables.partitions if row.is_live(now_s)})

    def _row(self, id: int) -> PartitionRow | None:
        return self.tables.partitions[id] if 0 <= id < len(self.tables.partitions) else None

    # --- reading --------------------------------------------------------------------------------------------------

    async def journal(self, execution_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
        return page_of(execution_id, self._entries(execution_id, after), after, limit)

    async def events_named(
        self, execution_id: str, names: Collection[str], after: int = 0, limit: int | None = None
    ) -> list[StoredEvent]:
        return page_of(execution_id, self._entries(execution_id, after), after, limit, names)

    async def journals(self, after: Mapping[str, int], limit: int | None = None) -> dict[str, list[StoredEntry]]:
        """Returns journal entries; each id is a key. See :meth:`noetl_stream.ports.stores.store.Store.journals`."""
        return {
            execution_id: list(islice(self._entries(execution_id, position, whole=True), limit))
            for execution_id, position in after.items()
        }

    async def snapshots(self, execution_ids: Collection[str], through: int | None = None) -> dict[str, SnapshotRow]:
        rows = sorted(self.tables.snapshots.items())
        kept = [row for _, row in rows if row.execution_id in execution_ids]
        return {row.execution_id: row for row in kept if through is None or row.position <= through}

    async def drop_snapshots(self, execution_id: str) -> None:
        for key in [key for key in self.tables.snapshots if key[0] == execution_id]:
            del self.tables.snapshots[key]

    async def iteration_results(self, execution_id: str, step_run_id: str, after: int, limit: int) -> list[StoredEntry]:
        found = (entry for entry in self._entries(execution_id) if entry.position > after)
        named = step_run_id.encode()
        about = (one for one in found if one.step_run_id == step_run_id or named in (one.decisions or b""))
        return list(islice(about, limit))

    async def entries_at(self, execution_id: str, positions: Collection[int]) -> list[StoredEntry]:
        return [entry for entry in self._entries(execution_id) if entry.position in positions]

    def _entries(self, execution_id: str, after: int = 0, whole: bool = False) -> Iterator[StoredEntry]:
        """Yields entries from that of the first event after this position; ``whole``: from the first fully after it."""
        rows = self.tables.journals.get(execution_id, {})
        positions = sorted(rows)
        first = bisect_right(positions, after) if whole else max(0, bisect_right(positions, after + 1) - 1)
        for position in positions[first:]:
            yield columns_of(StoredEntry, rows[position], name=None, cause=None)

    async def grown(self, ticks: Mapping[int, int]) -> dict[str, int]:
        found: dict[str, int] = {}
        for partition, seen in ticks.items():
            trimmed = self.fed_floor.get(partition, 0) > seen
            above = [entries for (fed, tick), (_, entries) in self.fed.items() if fed == partition and tick > seen]
            for entries in above:
                for execution_id, first, _ in codec.decode_json(entries):
                    found[execution_id] = 1 if trimmed else min(first, found.get(execution_id, first))
            if trimmed:
                found |= dict.fromkeys(await self.live_executions([partition]), 1)
        return found

    async def ticks_before(self, partitions: Collection[int], before_ms: int) -> dict[int, int]:
        ticks = {partition: self.fed_floor.get(partition, 0) for partition in partitions}
        for (partition, tick), (at_ms, _) in self.fed.items():
            if partition in ticks and at_ms < before_ms:
                ticks[partition] = max(ticks[partition], tick)
        return ticks

    async def inbox(self, partitions: Collection[int], limit: int) -> list[InboxItem]:
        waiting = [
            InboxItem(seq, row.partition, row.execution_id, row.body)
            for seq, row in self.tables.inbox.items()
            if row.partition in partitions
        ]
        return waiting[:limit]

    async def inbox_end(self) -> int:
        return max(self.tables.inbox, default=0)

    async def objects_used_elsewhere(self, execution_id: str) -> list[ObjectUseRow]:
        uses = self.tables.object_uses.values()
        found = [use for use in uses if use.owner == execution_id and self._is_kept(use.execution_id)]
        return sorted(found, key=lambda use: (use.key, use.execution_id))

    async def objects_kept_for(self, execution_id: str) -> list[ObjectUseRow]:
        uses = self.tables.object_uses.values()
        others = [use for use in uses if use.execution_id != execution_id and self._is_kept(use.execution_id)]
        by_others = {(use.key, use.owner) for use in others}
        found = [use for use in uses if use.execution_id == execution_id and (use.key, use.owner) not in by_others]
        kept = (use for use in found if not self._is_kept(use.owner))
        return sorted(kept, key=lambda use: (use.key, use.store, use.owner))

    def _is_kept(self, execution_id: str) -> bool:
        """Whether an execution is neither deleted nor being deleted."""
        return 1 in self.tables.journals.get(execution_id, {})

    async def looked_into_by(self, execution_id: str) -> list[str]:
        rows = self.tables.executions.values()
        return sorted(row.execution_id for row in rows if row.looks_into == execution_id and row.finished_ms is None)

    async def begin_deleting(self, execution_id: str) -> None:
        row = self.tables.executions.get(execution_id)
        if row is not None and row.finished_ms is not None:
            self.tables.journals.get(execution_id, {}).pop(1, None)

    async def delete_execution(self, execution_id: str, *, keep_journal: bool = False) -> bool:
        tables = self.tables
        row = tables.executions.get(execution_id)
        if row is None or row.finished_ms is None:
            return False
        del tables.executions[execution_id]
        if not keep_journal:
            tables.journals.pop(execution_id, None)
        self.dead_letters.forget(execution_id)
        for table in (tables.requests, tables.timers, tables.object_uses):
            for key in [key for key in table if key[0] == execution_id]:
                del table[key]
        await self.drop_snapshots(execution_id)
        tables.inbox = {seq: one for seq, one in tables.inbox.items() if one.execution_id != execution_id}
        tables.stale_reports = [one for one in tables.stale_reports if one.execution_id != execution_id]
        tables.terms = {term for term in tables.terms if term[1] != execution_id}
        tables.keys = {key: holder for key, holder in tables.keys.items() if holder[0] != execution_id}
        return True

    async def timers(self, execution_id: str) -> list[TimerRow]:
        found = [row for row in self.tables.timers.values() if row.execution_id == execution_id]
        return sorted(found, key=lambda row: (row.due_ms, row.timer_id))

    async def timers_in(self, partitions: Collection[int]) -> list[TimerRow]:
        found = [row for row in self.tables.timers.values() if row.partition in partitions]
        return sorted(found, key=lambda row: (row.due_ms, row.timer_id))

    async def living_by_status(self) -> dict[ExecutionStatus, int]:
        return Counter(row.status for row in self.tables.executions.values() if row.finished_ms is None)

    async def stored_by_path(self) -> dict[str, int]:
        found = Counter[str]()
        for row in self.tables.executions.values():
            found[row.path] += row.stored_bytes
        return +found

    async def stuck(self, limit: int) -> list[str]:
        timers = {execution_id for execution_id, _ in self.tables.timers}
        receivers = {row.execution_id for row in self.tables.inbox.values()}
        receivers |= self.tables.limits.askers(self.tables.inbox.values())
        waiting = (
            row.execution_id
            for row in self.tables.executions.values()
            if row.finished_ms is None and row.status not in ("paused", "quarantined")
            if not (row.commands or row.children or row.looks_into)
        )
        return sorted(one for one in waiting if one not in timers | receivers)[:limit]

    async def now_ms(self) -> int:
        return self._clock.now_ms()

    async def lease_clock_ms(self) -> int:
        return self._clock.now_ms()

    async def live_executions(self, partitions: Collection[int]) -> dict[str, str]:
        rows = self.tables.executions.values()
        return {row.execution_id: row.digest for row in rows if row.finished_ms is None and row.partition in partitions}

    async def resting_executions(self, partitions: Collection[int]) -> set[str]:
        rows, live = self.tables.executions, await self.live_executions(partitions)
        return {one for one in live if not rows[one].commands and rows[one].looks_into is None}

    async def newest_execution(self) -> str:
        return max(self.tables.executions, default="")

    async def execution(self, execution_id: str) -> ExecutionRow | None:
        return self.tables.executions.get(execution_id)

    async def executions(self, execution_ids: Collection[str]) -> dict[str, ExecutionRow]:
        """Returns known executions. See :meth:`noetl_stream.ports.stores.store.Store.executions`."""
        rows = self.tables.executions
        return {execution_id: rows[execution_id] for execution_id in execution_ids if execution_id in rows}

    async def listed_executions(self, execution_ids: Collection[str]) -> dict[str, ListedExecution]:
        return {id: columns_of(ListedExecution, row) for id, row in (await self.executions(execution_ids)).items()}

    async def hold_key(self, path: str, key: str, execution_id: str) -> str:
        now_s = self._clock.monotonic_s()
        holder, claimed_s = self.tables.keys.get((path, key), (execution_id, now_s))
        row = self.tables.executions.get(holder)
        is_refused = row is not None and row.finished_ms is not None and not row.key
        if is_refused or (row is None and claimed_s < now_s - LOST_AFTER_S):
            holder = execution_id
        self.tables.keys[path, key] = holder, now_s if holder == execution_id else claimed_s
        return holder

    async def key_holder(self, path: str, key: str) -> str | None:
        holder, _ = self.tables.keys.get((path, key), ("", 0))
        row = self.tables.executions.get(holder)
        return row.execution_id if row is not None and row.key == key else None

    async def list_executions(self, wanted: ListingFilter, limit: int, before: str | None) -> list[ListedExecution]:
        chosen = [row for row in self._matching(wanted) if before is None or row.execution_id < before]
        return [columns_of(ListedExecution, row) for row in chosen[:limit]]

    async def tally_executions(self, wanted: ListingFilter, key: TallyKey, limit: int) -> list[ExecutionTally]:
        edges, seen = key.edges, Counter[tuple[str, str | None]]()
        if edges:
            wanted = replace(wanted, started_from_ms=None, started_before_ms=None)
        found: Counter[tuple[ExecutionStatus, str | None]] = Counter()
        for row in self._matching(wanted):
            if edges and not edges[0] <= row.execution_id < edges[-1]:
                continue
            value = _tally_key(row, key)
            part = ("", None) if wanted.terms and not wanted.scope else (row.status, value if edges else None)
            seen[part] += 1
            if seen[part] <= limit:
                found[row.status, value] += 1
        return [ExecutionTally(status, value, count) for (status, value), count in found.items()]

    def _matching(self, wanted: ListingFilter) -> list[ExecutionRow]:
        """Returns the matching executions, newest first."""
        paths = wanted.scope or (() if wanted.path is None else (wanted.path,))
        chosen = [
            row
            for row in self.tables.executions.values()
            if (not wanted.statuses or row.status in wanted.statuses)
            and covers(paths, row.path)
            and all((term, row.execution_id) in self.tables.terms for term in wanted.terms)
            and (wanted.started_from_ms is None or row.started_ms >= wanted.started_from_ms)
            and (wanted.started_before_ms is None or row.started_ms < wanted.started_before_ms)
            and (wanted.longer_than_ms is None or _took_ms(row) >= wanted.longer_than_ms)
            and (wanted.due is None or wanted.due.holds(row.due))
        ]
        return sorted(chosen, key=lambda row: row.execution_id, reverse=True)

    async def recent_executions(self, path: str, from_ms: int, limit: int) -> list[RecentExecution]:
        rows = (row for row in self.tables.executions.values() if row.path == path and row.started_ms >= from_ms)
        newest = sorted(rows, key=lambda row: row.execution_id, reverse=True)
        return [columns_of(RecentExecution, row) for row in newest[:limit]]

    async def last_executions(self, paths: Collection[str]) -> dict[str, RecentExecution]:
        newest = {path: await self.recent_executions(path, 0, 1) for path in paths}
        return {path: found[0] for path, found in newest.items() if found}

    async def request(self, execution_id: str, request_id: str) -> RequestRow | None:
        return self.tables.requests.get((execution_id, request_id))

    async def answered(self, requests: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        return self.tables.requests.keys() & set(requests)

    async def playbook(self, digest: str) -> PlaybookRow | None:
        return self.tables.playbooks.get(digest)


def _took_ms(row: ExecutionRow) -> int:
    return -1 if row.finished_ms is None else row.finished_ms - row.started_ms


def _tally_key(row: ExecutionRow, key: TallyKey) -> str | None:
    if key.edges:
        return str(bisect_right(key.edges, row.execution_id))
    if key.label is None:
        return row.path
    value = codec.decode_json(row.labels).get(key.label)
    return value if value is None or isinstance(value, str) else codec.encode(value).decode()


def _duplicates(keys: Iterable[_Key]) -> list[_Key]:
    return [key for key, count in Counter(keys).items() if count > 1]


def _refuse_broken_json(tick: Tick) -> None:
    written = tick.entries, tick.executions, tick.requests, tick.inbox, tick.feed, tick.aggregates, tick.history
    rows: Iterable[Row] = chain(*written, tick.limit_slots)
    for row in rows:
        for column in json_columns(type(row)):
            text = getattr(row, column)
            if text is not None:
                codec.decode_json(text)
