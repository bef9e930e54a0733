"""Messages between executions as inputs (PROTOCOL §1 *Inbox*)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from noetl_stream.engine.effects import SendMessage, ended_message
from noetl_stream.model.aggregates import is_aggregate
from noetl_stream.model.events import ChildFinished, ExecutionRequested, Origin, Parent
from noetl_stream.model.json import codec
from noetl_stream.model.messages import FORMAT, InboxMessage
from noetl_stream.model.outcome import NOT_UNDONE, ErrorInfo, Outcome
from noetl_stream.model.status import ENDED
from noetl_stream.ports.stores.store import InboxItem
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.inputs.execution_starter import ExecutionStarter
from noetl_stream.server.inputs.fair_queue import FairQueue
from noetl_stream.server.inputs.inbox import FEW_AT_ONCE, MOST_AT_ONCE
from noetl_stream.server.inputs.source import InputSource
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.fold import FREEING, IN_NO_JOURNAL, Fold
from noetl_stream.server.ticks.tick import PendingTick, inbox_letter
from noetl_stream.storage.undoing import last_undoing


class InboxMessages(InputSource[InboxItem]):
    """Inbox messages that wait in Postgres, to executions and to aggregates."""

    origin: ClassVar[str] = "inbox"

    def __init__(self, parts: ServerParts, committer: Committer) -> None:
        super().__init__(parts, committer)
        self._executions = parts.executions
        self._starter = ExecutionStarter(parts)
        self._waiting = FairQueue[InboxItem](parts.executions.state, parts.shares.namespace_of)
        self._has_left_some = False

    async def take(self) -> Sequence[InboxItem]:
        """Returns the messages that a turn folds; the others are read again."""
        parts = self._parts
        items: Sequence[InboxItem] = await parts.inbox.take(parts.ownership.ids)
        if await parts.catching_up.look(item.execution_id for item in items):
            parts.inbox.expect_messages()
            items = await parts.inbox.take(parts.ownership.ids)
        parts.catching_up.note_read(items)
        items = parts.aggregates.in_order(items)
        if len(items) <= FEW_AT_ONCE and not self._has_left_some:
            return items
        self._has_left_some = False
        self._waiting.clear()
        self._waiting.add(items)
        if is_contested := self._waiting.is_contested:
            parts.competition.note()
        most = FEW_AT_ONCE if is_contested else MOST_AT_ONCE
        if len(items) > most:
            self.restore(items[most:])
        return self._waiting.take(most)

    async def fold(self, inputs: Sequence[InboxItem]) -> Sequence[InboxItem]:
        rest: Sequence[InboxItem] = ()
        fold = self._parts.new_fold()
        at_ms = self._parts.waits.now_ms()
        told = [item for item in inputs if is_aggregate(item.execution_id)]
        items = [item for item in inputs if not is_aggregate(item.execution_id)]
        await self._parts.aggregates.messages(told, at_ms, fold.tick)
        await self._executions.load(item.execution_id for item in items)
        for number, item in enumerate(items, start=1):
            message = fold.decode_inbox(item, at_ms)
            if message is None:
                continue
            await self._prepare(item, message, fold.tick)
            fold.inbox_message(item, message, at_ms)
            if fold.is_full:
                items, rest = items[:number], items[number:]
                break
        await self.commit(fold, {item.partition for item in (*items, *told)})
        return rest

    async def refuse(self, fold: Fold, one: InboxItem, reason: str) -> None:
        """Keeps a message as a dead letter; notifies the caller or starter of an execution that cannot start."""
        at_ms = self._parts.waits.now_ms()
        if is_aggregate(one.execution_id):
            fold.tick.inbox_folded.append(one.seq)
            fold.tick.dead_letters.append(inbox_letter(one, at_ms, reason))
            return
        message = fold.decode_inbox(one, at_ms)
        if message is None:
            return
        fold.tick.dead_letters.append(inbox_letter(one, at_ms, reason))
        fact = message.fact
        if not isinstance(fact, ExecutionRequested) or self._executions.state(one.execution_id):
            return
        told: SendMessage | None = None
        if fact.parent:
            error = ErrorInfo("child_failed", f"playbook {fact.path} cannot start: {reason}", code="quarantined")
            outcome = Outcome("error", error=error)
            end = ChildFinished(one.execution_id, fact.parent.command_id, outcome, fact.parent.path)
            told = SendMessage(IN_NO_JOURNAL, InboxMessage(fact.parent.execution_id, end, FORMAT))
        elif fact.origin:
            error = ErrorInfo("quarantined", f"it cannot start: {reason}")
            told = SendMessage(IN_NO_JOURNAL, ended_message(one.execution_id, fact.origin, "failed", error))
        if told is not None:
            fold.tick.collect(one.execution_id, [told])

    def restore(self, inputs: Sequence[InboxItem]) -> None:
        """Makes the inbox read its messages, which are still in Postgres, again soon, and take them in a fair order."""
        self._has_left_some = True
        self._parts.inbox.expect_messages()
        self._parts.reader.nudge()

    def execution_of(self, one: InboxItem) -> str:
        return one.execution_id

    def partition_of(self, one: InboxItem) -> int:
        return one.partition

    async def _prepare(self, item: InboxItem, message: InboxMessage, tick: PendingTick) -> None:
        fact = message.fact
        if isinstance(fact, ExecutionRequested):
            if not self._executions.is_known(message.execution_id):
                await self._starter.begin(message.execution_id, fact)
            elif fact.origin is not None:
                await self._end_again(item, fact.origin, tick)
            elif fact.parent is not None and fact.rerun is not None and fact.rerun.undoes:
                await self._undone_before(item, fact.parent, tick)
        elif isinstance(fact, FREEING):
            await self._executions.load_freed(message.execution_id)

    async def _end_again(self, item: InboxItem, origin: Origin, tick: PendingTick) -> None:
        """Sends an execution's end again to an aggregate that has started it twice after a restore of Postgres."""
        row = await self._parts.ports.store.execution(item.execution_id)
        for status in ENDED:
            if row is not None and row.status == status:
                error = None if row.error is None else codec.decode_error(row.error)
                told = SendMessage(row.position, ended_message(row.execution_id, origin, status, error))
                tick.send(told, row.execution_id, 0, item.seq)  # the message of the end has a fixed number

    async def _undone_before(self, item: InboxItem, parent: Parent, tick: PendingTick) -> None:
        """Notifies an execution that undoes a call of the outcome of an earlier one that was to undo the same call."""
        store = self._parts.ports.store
        row = await last_undoing(store, item.execution_id)
        (requested,) = await store.journal(item.execution_id, 0, 1) or (None,)
        if row is None or requested is None:
            return
        fact = codec.decode_fact(requested.data)
        asked_by = fact.parent if isinstance(fact, ExecutionRequested) else None
        if asked_by is not None and asked_by.execution_id == parent.execution_id:
            return  # this is its own request again, which its end answers
        outcome = Outcome("ok")
        if row.status != "completed":
            text = f"execution {row.execution_id}, which was to undo it, is {row.status}: once it has ended, "
            text += f"undo what it has left: noetl-stream execution compensate {row.execution_id}"
            outcome = Outcome("error", error=ErrorInfo("child_failed", text, code=NOT_UNDONE))
        end = ChildFinished(item.execution_id, parent.command_id, outcome, parent.path)
        told = SendMessage(row.position, InboxMessage(parent.execution_id, end, FORMAT))
        tick.send(told, row.execution_id, 0, item.seq)
