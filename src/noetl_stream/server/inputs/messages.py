"""Messages of EVENTS as inputs: reports of workers and requests of clients (PROTOCOL §1, §3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from noetl_stream.errors import RequestAnswered
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.messages import AggregateRequest, ClientMessage, Request
from noetl_stream.model.status import Rejection
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.inputs.client_requests import (
    Bodies,
    reject_unanswered,
    reject_unreadable,
    without_messages,
    without_repeated,
    without_unsigned,
)
from noetl_stream.server.inputs.execution_starter import ExecutionStarter
from noetl_stream.server.inputs.source import InputSource
from noetl_stream.server.memory.execution_cache import LOADED_AT_ONCE
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.fold import FREEING, IN_NO_JOURNAL, Fold
from noetl_stream.server.ticks.tick import PendingTick, message_letter, refused_answer


class Messages(InputSource[ReportedMessage]):
    """Messages that the partition reader has read."""

    origin: ClassVar[str] = "events"

    def __init__(self, parts: ServerParts, committer: Committer) -> None:
        super().__init__(parts, committer)
        self._executions = parts.executions
        self._store = parts.ports.store
        self._starter = ExecutionStarter(parts)

    async def take(self) -> Sequence[ReportedMessage]:
        """Returns the messages that have arrived and are not folded yet; waits for one until a timer is due."""
        parts = self._parts
        wait_s = parts.waits.next_in_s(parts.times.housekeeping_s)
        arrived = await parts.reader.take(parts.timers.next_in_s(parts.waits.now_ms(), wait_s))
        own = [message for message in arrived if self._is_next(message)]
        count = self._loaded_at_once(own) if self._executions.evicted_count else len(own)
        parts.reader.restore(own[count:])
        return own[:count]

    async def fold(self, inputs: Sequence[ReportedMessage]) -> Sequence[ReportedMessage]:
        try:
            return await self._fold(inputs, starts_may_repeat=False)
        except RequestAnswered:  # which is rare, and asking beforehand would cost each start a round trip
            await self._executions.reload([message.execution_id for message in inputs])
            return await self._fold(inputs, starts_may_repeat=True)

    async def refuse(self, fold: Fold, one: ReportedMessage, reason: str) -> None:
        """Keeps a message as a dead letter; answers a request with a rejection."""
        body = fold.decode(one)
        if body is not None:
            fold.tick.dead_letters.append(message_letter(one, reason))
        if isinstance(body, ClientMessage) and not await self._store.request(body.execution_id, body.request_id):
            answer = refused_answer(
                body.execution_id, Rejection("quarantined", f"the request cannot be stored: {reason}")
            )
            fold.tick.answer(body.request_id, body.execution_id, answer, IN_NO_JOURNAL)
        fold.tick.moved[one.partition] = (one.sequence, one.at_ms)

    def restore(self, inputs: Sequence[ReportedMessage]) -> None:
        self._parts.reader.restore(inputs)

    def execution_of(self, one: ReportedMessage) -> str:
        return one.execution_id

    def partition_of(self, one: ReportedMessage) -> int:
        """Returns the partition that the subject of a message names, which may differ from its execution's."""
        return one.partition

    def _is_next(self, message: ReportedMessage) -> bool:
        lease = self._parts.ownership.get(message.partition)
        return lease is not None and message.sequence > lease.last_seq

    def _loaded_at_once(self, messages: Sequence[ReportedMessage]) -> int:
        """Returns how many of these messages a turn takes: their executions are loaded, and are in memory together."""
        evicted: set[str] = set()
        for number, message in enumerate(messages):
            if self._executions.is_evicted(message.execution_id):
                evicted.add(message.execution_id)
                if len(evicted) > LOADED_AT_ONCE:
                    return number
        return len(messages)

    async def _fold(self, own: Sequence[ReportedMessage], *, starts_may_repeat: bool) -> Sequence[ReportedMessage]:
        fold = self._parts.new_fold()
        bodies: Bodies = [(message, body) for message in own if (body := fold.decode(message)) is not None]
        signed = without_unsigned(bodies, self._parts.ports.signer)
        folded = await without_repeated(signed, self._store, starts_may_repeat)
        await self._prepare(folded, fold.tick)
        count = fold.fold_messages(folded)
        rest: Sequence[ReportedMessage] = ()
        if count < len(folded):
            cut = own.index(folded[count][0])
            own, rest = own[:cut], own[cut:]
            bodies, signed = without_messages(rest, bodies), without_messages(rest, signed)
            fold.tick.leave_letters(rest)
        left = {message.sequence for message in rest}
        asked = [
            (one.at_ms, body) for one, body in folded if isinstance(body, AggregateRequest) and one.sequence not in left
        ]
        await self._parts.aggregates.requests(asked, fold.tick)
        await reject_unanswered(bodies, signed, self._executions, self._store, fold.tick)
        if fold.tick.dead_letters:
            await reject_unreadable(own, self._store, fold.tick)
        fold.tick.moved = {message.partition: (message.sequence, message.at_ms) for message in own}
        await self.commit(fold)
        return rest

    async def _prepare(self, bodies: Bodies, tick: PendingTick) -> None:
        """Loads what the fold of these messages needs: executions, and the playbooks of new ones."""
        executions = self._executions
        ids = [
            message.execution_id
            for message, body in bodies
            if executions.get(message.execution_id) is None and not isinstance(body, AggregateRequest)
        ]
        if ids:
            await executions.load(ids)
        if executions.has_stubs:
            for message, body in bodies:
                if isinstance(body, Request) and isinstance(body.fact, FREEING):
                    await executions.load_freed(message.execution_id)
        if not ids:
            return
        for message, body in bodies:
            fact = body.fact if isinstance(body, Request) else None
            if isinstance(fact, ExecutionRequested) and not executions.is_known(message.execution_id):
                row = await self._starter.begin(message.execution_id, fact)
                if row is not None:
                    tick.playbooks[row.digest] = row
