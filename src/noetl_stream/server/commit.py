"""Commits a tick: the fenced transaction, then everything that is published after it (PROTOCOL §2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from noetl_stream.engine.effects import answer_claim
from noetl_stream.engine.state import Execution
from noetl_stream.model import codec
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.command_queue import CommandQueue
from noetl_stream.ports.event_log import EventLog
from noetl_stream.ports.store import ExecutionRow, Store, Tick, TimerKey
from noetl_stream.server.execution_cache import ExecutionCache
from noetl_stream.server.inbox import Inbox
from noetl_stream.server.inputs import ServerInputs
from noetl_stream.server.partitions import PartitionOwnership
from noetl_stream.server.publications import Publications
from noetl_stream.server.tick import NO_LABELS, PendingTick, execution_row


class CommitPorts(Protocol):
    """The ports committing needs."""

    @property
    def log(self) -> EventLog: ...
    @property
    def queue(self) -> CommandQueue: ...
    @property
    def store(self) -> Store: ...
    @property
    def bus(self) -> Bus: ...


class Committer:
    """Writes ticks; once they are committed, publishes and notifies. ``ticks`` counts ticks with events."""

    def __init__(
        self,
        ports: CommitPorts,
        ownership: PartitionOwnership,
        publications: Publications,
        executions: ExecutionCache,
        inputs: ServerInputs,
        inbox: Inbox,
    ) -> None:
        self._ports = ports
        self._ownership = ownership
        self._publications = publications
        self._executions = executions
        self._inputs = inputs
        self._inbox = inbox
        self.ticks = 0

    async def commit(self, tick: PendingTick, moved: Mapping[int, tuple[int, int]]) -> None:
        """Commits what the fold collected and moves the cursors, then publishes journal records and commands.

        Raises:
            Fenced, OutcomeUnknown: nothing of this tick may be published.
        """
        self._publications.settle()
        advances = self._ownership.advance(moved, self.published(moved))
        ticks = {advance.id: (advance.tick + 1, advance.epoch) for advance in advances}
        await self._ports.store.commit(
            Tick(
                owner=self._ownership.owner,
                partitions=advances,
                events=tick.events,
                executions=[self._row(*touched) for touched in tick.touched.values()],
                requests=tick.requests,
                playbooks=list(tick.playbooks.values()),
                timers=list(tick.timers.values()),
                timers_gone=[TimerKey(*key) for key in tick.timers_gone],
                inbox=tick.inbox,
                inbox_folded=tick.inbox_folded,
                object_uses=tick.object_uses,
                terms=tick.terms,
                dead_letters=tick.dead_letters,
                feed=tick.feed_rows({partition: number for partition, (number, _) in ticks.items()}),
            )
        )
        self._ownership.committed(advances)
        self.ticks += bool(tick.events)
        decided = tick.journal_records(ticks, self._ownership.owner)
        if decided or tick.commands:
            self._publications.publish({p: tick_ for p, (tick_, _) in ticks.items()}, decided, tick.commands)
        self._notify(tick)

    async def mark(self, through: Mapping[int, int]) -> None:
        """Writes the cursors of idle partitions and ``published_tick`` if they have moved (with each lease renewal)."""
        times: dict[int, int | None] = {}
        moved: dict[int, tuple[int, int]] = {}
        for owned in self._ownership:
            high = through.get(owned.id, 0)
            published = self._publications.published_tick(owned.id, owned.published_tick)
            if high > owned.cursor:
                if high not in times:
                    times[high] = await self._ports.log.stored_at(high)
                moved[owned.id] = (high, times[high] or 0)
            elif published != owned.published_tick:
                moved[owned.id] = (owned.cursor, owned.cursor_ms)
        if moved:
            await self.commit(PendingTick(), moved)

    def cursors(self, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
        """The current cursors of these partitions, for a tick that folds no message."""
        return {o.id: (o.cursor, o.cursor_ms) for o in self._ownership if o.id in partitions}

    def published(self, partitions: Collection[int]) -> dict[int, int]:
        """``published_tick`` of each."""
        found = {}
        for partition in partitions:
            owned = self._ownership.get(partition)
            found[partition] = self._publications.published_tick(partition, owned.published_tick if owned else 0)
        return found

    def _row(self, state: Execution, partition: int, at_ms: int) -> ExecutionRow:
        cached = self._executions.get(state.execution_id)
        if cached is None:
            return execution_row(state, partition, at_ms, at_ms)
        labels = cached.plan.labels if isinstance(cached.plan, Plan) else NO_LABELS
        return execution_row(state, partition, cached.started_ms, at_ms, labels)

    def _notify(self, tick: PendingTick) -> None:
        bus = self._ports.bus
        for reply, execution_id, run in tick.claims:
            cached = self._executions.get(execution_id)
            bus.send(reply, codec.encode(answer_claim(cached.state if cached is not None else None, run)))
        for row in tick.answers:
            bus.send(subjects.answered(row.execution_id, row.request_id), row.answer)
        for stop in tick.stops:
            bus.send(subjects.STOP, codec.encode(stop))
        if tick.withdrawn:
            self._publications.withdraw(tick.withdrawn)
        for execution_id, (state, _, _) in tick.touched.items():
            if state.ended:
                self._executions.end(execution_id)
            elif state.timers or state.awaited is not None:
                self._inputs.track(state)
        if tick.inbox:
            self._inbox.notify(tick.inbox)
