"""Inputs from the server itself: due timers, loaded values, messages of streams, slots of ended executions, and
commands that the queue has lost (PROTOCOL §2 *Reconcile*).

Lost commands are found in this order: the queue is listed, then the log is folded to its end. A report is stored before
its command is acknowledged, so the report of a command missing from the list is at or before that end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import ClassVar, Final

from msgspec.structs import replace

from noetl_stream.model.aggregates import EventReceived, StreamEventRead, StreamSeen
from noetl_stream.model.ids import derive, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AGGREGATES_FORMAT, AggregateMessage
from noetl_stream.ports.stores.aggregates import LEFT_AT_ONCE, LimitSlotRow
from noetl_stream.ports.stores.store import InboxItem
from noetl_stream.ports.streams.command_queue import CommandQueue
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.server.aggregates.aggregate_fold import DueTimer
from noetl_stream.server.aggregates.stream_readers import StreamInput
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.inputs.execution_starter import ExecutionStarter
from noetl_stream.server.inputs.source import InputSource
from noetl_stream.server.inputs.waits import Input
from noetl_stream.server.memory.execution_cache import ExecutionCache, OwedCommand
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.fold import Fold
from noetl_stream.server.ticks.tick import inbox_letter

ISSUED_AT_ONCE: Final = 500
"""The most commands that one tick issues again."""


class Reconciler:
    """Lists commands missing from the queue, and returns them once the log is folded far enough."""

    def __init__(self, queue: CommandQueue, log: EventLog) -> None:
        self._queue = queue
        self._log = log
        self._missing: Sequence[OwedCommand] = ()
        self._through = 0

    async def list_missing(self, executions: ExecutionCache, under_way: Collection[str]) -> None:
        """Lists the owed commands that neither the queue nor this owner's publications hold."""
        self.forget()
        candidates = [owed for owed in executions.owed_commands() if owed.command_id not in under_way]
        if candidates:
            present = await self._queue.present(mends=True)
            self._through = await self._log.last_sequence()
            self._missing = [owed for owed in candidates if owed.command_id not in present]

    def forget(self) -> None:
        """Discards the list of missing commands."""
        self._missing = ()

    async def take_missing(self, executions: ExecutionCache, folded: Callable[[], int]) -> Sequence[OwedCommand]:
        """Returns some of the listed commands that are still owed at the same issue, and loads their executions; empty
        until the log is folded to the end that it had at the time of the list.

        Args:
            folded: Returns the sequence up to which all owned partitions are folded.
        """
        if not self._missing or folded() < self._through:
            return ()
        missing, self._missing = self._missing[:ISSUED_AT_ONCE], self._missing[ISSUED_AT_ONCE:]
        await executions.load(owed.execution_id for owed in missing if executions.is_evicted(owed.execution_id))
        assignments = [(owed, executions.assignment(owed.execution_id, owed.command_id)) for owed in missing]
        return [owed for owed, present in assignments if present is not None and present.issue == owed.issue]


log = logging.getLogger(__name__)


class OwnInputs(InputSource[Input]):
    """Due timers of executions, and values that were loaded or evaluated for them."""

    origin: ClassVar[str] = "own"

    def __init__(self, parts: ServerParts, committer: Committer) -> None:
        super().__init__(parts, committer)
        self._starter = ExecutionStarter(parts)

    async def take(self) -> Sequence[Input]:
        return await self._parts.waits.ready(self._parts.executions)

    async def fold(self, inputs: Sequence[Input]) -> Sequence[Input]:
        rest: Sequence[Input] = ()
        fold = self._parts.new_fold()
        for number, (execution_id, recorded) in enumerate(inputs, start=1):
            await self._starter.take_playbook(execution_id, recorded, fold.tick)
            fold.own_input(execution_id, recorded)
            if fold.is_full:
                rest = inputs[number:]
                break
        if fold.tick.segments:
            await self.commit(fold)
        return rest

    async def refuse(self, fold: Fold, one: Input, reason: str) -> None:
        """Keeps no dead letter: the state still waits for the timer or value, and finds it when it is resumed."""

    def restore(self, inputs: Sequence[Input]) -> None:
        self._parts.waits.restore(inputs)

    def execution_of(self, one: Input) -> str:
        return one[0]


class LostCommands(InputSource[OwedCommand]):
    """Owed commands that the queue has lost: they are issued again (PROTOCOL §2 *Reconcile*)."""

    def __init__(self, parts: ServerParts, committer: Committer, reconciler: Reconciler) -> None:
        super().__init__(parts, committer)
        self._reconciler = reconciler

    async def take(self) -> Sequence[OwedCommand]:
        return await self._reconciler.take_missing(self._parts.executions, self._folded_sequence)

    async def fold(self, inputs: Sequence[OwedCommand]) -> Sequence[OwedCommand]:
        fold = self._parts.new_fold()
        for owed in inputs:
            fold.issue_again(owed.execution_id, owed.command_id, "absent from the queue")
        if fold.tick.segments:
            self._parts.counts.reconciled += len(fold.tick.commands)
            log.info("reissued %d commands", len(fold.tick.commands))
            await self.commit(fold)
        return ()

    async def refuse(self, fold: Fold, one: OwedCommand, reason: str) -> None:
        """Keeps no dead letter: the state still owes the command."""

    def execution_of(self, one: OwedCommand) -> str:
        return one.execution_id

    def _folded_sequence(self) -> int:
        """Returns the sequence up to which all owned partitions are folded."""
        through = self._parts.reader.folded_through()
        leases = self._parts.ownership
        return min((max(lease.last_seq, through.get(lease.id, 0)) for lease in leases), default=0)


