"""Commits a tick: the fenced transaction, then the messages that are published after it (PROTOCOL §2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from noetl_stream.engine.effects import answer_claim
from noetl_stream.engine.state import Execution
from noetl_stream.errors import VALUE_FAULTS, PayloadRefused, TickRefused, fault_text
from noetl_stream.model.aggregates import EventEmitted, ExecutionEnded
from noetl_stream.model.ids import RunId
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Drop
from noetl_stream.model.search_terms import error_terms
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.ports.stores.dead_letters import storable
from noetl_stream.ports.stores.store import PartitionAdvance, TermRow, Tick, TimerKey
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.protocol import subjects
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.ticks.handing_on import handed_on, uses_in
from noetl_stream.server.ticks.tick import PendingTick
from noetl_stream.storage.used_secrets import hidden

log = logging.getLogger(__name__)


class Committer:
    """Writes ticks, then publishes and notifies. ``ticks`` counts ticks with events."""

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts
        self._store = parts.ports.store
        self._bus = parts.ports.bus
        self._executions = parts.executions
        self._ownership = parts.ownership
        self._publications = parts.publications
        self._turns = parts.turns
        self._clock = parts.ports.clock
        self._counts = parts.counts
        self._traces = parts.traces
        self._used = None if parts.ports.secrets is None else parts.ports.secrets.used
        self.ticks = 0

    async def commit(self, tick: PendingTick, partitions: Collection[int] = ()) -> None:
        """Commits the collected tick and moves the cursors, then publishes journal records and commands.

        Args:
            partitions: Fences these in addition to those that the tick touches.

        Raises:
            Fenced, OutcomeUnknown: nothing of this tick may be published.
            TickRefused: Postgres refuses the tick for its data; nothing was written.
            RequestAnswered: a request already has an answer; nothing was written.
        """
        advances = await self.write(tick, partitions)
        ticks = {advance.id: advance.tick + 1 for advance in advances}
        epochs = {advance.id: advance.epoch for advance in advances}
        decided = tick.journal_records(ticks, epochs, self._ownership.owner)
        if decided or tick.commands:
            self._publications.publish(ticks, decided, self._in_turns(tick), self._ownership.fences)
            self._counts.issued += len(tick.commands)
            self._counts.reissued += sum(command.issue > 1 for command in tick.commands)
        self._notify(tick)
        if self._traces is not None:
            self._traces.add_segments(tick)
        await asyncio.sleep(0)  # sends all of it before the server looks for the next tick

    def _in_turns(self, tick: PendingTick) -> Sequence[QueuedCommand]:
        """Returns the commands of a tick in the order set by the turns of namespaces."""
        self._turns.settle([touched.state for touched in tick.touched.values()])
        if not tick.commands:
            return ()
        return self._turns.place(tick.commands, self._parts.shares.namespace_of)

    async def write(self, tick: PendingTick, partitions: Collection[int] = ()) -> Sequence[PartitionAdvance]:
        """Commits a tick without publishing anything. Errors: as for :meth:`commit`."""
        terms = await self._hide(tick)
        self._publications.settle()
        fenced = tick.partitions.union(partitions)
        moved = {lease.id: (lease.last_seq, lease.last_ms) for lease in self._ownership if lease.id in fenced}
        moved |= tick.moved
        advances = self._ownership.advance(
            moved, self._published_ticks_at({id: place[0] for id, place in moved.items()})
        )
        ticks = {advance.id: advance.tick + 1 for advance in advances}
        keys = self._parts.ports.capabilities.object_keys
        written = Tick(
            owner=self._ownership.owner,
            partitions=advances,
            entries=tick.entry_rows(),
            executions=tick.execution_rows(),
            requests=tick.requests,
            playbooks=list(tick.playbooks.values()),
            timers=list(tick.timers.values()),
            timers_gone=[TimerKey(*key) for key in sorted(tick.timers_gone)],
            inbox=[handed_on(keys, one) for one in tick.inbox],
            inbox_folded=tick.inbox_folded,
            object_uses=[*tick.object_uses, *uses_in(keys, tick.segments)],
            terms=terms,
            terms_gone=tick.term_rows(found=False),
            dead_letters=[storable(letter) for letter in tick.dead_letters],
            stale_reports=tick.stale_reports,
            snapshots=self._executions.snapshots_due(one.state for one in tick.touched.values()),
            feed=tick.feed_rows(ticks),
            aggregates=list(tick.aggregates.values()),
            aggregates_gone=list(tick.aggregates_gone.values()),
            history=[row for (id, _), row in tick.history.items() if id not in tick.aggregates_gone],
            history_gone=list(tick.history_gone.values()),
            limit_slots=list(tick.limit_slots.values()),
            limit_slots_gone=list(tick.limit_slots_gone),
            requests_gone=list(tick.requests_gone.values()),
        )
        began_s = self._clock.monotonic_s()
        try:
            await self._store.commit(written)
        except PayloadRefused as error:
            raise TickRefused(error.message) from error
        self._counts.count_commit(written, self._clock.monotonic_s() - began_s)
        self._counts.count_measures(tick)
        self._ownership.record_commit(advances, bool(tick.segments))
        self.ticks += bool(tick.segments)
        return advances

    async def _hide(self, tick: PendingTick) -> Sequence[TermRow]:
        """Notifies triggers of ends and events, with the values that readers of the execution see, and returns the
        search terms of a tick without hidden words, so that no search finds these.
        """
        rows = tick.term_rows(found=True)
        outcomes = {id: tick.touched[id].state.outcome for id in tick.terms}
        errors = {id: one.error for id, one in outcomes.items() if one is not None and one.error is not None}
        redactors: Mapping[str, Redactor] = {}
        if self._used is not None:
            if tick.inherited:
                await self._used.inherit(tick.inherited)
            redactors = await self._used.redactors({*errors, *(one.sender for one in tick.told)})
        await self._tell(tick, redactors)
        hidden_terms: dict[str, set[str]] = {}
        for execution_id in errors.keys() & redactors.keys():
            error = errors[execution_id]
            shown = await asyncio.to_thread(hidden, redactors[execution_id], error)
            hidden_terms[execution_id] = error_terms(asdict(error)) - error_terms(asdict(shown))
        return [row for row in rows if row.term not in hidden_terms.get(row.execution_id, ())]

    async def _tell(self, tick: PendingTick, redactors: Mapping[str, Redactor]) -> None:
        shown: dict[int, Any] = {}
        for effect, sender, number in tick.told:
            fact = effect.message.fact
            if sender in redactors and isinstance(fact, ExecutionEnded | EventEmitted):
                event, member = (fact.ended, "ended") if isinstance(fact, ExecutionEnded) else (fact.emitted, "emitted")
                if id(event) not in shown:  # triggers share an event
                    shown[id(event)] = await asyncio.to_thread(hidden, redactors[sender], event)
                fact = replace(fact, **{member: shown[id(event)]})
                effect = replace(effect, message=replace(effect.message, fact=fact))
            tick.send(effect, sender, number)
        tick.told.clear()

    async def mark(self, through: Mapping[int, int]) -> None:
        """Writes the cursors of idle partitions and ``published_tick`` if they have moved, with each lease renewal."""
        tick = PendingTick()
        highs = {through[lease.id] for lease in self._ownership if through.get(lease.id, 0) > lease.last_seq}
        found = await asyncio.gather(*(self._parts.ports.log.stored_at(high) for high in highs))
        times = dict(zip(highs, found, strict=True))
        for lease in self._ownership:
            high = through.get(lease.id, 0)
            published = self._publications.published_tick(lease.id, lease.last_seq, lease.published_tick)
            if high > lease.last_seq:
                tick.moved[lease.id] = (high, times[high] or 0)
            elif published != lease.published_tick:
                tick.moved[lease.id] = (lease.last_seq, lease.last_ms)
        if tick.moved:
            await self.commit(tick)

    def published_ticks(self, partitions: Collection[int]) -> dict[int, int]:
        """Returns the ``published_tick`` of each partition at its present cursor."""
        leases = {partition: self._ownership.get(partition) for partition in partitions}
        return self._published_ticks_at(
            {id: lease.last_seq if lease is not None else 0 for id, lease in leases.items()}
        )

    def _published_ticks_at(self, through: Mapping[int, int]) -> dict[int, int]:
        """Returns the ``published_tick`` of each partition with this cursor."""
        found = {}
        for partition, sequence in through.items():
            lease = self._ownership.get(partition)
            recorded = lease.published_tick if lease is not None else 0
            found[partition] = self._publications.published_tick(partition, sequence, recorded)
        return found

    def _notify(self, tick: PendingTick) -> None:
        for subject, execution_id, run in tick.claims:
            self._bus.send(subject, self._claim_answer(execution_id, run))
        for subject, drop in tick.drops:
            self._bus.send(subject, codec.encode(drop))
        for row in tick.answers:
            self._bus.send(subjects.answered(row.execution_id, row.request_id), row.answer)
        for stop in tick.stops:
            self._bus.send(subjects.STOP, codec.encode(stop))
        if tick.withdrawn:
            self._publications.withdraw(tick.withdrawn)
        for execution_id, touched in tick.touched.items():
            state = touched.state
            self._counts.started += tick.segments[execution_id].first_position == 1
            if state.ended:
                self._note_end(state, (touched.at_ms - touched.started_ms) / 1000)
                self._executions.end(execution_id)
                continue
            self._executions.grow(execution_id, tick.segments[execution_id].size)
            if state.timers or state.looks_into is not None:
                self._parts.waits.track(state)
        if tick.aggregates:
            self._parts.timers.track(tick.timers.values())
        if tick.inbox:
            self._parts.inbox.notify([one.row for one in tick.inbox])

    def _claim_answer(self, execution_id: str, run: RunId) -> bytes:
        """Returns the answer to a claim. A command that cannot be sent is issued again until it fails."""
        try:
            return codec.encode(answer_claim(self._executions.state(execution_id), run))
        except VALUE_FAULTS as error:
            return codec.encode(Drop(f"the command cannot be sent: {fault_text(error)}"))

    def _note_end(self, state: Execution, took_s: float) -> None:
        error = state.outcome.error if state.outcome is not None else None
        self._counts.ended[state.status] += 1
        self._counts.playbooks[state.path].count_end(state.status, took_s, error)
        if state.status != "failed":
            return
        about: dict[str, Any] = {"execution": state.execution_id, "trace_id": state.trace_id}
        about |= {"path": state.path, "version": state.version}
        if error is not None:  # without its message, which only readers of the execution may see
            about |= {"kind": error.kind, "code": error.code, "task": error.task}
        log.warning("execution failed", extra=about)
