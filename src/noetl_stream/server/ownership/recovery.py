"""Repairs partitions before a new owner folds them (PROTOCOL §5): unpublished records, or those lost with a tail of
EVENTS, are published again; a Postgres that is behind EVENTS catches up from its records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from noetl_stream.engine.effects import (
    AnswerStart,
    Effect,
    IssueCommand,
    SendMessage,
    StopWorkers,
    TellOfEvent,
    WithdrawCommand,
    effects_of,
)
from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model.aggregates import SlotHeld, StartedBefore
from noetl_stream.model.events import ClientRequest, ExecutionRequested, ExecutionStarted, Fact, SlotGranted
from noetl_stream.model.ids import partition_of
from noetl_stream.model.messages import AGGREGATES_FORMAT, AggregateMessage, AggregateRequest, JournalRecord, Request
from noetl_stream.model.status import Rejection
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.stores.cursors import Repair
from noetl_stream.ports.stores.store import PartitionLease, StoredEntry
from noetl_stream.ports.streams.event_log import DecidedMessage
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.journal_records import MARGIN_MS, Stamp, in_full, last_record, messages_of
from noetl_stream.server.memory.execution_cache import CachedExecution
from noetl_stream.server.ownership.leases import PartitionLeaseKeeper
from noetl_stream.server.ownership.recorded import (
    RecordedEntry,
    RecordedExecution,
    RecordedPartition,
    RecordedStarter,
    read_partition,
    starters_in,
)
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.fold import IN_NO_JOURNAL
from noetl_stream.server.ticks.tick import Input, PendingTick, refused_answer

log = logging.getLogger(__name__)

TICK_BYTES: Final = 2 * 1024 * 1024
"""The bytes at which a restoring tick ends, while enough ticks are left."""

JOURNALS_AT_ONCE: Final = 50
"""The number of executions whose entries are read at once to be published again."""

UNKNOWN_ANSWER: Final = Rejection(
    "answer_lost", "the request changed nothing; its answer was lost with the state of Postgres that held it"
)


class Restored(NamedTuple):
    """The number of executions and entries that a partition got from EVENTS.

    ``starters`` are the schedules and triggers in EVENTS that were not restored, by path, ``None`` for deleted ones;
    ``origins`` are the kinds of the starters of executions, by path.
    """

    executions: int = 0
    entries: int = 0
    starters: Mapping[str, RecordedStarter | None] = MappingProxyType({})
    origins: Mapping[str, str] = MappingProxyType({})


class Recovery:
    """The repair of partitions whose lease was just taken, before they are read or folded."""

    def __init__(self, parts: ServerParts, committer: Committer, leases: PartitionLeaseKeeper) -> None:
        self._parts = parts
        self._committer = committer
        self._leases = leases
        self._store = parts.ports.store
        self._log = parts.ports.log

    async def publish_owed(self, leases: Collection[PartitionLease]) -> None:
        """Publishes the records of committed ticks that EVENTS may lack, with their inputs in full.

        Their commands are not published: reconcile issues those that are still owed.
        """
        await self._publish_owed(leases, await self._last_records(leases))

    async def make_good(self, leases: Collection[PartitionLease]) -> dict[int, Restored]:
        """Publishes owed records. Restores published entries that Postgres lacks, and adopts the ticks of EVENTS; this
        releases the partitions concerned, which can then be taken over again.

        Returns:
            The restored entries, by partition.
        """
        last = await self._last_records(leases)  # before anything is published
        ahead = {id: record.tick for id, record in last.items() if record is not None}
        behind = [lease for lease in leases if ahead.get(lease.id, 0) > lease.tick]
        await self._publish_owed([lease for lease in leases if lease not in behind], last)
        restored = {}
        for lease in behind:
            log.error(
                "partition %d: Postgres has committed %d ticks, and EVENTS holds a record of tick %d: Postgres was "
                "restored from an older state, or failed over without its last commits; catching up from EVENTS",
                lease.id, lease.tick, ahead[lease.id],
            )  # fmt: skip
            restored[lease.id] = await self._catch_up(lease)
        return restored

    async def restore(self, leases: Collection[PartitionLease]) -> list[Restored]:
        """Fills partitions of an empty Postgres. Schedules and triggers are lost with the old one. Requests to them are
        not folded again: they would start the executions that were due since then.
        """
        return [await self._catch_up(lease, anew=True) for lease in leases if await self._log.last_of(lease.id)]

    async def _last_records(self, leases: Collection[PartitionLease]) -> dict[int, JournalRecord | None]:
        records = await asyncio.gather(*(last_record(self._log, lease.id) for lease in leases))
        return {lease.id: record for lease, record in zip(leases, records, strict=True)}

    async def _publish_owed(self, leases: Collection[PartitionLease], last: Mapping[int, JournalRecord | None]) -> None:
        recorded = await self._recorded_ticks(leases, last)
        owed = {lease.id: lease for lease in leases if recorded[lease.id] < lease.tick}
        grown = await self._store.grown({id: recorded[id] for id in owed}) if owed else {}
        await self._lower({id: recorded[id] for id in map(partition_of, grown)})
        ids = list(grown)
        for at in range(0, len(ids), JOURNALS_AT_ONCE):
            self._leases.note_contact()
            journals = await self._store.journals({id: grown[id] - 1 for id in ids[at : at + JOURNALS_AT_ONCE]})
            for execution_id, rows in journals.items():
                lease = owed[partition_of(execution_id)]
                self._publish({lease.id: recorded[lease.id]}, self._records_again(lease, execution_id, rows))
            while self._parts.publications.is_full:
                await self._parts.publications.drain(self._parts.times.housekeeping_s)
        if grown:
            log.info("publishing records of %d executions again: EVENTS may lack them", len(grown))
            self._publish({id: lease.tick for id, lease in owed.items()}, ())

    def _records_again(
        self, lease: PartitionLease, execution_id: str, rows: Sequence[StoredEntry]
    ) -> Sequence[DecidedMessage]:
        stamp = Stamp(lease.id, lease.tick, lease.epoch, self._parts.owner, self._parts.formats.writes, again=True)
        parts = [part for row in rows for part in in_full(row)]
        return messages_of(execution_id, parts, lease.last_seq, stamp)

    async def _recorded_ticks(
        self, leases: Collection[PartitionLease], last: Mapping[int, JournalRecord | None]
    ) -> dict[int, int]:
        """Returns, by partition, the tick up to which EVENTS has the records, unless stored ones are lost."""
        published = self._committer.published_ticks({lease.id for lease in leases})
        ticks = {id: record.tick if record is not None else 0 for id, record in last.items()}
        if bare := [id for id, tick in published.items() if tick and last[id] is None]:
            first = await self._log.first_sequence()
            first_ms = await self._log.stored_at(first) if first > 1 else None
            if first_ms is not None:  # earlier records may be trimmed; later ones are lost
                ticks |= await self._store.ticks_before(bare, first_ms - MARGIN_MS)
        return {id: min(tick, ticks[id]) for id, tick in published.items()}

    async def _lower(self, recorded: Mapping[int, int]) -> None:
        """Commits that EVENTS lacks records before a record of a later tick is published: that would hide the gap from
        the next owner if this one ends before filling it.
        """
        published = self._committer.published_ticks(recorded)
        lowered = {id: tick for id, tick in recorded.items() if tick < published[id]}
        if lowered:
            log.warning("EVENTS may have lost records of %d partitions that were stored", len(lowered))
            self._parts.publications.forget(lowered)
            self._parts.ownership.lower_published(lowered)
            await self._committer.write(PendingTick(), lowered)

    def _publish(self, ticks: Mapping[int, int], records: Sequence[DecidedMessage]) -> None:
        self._parts.publications.publish(ticks, records, (), self._parts.ownership.fences)

    async def _catch_up(self, lease: PartitionLease, *, anew: bool = False) -> Restored:
        messages = await read_partition(self._log, lease.id, lease.last_seq)
        recorded = RecordedPartition(messages, lease.tick, await self._log.fences(lease.id))
        is_owed = bool(await self._store.grown({lease.id: lease.published_tick}))
        await self._parts.triggers.refresh(self._parts.ports.clock.monotonic_s(), every_s=0.0)
        restoring = _Restoring(self._parts, self._committer, lease, recorded.tick - lease.tick)
        for execution_id, execution in recorded.executions.items():
            self._leases.note_contact()
            await restoring.restore(execution_id, execution)
        signed = [body for one, body in recorded.asked if self._parts.ports.signer.is_signed(one.body)]
        if anew:
            restoring.answer_dropped(signed)
        await restoring.flush()
        left = recorded.first_unfolded(asked=not anew)
        read = messages[-1].sequence if messages else lease.last_seq  # messages that came since are folded as usual
        cursor = max(lease.last_seq, read if left is None else left - 1)
        owned = self._parts.ownership.get(lease.id)
        tick = max(recorded.tick, owned.tick if owned is not None else 0)
        repair = Repair(
            partition=lease.id,
            folded=lease.last_seq,
            last_seq=cursor,
            last_ms=await self._log.stored_at(cursor) or 0,
            published_tick=lease.published_tick if is_owed else tick,
            tick=tick,
            epoch=recorded.epoch,
        )
        await self._store.cursors.repair([repair], self._parts.owner)
        if owned is not None:
            self._parts.ownership.forget(lease.id)
        starters = starters_in(body.fact for body in signed) if anew else {}
        return restoring.restored._replace(starters=starters, origins=restoring.origins)


class _Restoring:
    """Writes the entries of one partition's executions unchanged, in ticks of its owner.

    Args:
        ticks: The most ticks that restoring may take: before the last, the partition is still behind EVENTS for a
            successor.
    """

    def __init__(self, parts: ServerParts, committer: Committer, lease: PartitionLease, ticks: int) -> None:
        self._executions = parts.executions
        self._plans = parts.plans
        self._store = parts.ports.store
        self._triggers = parts.triggers
        self._committer = committer
        self._partition = lease.id
        self._since_ms = lease.last_ms
        self._ticks_left = ticks
        self._tick = PendingTick()
        self._bytes = 0
        self._keys: list[tuple[str, str, str]] = []
        self.restored = Restored()
        self.origins: dict[str, str] = {}

    async def restore(self, execution_id: str, recorded: RecordedExecution) -> None:
        """Adds the entries that the journal of this execution lacks, up to the first gap."""
        await self._executions.load([execution_id])
        cached = self._executions.get(execution_id)
        if cached is None and self._executions.has_ended(execution_id):
            return
        position = cached.state.position if cached is not None and cached.state is not None else 0
        count = 0
        for entry in recorded.entries(position):
            cached = cached or await self._begin(execution_id, entry)
            if cached is None or not self._add(cached, execution_id, entry):
                break
            count += 1
            if self._bytes > TICK_BYTES and self._ticks_left > 1:
                await self.flush()
        requests = [body for body in recorded.dropped_requests() if isinstance(body.fact, ClientRequest)]
        self.answer_dropped(requests)
        self.restored = Restored(self.restored.executions + bool(count), self.restored.entries + count)

    async def flush(self) -> None:
        """Commits the restored entries."""
        tick, self._tick, self._bytes = self._tick, PendingTick(), 0
        known = await self._store.answered([(row.execution_id, row.request_id) for row in tick.requests])
        tick.requests = [row for row in tick.requests if (row.execution_id, row.request_id) not in known]
        keys, self._keys = self._keys, []
        # Before the commit: its entries are not restored again, so an end in between would lose the keys.
        for path, key, execution_id in keys:
            await self._store.hold_key(path, key, execution_id)
        if tick.segments or tick.requests:
            await self._committer.write(tick, {self._partition})
            self._ticks_left -= 1
        for execution_id, touched in tick.touched.items():
            if touched.state.ended:
                self._executions.end(execution_id)

    async def _begin(self, execution_id: str, entry: RecordedEntry) -> CachedExecution | None:
        fact = entry.inputs[0].recorded.fact
        if not isinstance(fact, ExecutionRequested):
            return None
        known = await self._plans.load(fact.digest)
        if known.row is not None:
            self._tick.playbooks[known.row.digest] = known.row
        return self._executions.begin(execution_id, known.plan)

    def _add(self, cached: CachedExecution, execution_id: str, entry: RecordedEntry) -> bool:
        """Adds an entry; returns whether it follows the last one."""
        position = (cached.state.position if cached.state is not None else 0) + entry.width
        steps = list(_steps(cached.state, execution_id, entry))
        if steps[-1].after is None or steps[-1].after.position != position:
            place = {"execution": execution_id}
            log.error("its record in EVENTS does not follow: it does not end at position %d", position, extra=place)
            return False
        plan = cached.plan if isinstance(cached.plan, Plan) else None
        for given, decisions, before, after in steps:
            assert after is not None
            cached.state, cached.at_ms = after, max(cached.at_ms, given.recorded.at_ms)
            cached.started_ms = cached.started_ms or cached.at_ms
            self._tick.record(given, 1 if before is None else before.position + 1, decisions, cached)
            if before is None:
                self._recall(after)
            effects = effects_of(plan, before, after, (given.recorded.fact, *decisions))
            self._collect(execution_id, after, effects)
            started = (fact for fact in decisions if isinstance(fact, ExecutionStarted) and fact.unique)
            self._keys += [(fact.path, fact.key, execution_id) for fact in started]
            if after.ended and (before is None or not before.ended):
                told = self._triggers.end_messages(
                    after, cached.labels, cached.started_ms, cached.at_ms, again_since_ms=self._since_ms
                )
                self._bytes += self._tick.tell_triggers(told, after.position, execution_id)
            for effect in (effect for effect in effects if isinstance(effect, TellOfEvent)):
                told = self._triggers.event_messages(
                    after, effect, cached.labels, cached.at_ms, again_since_ms=self._since_ms
                )
                self._bytes += self._tick.tell_triggers(told, effect.position, execution_id)
            position = after.position - sum(fact.width for fact in decisions)
            self._answer(execution_id, given, position)
            self._recall_slot(execution_id, given.recorded.fact, position)
            self._bytes += len(given.data) + 200 * len(decisions)
        return True

    def _collect(self, execution_id: str, after: Execution, effects: Sequence[Effect]) -> None:
        """Collects the rows of effects. Messages to other executions are sent again: receivers recognize repeats."""
        rows = [one for one in effects if not isinstance(one, IssueCommand | StopWorkers | WithdrawCommand)]
        self._tick.collect(execution_id, rows)
        for effect in rows:
            if isinstance(effect, AnswerStart):
                answer = {"ok": True, "execution_id": execution_id}
                if effect.diagnostics:
                    first = effect.diagnostics[0]
                    answer = refused_answer(execution_id, Rejection(first["code"], first["message"]))
                self._tick.answer(after.request_id, execution_id, answer, 1, push=False)

    def _recall(self, state: Execution) -> None:
        """Tells the aggregate that started an execution that it did."""
        if state.origin is not None:
            self.origins[state.origin.path] = state.origin.kind
            fact = StartedBefore(state.execution_id)
            message = AggregateMessage(state.origin.aggregate_id, fact, AGGREGATES_FORMAT)
            self._tick.send(SendMessage(state.position, message), state.execution_id, 0)

    def _recall_slot(self, execution_id: str, fact: Fact, position: int) -> None:
        """Tells a limit that one of its slots is held."""
        if isinstance(fact, SlotGranted):
            held = SlotHeld(fact.key, execution_id, fact.step_run_id, fact.slot_id, fact.namespace)
            message = AggregateMessage(held.limit_id, held, AGGREGATES_FORMAT)
            self._tick.send(SendMessage(position, message), execution_id, 0)

    def _answer(self, execution_id: str, given: Input, position: int) -> None:
        fact = given.recorded.fact
        if given.source == "client" and isinstance(fact, ClientRequest):
            answer = {"ok": True, "execution_id": execution_id, "position": position}
            self._tick.answer(fact.request_id, execution_id, answer, position, push=False)

    def answer_dropped(self, requests: Iterable[Request | AggregateRequest]) -> None:
        """Answers requests that are not folded again, once for each id."""
        for request in {(one.execution_id, one.request_id): one for one in requests}.values():
            answer = refused_answer(request.execution_id, UNKNOWN_ANSWER)
            self._tick.answer(request.request_id, request.execution_id, answer, IN_NO_JOURNAL, push=False)


class _Step(NamedTuple):
    """One input of an entry, with its decisions and the states before and after."""

    given: Input
    decisions: list[Fact]
    before: Execution | None
    after: Execution | None


def _steps(state: Execution | None, execution_id: str, entry: RecordedEntry) -> Iterator[_Step]:
    for given in entry.inputs:
        before, decisions = state, entry.decisions if given is entry.inputs[-1] else []
        state = evolve(state, given.recorded, execution_id)
        for fact in decisions:
            state = evolve(state, RecordedFact(fact), execution_id)
        yield _Step(given, decisions, before, state)