LEFT_MS: Final = 60_000
"""The time after the end of an execution at which a slot that it still holds is returned."""


class DueTimers(InputSource[DueTimer]):
    """Due timers of aggregates."""

    origin: ClassVar[str] = "own"

    async def take(self) -> Sequence[DueTimer]:
        parts = self._parts
        due = parts.timers.take(parts.waits.now_ms())
        if due and await parts.catching_up.look(one.aggregate_id for one in due):
            parts.inbox.expect_messages()
        return due

    async def fold(self, inputs: Sequence[DueTimer]) -> Sequence[DueTimer]:
        fold = self._parts.new_fold()
        await self._parts.aggregates.timers(inputs, self._parts.waits.now_ms(), fold.tick)
        if fold.tick.partitions:
            await self.commit(fold)
        return ()

    async def refuse(self, fold: Fold, one: DueTimer, reason: str) -> None:
        """Keeps a dead letter that names the aggregate. Its timer stays for the next owner of the partition."""
        partition = self.partition_of(one)
        item = InboxItem(one.due_ms, partition, one.aggregate_id, codec.encode(one))
        letter = inbox_letter(item, self._parts.waits.now_ms(), reason)
        fold.tick.dead_letters.append(replace(letter, id=f"timer-{one.aggregate_id}-{one.due_ms}", subject="timer"))

    def restore(self, inputs: Sequence[DueTimer]) -> None:
        self._parts.timers.restore(inputs)

    def execution_of(self, one: DueTimer) -> str:
        return one.aggregate_id


class StreamInputs(InputSource[StreamInput]):
    """Messages read from streams for triggers. The readers offer them again until they are folded."""

    origin: ClassVar[str] = "own"

    async def take(self) -> Sequence[StreamInput]:
        """Returns the waiting messages of streams. News about a stream is folded at once, since none can be refused."""
        offered = self._parts.streams.offered() if self._parts.streams is not None else []
        seen = [one for one in offered if isinstance(one.fact, StreamSeen)]
        if seen:
            self._parts.counts.inputs[self.origin] += len(seen)
            await self.fold(seen)
        return [one for one in offered if isinstance(one.fact, StreamEventRead)]

    async def fold(self, inputs: Sequence[StreamInput]) -> Sequence[StreamInput]:
        fold = self._parts.new_fold()
        states = await self._parts.aggregates.read(inputs, self._parts.waits.now_ms(), fold.tick)
        if fold.tick.partitions:
            await self.commit(fold)
        if self._parts.streams is not None:
            self._parts.streams.folded(inputs, states)
        return ()

    async def refuse(self, fold: Fold, one: StreamInput, reason: str) -> None:
        """Keeps a message as a dead letter; its trigger continues. Requeueing the letter sends the event again."""
        partition, at_ms = self.partition_of(one), self._parts.waits.now_ms()
        if isinstance(one.fact, StreamEventRead):
            place = one.fact.place
            id = f"stream-{derive(one.fact.consumer, place.made)[:16]}-{place.sequence}"
            passed = {"subject": "", "stream": place.stream, "sequence": place.sequence}
            why = f"it cannot be folded, dead letter {id}: {reason}"
            skipped = one._replace(fact=replace(one.fact, event=passed, unfoldable=why))
            await self._parts.aggregates.read([skipped], at_ms, fold.tick)
            if fold.tick.aggregates:  # the trigger may be gone or replaced by now
                event = EventReceived(id, one.path, event=one.fact.event)
                body = codec.encode(AggregateMessage(one.aggregate_id, event, AGGREGATES_FORMAT))
                said = f"message {place.sequence} of stream {place.stream} for trigger {one.path}: {reason}"
                letter = inbox_letter(InboxItem(place.sequence, partition, one.aggregate_id, body), at_ms, said)
                fold.tick.dead_letters.append(replace(letter, id=id, subject=f"{place.stream} {place.sequence}"))

    def execution_of(self, one: StreamInput) -> str:
        return one.aggregate_id


class LeftSlots(InputSource[LimitSlotRow]):
    """Slots of limits whose executions have ended without returning them: the message was lost."""

    def __init__(self, parts: ServerParts, committer: Committer) -> None:
        super().__init__(parts, committer)
        self._looked_s = parts.ports.clock.monotonic_s()

    async def take(self) -> Sequence[LimitSlotRow]:
        parts = self._parts
        now_s = parts.ports.clock.monotonic_s()
        if now_s - self._looked_s < parts.times.slots_s or not parts.ownership.ids:
            return ()
        self._looked_s = now_s
        rows = await parts.ports.store.limit_slots_left(parts.waits.now_ms() - LEFT_MS, LEFT_AT_ONCE)
        return [row for row in rows if partition_of(row.limit_id) in parts.ownership.ids]

    async def fold(self, inputs: Sequence[LimitSlotRow]) -> Sequence[LimitSlotRow]:
        log.warning("giving back %d slots of limits whose executions have ended", len(inputs))
        fold = self._parts.new_fold()
        await self._parts.aggregates.give_back(inputs, self._parts.waits.now_ms(), fold.tick)
        await self.commit(fold)
        return ()

    async def refuse(self, fold: Fold, one: LimitSlotRow, reason: str) -> None:
        """Keeps no dead letter: the row of the slot is found again."""

    def execution_of(self, one: LimitSlotRow) -> str:
        return one.limit_id
