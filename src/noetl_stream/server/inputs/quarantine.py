"""Quarantine: one execution is set aside, so that no input of it stops the rest (PROTOCOL §5 *Poison*).

A tick that Postgres refuses for its data, or whose values cannot be walked, is folded again in halves, until one input
is alone. An execution whose journal or playbook cannot be read is set aside when it is loaded. After two crashes of a
partition its inputs are folded one at a time, and the execution is committed first: the next owner finds the suspect.
One that is found again and again, while no input of it is folded, is quarantined.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from noetl_stream.engine.effects import SendMessage, ended_message
from noetl_stream.engine.state import RecordedFact
from noetl_stream.errors import VALUE_FAULTS, NoetlError, RequestAnswered, fault_text
from noetl_stream.model import codec
from noetl_stream.model.aggregates import EventReceived, StreamEventRead, is_aggregate
from noetl_stream.model.events import ChildFinished, ExecutionQuarantined, ExecutionRequested
from noetl_stream.model.ids import derive, partition_of
from noetl_stream.model.messages import AGGREGATES_FORMAT, FORMAT, AggregateMessage, ClientMessage, InboxMessage
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.status import Rejection
from noetl_stream.ports.dead_letters import storable_text
from noetl_stream.ports.event_log import ReportedMessage
from noetl_stream.ports.store import InboxItem
from noetl_stream.server.aggregates.aggregates import DueTimer
from noetl_stream.server.aggregates.stream_readers import StreamInput
from noetl_stream.server.inputs.inputs import Input as OwnInput
from noetl_stream.server.memory.execution_cache import LOADED_AT_ONCE, OwedCommand
from noetl_stream.server.ownership.partitions import LOADING, SUSPICIONS
from noetl_stream.server.parts import ServerParts
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.fold import IN_NO_JOURNAL, Fold
from noetl_stream.server.ticks.tick import inbox_letter, message_letter, refused

log = logging.getLogger(__name__)

SUSPECTED: Final = f"{SUSPICIONS} servers in a row ended while they folded an input of it"

UNLOADABLE: Final = f"{SUSPICIONS} servers in a row ended while they loaded it"

CARE_SHARE: Final = 12
"""A stage of a turn folds with care for this part of a lease: four stages leave time to renew it."""

_Input = TypeVar("_Input")


class InputKind(NamedTuple, Generic[_Input]):
    """How inputs of one kind are folded.

    Attributes:
        fold: Folds and commits some; returns those left to a later tick.
        execution_of: The execution an input is for.
        partition_of: Whose cursor it moves: for a message, the partition that its subject names, which may differ from
            its execution's. Such a message is refused, and its execution is not suspect.
        refuse: Adds to a fold what is kept of an input that cannot be folded.
    """

    fold: Callable[[Sequence[_Input]], Awaitable[Sequence[_Input]]]
    execution_of: Callable[[_Input], str]
    partition_of: Callable[[_Input], int]
    refuse: Callable[[Fold, _Input, str], Awaitable[dict[int, tuple[int, int]]]]


class Quarantine:
    """Folds inputs so that one execution that cannot be folded is found, and sets it aside."""

    def __init__(self, parts: ServerParts, committer: Committer) -> None:
        self._parts = parts
        self._committer = committer

    async def fold(self, inputs: Sequence[_Input], kind: InputKind[_Input]) -> Sequence[_Input]:
        """Folds ``inputs``, in as many ticks as it takes; returns those left to a later tick.

        Raises:
            TickRefused: Postgres refuses to write even that an execution is quarantined.
        """
        ownership = self._parts.ownership
        if not ownership.unsound:
            return await self._in_halves(inputs, kind)
        alone = [one for one in inputs if ownership.is_careful(kind.partition_of(one))]
        together = [one for one in inputs if not ownership.is_careful(kind.partition_of(one))]
        if together and (rest := await self._in_halves(together, kind)):
            return [*rest, *alone]
        return await self._with_care(alone, kind)

    async def _with_care(self, inputs: Sequence[_Input], kind: InputKind[_Input]) -> Sequence[_Input]:
        """Folds each input in a tick of its own, for as long as the leases allow; returns those that are left."""
        ownership, clock = self._parts.ownership, self._parts.ports.clock
        until_s = clock.monotonic_s() + self._parts.times.lease_s / CARE_SHARE
        for number, one in enumerate(inputs, start=1):
            execution_id = kind.execution_of(one)
            rest: Sequence[_Input] = ()
            if _is_misdirected(one, kind):
                rest = await self._in_halves([one], kind)
            else:
                async with ownership.folding_alone(execution_id):
                    if ownership.is_condemned(execution_id):
                        await self._refuse(one, kind, SUSPECTED)
                        ownership.acquit(execution_id)
                    else:
                        rest = await self._in_halves([one], kind)
            if rest or clock.monotonic_s() >= until_s:
                return [*rest, *inputs[number:]]
        return ()

    async def set_condemned_aside(self) -> None:
        """Quarantines executions that owners have died of. One that has not begun is left to :meth:`fold`."""
        ownership, executions = self._parts.ownership, self._parts.executions
        for partition, named in list(ownership.condemned.items()):
            execution_id = named.removeprefix(LOADING)
            if named.startswith(LOADING):
                await self._set_deadly_aside(partition, execution_id)
                continue
            await executions.load([execution_id])
            if executions.state(execution_id) is not None:
                fold = Fold(executions, self._parts.ports.capabilities, self._parts.formats, self._parts.ends)
                self._quarantine(fold, execution_id, SUSPECTED)
                async with ownership.folding_alone(execution_id):  # so that the tick clears its suspicions
                    await self._committer.commit(fold.tick, self._committer.cursors({partition}))
                ownership.acquit(execution_id)

    async def set_unloadable_aside(self) -> None:
        """Quarantines executions that were found unloadable. Those of other owners are theirs to find."""
        ownership, executions = self._parts.ownership, self._parts.executions
        found, executions.unloadable = list(executions.unloadable.items()), {}
        for at in range(0, len(found), LOADED_AT_ONCE):
            fold = Fold(executions, self._parts.ports.capabilities, self._parts.formats, self._parts.ends)
            for execution_id, reason in found[at : at + LOADED_AT_ONCE]:
                owns = ownership.get(partition_of(execution_id)) is not None
                if owns and await executions.load_stub(execution_id):
                    self._quarantine(fold, execution_id, storable_text(reason))
            if fold.tick.segments:
                await self._committer.commit(fold.tick, self._committer.cursors(fold.tick.partitions))

    async def _set_deadly_aside(self, partition: int, execution_id: str) -> None:
        """Quarantines an execution from its row alone: servers have died reading its journal."""
        ownership, executions = self._parts.ownership, self._parts.executions
        fold = Fold(executions, self._parts.ports.capabilities, self._parts.formats, self._parts.ends)
        if await executions.load_stub(execution_id):
            self._quarantine(fold, execution_id, UNLOADABLE)
        await ownership.note_loading(execution_id)  # so that the tick clears its suspicions
        if fold.tick.segments:
            await self._committer.commit(fold.tick, self._committer.cursors({partition}))
        await ownership.note_loaded(partition)
        ownership.acquit(execution_id)

    async def _in_halves(self, inputs: Sequence[_Input], kind: InputKind[_Input]) -> Sequence[_Input]:
        try:
            return await kind.fold(inputs)
        except (*VALUE_FAULTS, RequestAnswered) as error:
            await self._parts.executions.reload({kind.execution_of(one) for one in inputs})
            if len(inputs) == 1:
                await self._refuse(inputs[0], kind, fault_text(error))
                return ()
        middle = len(inputs) // 2
        if rest := await self._in_halves(inputs[:middle], kind):
            return [*rest, *inputs[middle:]]
        return await self._in_halves(inputs[middle:], kind)

    async def _refuse(self, one: _Input, kind: InputKind[_Input], reason: str) -> None:
        try:
            await self._set_input_aside(one, kind, storable_text(reason))
        except VALUE_FAULTS as error:  # its values are in the way of even that: its row knows enough of it
            if not await self._parts.executions.load_stub(kind.execution_of(one)):
                raise
            log.warning("cannot quarantine it with its values: %s", fault_text(error))
            await self._set_input_aside(one, kind, storable_text(reason))

    async def _set_input_aside(self, one: _Input, kind: InputKind[_Input], reason: str) -> None:
        execution_id = kind.execution_of(one)
        fold = Fold(self._parts.executions, self._parts.ports.capabilities, self._parts.formats, self._parts.ends)
        moved = await kind.refuse(fold, one, reason)
        if not _is_misdirected(one, kind):
            self._quarantine(fold, execution_id, reason)
        try:
            await self._committer.commit(fold.tick, moved)
        except NoetlError as error:
            log.error("cannot quarantine: %s", error, extra={"execution": execution_id})
            raise

    def _quarantine(self, fold: Fold, execution_id: str, reason: str) -> None:
        self._parts.counts.quarantined += 1
        log.error("quarantined: %s", reason, extra={"execution": execution_id})
        fold.own_input(execution_id, RecordedFact(ExecutionQuarantined(reason), at_ms=self._parts.inputs.now_ms()))

    # --- what is kept of an input -------------------------------------------------------------------------------------

    async def refuse_message(self, fold: Fold, message: ReportedMessage, reason: str) -> dict[int, tuple[int, int]]:
        """Keeps a message of EVENTS as a dead letter; answers a request."""
        body = fold.decode(message)
        if body is not None:
            fold.tick.dead_letters.append(message_letter(message, reason))
        if isinstance(body, ClientMessage) and not await self._parts.ports.store.request(
            body.execution_id, body.request_id
        ):
            answer = refused(body.execution_id, Rejection("quarantined", f"the request cannot be stored: {reason}"))
            fold.tick.answer(body.request_id, body.execution_id, answer, IN_NO_JOURNAL)
        return {message.partition: (message.sequence, message.at_ms)}

    async def refuse_inbox(self, fold: Fold, item: InboxItem, reason: str) -> dict[int, tuple[int, int]]:
        """Keeps a message between executions as a dead letter; tells the parent of a child that cannot start."""
        at_ms = self._parts.inputs.now_ms()
        if is_aggregate(item.execution_id):
            fold.tick.inbox_folded.append(item.seq)
            fold.tick.dead_letters.append(inbox_letter(item, at_ms, reason))
            return self._committer.cursors({item.partition})
        message = fold.decode_inbox(item, at_ms)
        if message is not None:
            fold.tick.dead_letters.append(inbox_letter(item, at_ms, reason))
        fact = message.fact if message is not None else None
        if isinstance(fact, ExecutionRequested) and fact.parent and not self._parts.executions.state(item.execution_id):
            parent = fact.parent
            error = ErrorInfo("child_failed", f"playbook {fact.path} cannot start: {reason}", code="quarantined")
            end = ChildFinished(item.execution_id, parent.command_id, Outcome("error", error=error), parent.path)
            told = SendMessage(IN_NO_JOURNAL, InboxMessage(parent.execution_id, end, FORMAT))
            fold.tick.collect(item.execution_id, item.partition, [told])
        elif (
            isinstance(fact, ExecutionRequested) and fact.origin and not self._parts.executions.state(item.execution_id)
        ):
            error = ErrorInfo("quarantined", f"it cannot start: {reason}")
            told = SendMessage(IN_NO_JOURNAL, ended_message(item.execution_id, fact.origin, "failed", error))
            fold.tick.collect(item.execution_id, item.partition, [told])
        return self._committer.cursors({item.partition})

    async def refuse_own(self, fold: Fold, one: OwnInput | OwedCommand, reason: str) -> dict[int, tuple[int, int]]:
        """Keeps nothing: the state still waits for a timer or a result, and finds it again when it is resumed."""
        return self._committer.cursors({partition_of(one[0])})

    async def refuse_timer(self, fold: Fold, one: DueTimer, reason: str) -> dict[int, tuple[int, int]]:
        """Keeps a dead letter that says which aggregate could not be folded. Its timer stays for the next owner."""
        partition = partition_of(one.aggregate_id)
        item = InboxItem(one.due_ms, partition, one.aggregate_id, codec.encode(one))
        letter = inbox_letter(item, self._parts.inputs.now_ms(), reason)
        fold.tick.dead_letters.append(replace(letter, id=f"timer-{one.aggregate_id}-{one.due_ms}", subject="timer"))
        return self._committer.cursors({partition})

    async def refuse_stream(self, fold: Fold, one: StreamInput, reason: str) -> dict[int, tuple[int, int]]:
        """Keeps a message that could not be folded as a dead letter; its trigger goes on with the next. Put back, it is
        an event that is sent again.
        """
        partition, at_ms = partition_of(one.aggregate_id), self._parts.inputs.now_ms()
        if isinstance(one.fact, StreamEventRead):
            place = one.fact.place
            id = f"stream-{derive(one.fact.consumer, place.made)[:16]}-{place.sequence}"
            passed = {"subject": "", "stream": place.stream, "sequence": place.sequence}
            why = f"it cannot be folded, dead letter {id}: {reason}"
            skipped = one._replace(fact=replace(one.fact, event=passed, unfoldable=why))
            await self._parts.aggregates.read([skipped], at_ms, fold.tick)
            if fold.tick.aggregates:  # else the trigger is gone, or another by now
                event = EventReceived(id, one.path, event=one.fact.event)
                body = codec.encode(AggregateMessage(one.aggregate_id, event, AGGREGATES_FORMAT))
                said = f"message {place.sequence} of stream {place.stream} for trigger {one.path}: {reason}"
                letter = inbox_letter(InboxItem(place.sequence, partition, one.aggregate_id, body), at_ms, said)
                fold.tick.dead_letters.append(replace(letter, id=id, subject=f"{place.stream} {place.sequence}"))
        return self._committer.cursors({partition})


def _is_misdirected(one: _Input, kind: InputKind[_Input]) -> bool:
    return kind.partition_of(one) != partition_of(kind.execution_of(one))
