"""Messages of EVENTS as inputs: reports of workers and requests of clients (PROTOCOL §1, §3).

Requests that the fold does not answer are answered here: repeated requests, and those for unknown executions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, TypeGuard

from noetl_stream.errors import PayloadRefused, RequestAnswered
from noetl_stream.model.events import ClientRequest, ExecutionRequested
from noetl_stream.model.ids import is_valid_id, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AggregateRequest, ClientMessage, ReportedBody, Request
from noetl_stream.model.status import Rejection
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.inputs.execution_starter import ExecutionStarter
from noetl_stream.server.inputs.fair_queue import Position, size_of
from noetl_stream.server.inputs.source import InputSource
from noetl_stream.server.memory.execution_cache import LOADED_AT_ONCE, CachedExecution, ExecutionCache
from noetl_stream.server.ticks.commit import Committer
from noetl_stream.server.ticks.fold import FREEING, IN_NO_JOURNAL, Fold
from noetl_stream.server.ticks.tick import PendingTick, message_letter, refused_answer

Bodies = Sequence[tuple[ReportedMessage, ReportedBody]]

FEW_AT_ONCE: Final = 64
"""The most messages that a turn takes while namespaces compete, to keep ticks short; and after one that filled a tick,
since more of them are probably as costly.
"""


SHARED_TICK_BYTES: Final = 512 * 1024
"""The most bytes of messages, but for a single one, that a turn takes while namespaces compete: what is written for
large ones holds up those behind them.
"""


def _within_bytes(messages: Sequence[ReportedMessage]) -> int:
    """Returns how many of these messages fit into :data:`SHARED_TICK_BYTES`, one at least."""
    total = 0
    for number, message in enumerate(messages):
        total += len(message.body)
        if total > SHARED_TICK_BYTES and number:
            return number
    return len(messages)


def without_messages(rest: Sequence[ReportedMessage], bodies: Bodies) -> Bodies:
    """Returns ``bodies`` without the messages in ``rest``, which a later tick folds."""
    left = {message.sequence for message in rest}
    return [one for one in bodies if one[0].sequence not in left]


async def without_repeated(bodies: Bodies, store: Store, starts_may_repeat: bool = False) -> Bodies:
    """Returns ``bodies`` without requests received before, in this batch or earlier: no request is evaluated twice.

    Args:
        starts_may_repeat: Whether a start may have the id of an earlier request.
    """
    if not starts_may_repeat and not any(_is_request(body) for _, body in bodies):
        return bodies
    requested = {(body.execution_id, body.request_id) for _, body in bodies if isinstance(body, ClientMessage)}
    answered = await store.answered(requested)
    first = []
    for message, body in bodies:
        if isinstance(body, ClientMessage):
            key = (body.execution_id, body.request_id)
            if key in answered:
                continue
            answered.add(key)
        first.append((message, body))
    return first


async def reject_unanswered(
    bodies: Bodies, folded: Bodies, executions: ExecutionCache, store: Store, tick: PendingTick
) -> None:
    """Rejects each request that the fold has not answered; an existing answer is kept.

    Must be called after the fold, when the first request has begun its execution.

    Args:
        bodies: All received requests.
        folded: The signed ones among them.
    """
    requests = [(message, body) for message, body in bodies if isinstance(body, ClientMessage)]
    signed = {message.sequence for message, _ in folded} if requests else set()
    answered = {(row.execution_id, row.request_id) for row in tick.requests}
    for message, body in requests:
        cached = executions.get(message.execution_id)
        if cached is not None and isinstance(body, Request) and await _has_begun(body, cached, store):
            continue
        key = (body.execution_id, body.request_id)
        if key in answered or await store.request(*key):
            continue
        answered.add(key)
        rejection = await _rejection(body, cached, store) if message.sequence in signed else _UNSIGNED
        answer = refused_answer(body.execution_id, rejection)
        tick.answer(body.request_id, body.execution_id, answer, IN_NO_JOURNAL)


async def reject_unreadable(own: Sequence[ReportedMessage], store: Store, tick: PendingTick) -> None:
    """Rejects each request that became a dead letter in this tick, if its ids can be read: otherwise its client would
    publish it for ever. An existing answer is kept.
    """
    reasons = {letter.source_seq: letter.reason for letter in tick.dead_letters if letter.source == "events"}
    answered = {(row.execution_id, row.request_id) for row in tick.requests}
    for message in own:
        reason = reasons.get(message.sequence)
        key = _key_of(message) if reason is not None else None
        if reason is None or key is None or key in answered or await store.request(*key):
            continue
        answered.add(key)
        rejection = Rejection("unreadable", f"no server here can read the request: {reason}")
        tick.answer(key[1], message.execution_id, refused_answer(message.execution_id, rejection), IN_NO_JOURNAL)


def _key_of(message: ReportedMessage) -> tuple[str, str] | None:
    """Returns the execution and the id of a request; ``None`` for a message that is no request to its execution."""
    try:
        request = codec.decode_signed_request(message.body)
    except PayloadRefused:
        return None
    is_ours = request.execution_id == message.execution_id and message.partition == partition_of(message.execution_id)
    return (request.execution_id, request.request_id) if is_ours and is_valid_id(request.request_id) else None


_UNSIGNED: Final = Rejection(
    "unsigned", "the request is not signed with an access key of this server: give NOETL_ACCESS_KEY the servers' key"
)


async def _rejection(body: ClientMessage, cached: CachedExecution | None, store: Store) -> Rejection:
    execution = f"execution {body.execution_id}"
    if isinstance(body, AggregateRequest):  # its tick is committed, and its answer was lost since
        return Rejection("answer_lost", "what became of the request is not known: ask again")
    if not _is_request(body):
        return Rejection("exists", f"{execution} already exists: another request has begun it")
    if cached is not None and cached.state is not None and cached.state.ended:  # ended in this tick: it has no row yet
        return Rejection("ended", f"{execution} has ended ({cached.state.status})")
    row = await store.execution(body.execution_id)
    if row is None:
        return Rejection("unknown_execution", f"{execution} does not exist")
    return Rejection("ended", f"{execution} has ended ({row.status})")


async def _has_begun(body: Request, cached: CachedExecution, store: Store) -> bool:
    """Returns whether this start has begun its execution, which answers it after evaluating its playbook."""
    if not cached.is_stub:
        return cached.state is not None and cached.state.request_id == body.request_id
    first = [] if _is_request(body) else await store.events_named(body.execution_id, ["execution.requested"], limit=1)
    facts = [codec.decode_fact(event.data) for event in first]
    return any(isinstance(fact, ExecutionRequested) and fact.request_id == body.request_id for fact in facts)


def _is_request(body: ReportedBody) -> TypeGuard[ClientMessage]:
    """Returns whether the message is a request that begins no execution and may be repeated."""
    return isinstance(body, AggregateRequest) or (isinstance(body, Request) and isinstance(body.fact, ClientRequest))


class Messages(InputSource[ReportedMessage]):
    """Messages that the partition reader has read."""

    origin: ClassVar[str] = "events"

    def __init__(self, parts: ServerParts, committer: Committer) -> None:
        super().__init__(parts, committer)
        self._executions = parts.executions
        self._store = parts.ports.store
        self._starter = ExecutionStarter(parts)
        self._unfolded = parts.unfolded
        self._is_costly = False
        self._checked: dict[int, tuple[ReportedMessage, ReportedBody]] = {}
        """The messages that the last tick has left, with their bodies, by sequence. They need not be verified again."""

    async def take(self) -> Sequence[ReportedMessage]:
        """Returns the arrived messages that a turn folds; waits for one until a timer is due."""
        parts = self._parts
        wait_s = parts.waits.next_in_s(parts.times.housekeeping_s)
        arrived = await parts.reader.take(parts.timers.next_in_s(parts.waits.now_ms(), wait_s))
        folded = {lease.id: lease.last_seq for lease in parts.ownership}
        own = [one for one in arrived if one.sequence > folded.get(one.partition, one.sequence)]
        self._unfolded.note_read(own)
        is_costly, self._is_costly = self._is_costly, False
        return own if self._fits(own, is_costly) else self._next_in_turn(own, is_costly)

    def _fits(self, own: Sequence[ReportedMessage], is_costly: bool) -> bool:
        """Returns whether a turn folds all that is there, so that no namespace waits for another."""
        most = self._parts.states.at_once
        if self._unfolded or len(own) > most or self._executions.evicted_count:
            return False
        if size_of(own) > SHARED_TICK_BYTES:
            return False
        is_short = len(own) <= FEW_AT_ONCE
        return is_short or not (is_costly or self._parts.competition.is_on or self._unfolded.would_be_contested(own))

    def _next_in_turn(self, own: Sequence[ReportedMessage], is_costly: bool) -> Sequence[ReportedMessage]:
        """Adds messages to those that wait, and takes what a turn folds."""
        unfolded, competition = self._unfolded, self._parts.competition
        unfolded.add(own)
        if unfolded.is_contested:
            competition.note()
        is_short, is_heavy = is_costly or competition.is_on, unfolded.size > SHARED_TICK_BYTES
        taken = unfolded.take(min(self._parts.states.at_once, FEW_AT_ONCE) if is_short else self._parts.states.at_once)
        count = self._loaded_at_once(taken) if self._executions.evicted_count else len(taken)
        if is_heavy and competition.is_on:
            count = _within_bytes(taken[:count])
        unfolded.restore(taken[count:])
        return taken[:count]

    async def fold(self, inputs: Sequence[ReportedMessage]) -> Sequence[ReportedMessage]:
        try:
            return await self._fold(inputs, starts_may_repeat=False)
        except RequestAnswered:  # rare, and asking beforehand would cost each start a round trip
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
        fold.tick.moved = self._moved([one])
        self._unfolded.note_folded([one])

    def restore(self, inputs: Sequence[ReportedMessage]) -> None:
        self._unfolded.restore(inputs)

    def execution_of(self, one: ReportedMessage) -> str:
        return one.execution_id

    def partition_of(self, one: ReportedMessage) -> int:
        """Returns the partition that the subject of a message names, which may differ from its execution's."""
        return one.partition

    def _loaded_at_once(self, messages: Sequence[ReportedMessage]) -> int:
        """Returns how many of these messages a turn takes: all their executions are loaded and in memory at once."""
        evicted: set[str] = set()
        for number, message in enumerate(messages):
            if self._executions.is_evicted(message.execution_id):
                evicted.add(message.execution_id)
                if len(evicted) > LOADED_AT_ONCE:
                    return number
        return len(messages)

    async def _fold(self, own: Sequence[ReportedMessage], *, starts_may_repeat: bool) -> Sequence[ReportedMessage]:
        fold = self._parts.new_fold()
        bodies, signed = self._decode(own, fold)
        folded = await without_repeated(signed, self._store, starts_may_repeat)
        await self._prepare(folded, fold.tick)
        count = fold.fold_messages(folded)
        rest: Sequence[ReportedMessage] = ()
        self._is_costly = self._is_costly or fold.is_costly
        if count < len(folded):
            cut = own.index(folded[count][0])
            own, rest = own[:cut], own[cut:]
            self._checked = {one[0].sequence: one for one in folded[count:]}
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
        fold.tick.moved = self._moved(own)
        await self.commit(fold)
        self._unfolded.note_folded(own)
        return rest

    def _decode(self, own: Sequence[ReportedMessage], fold: Fold) -> tuple[Bodies, Bodies]:
        """Returns the messages that can be decoded, and those of them that are no requests, or are signed by a gateway
        or the local operator (PROTOCOL §7).
        """
        checked, self._checked = self._checked, {}
        bodies: list[tuple[ReportedMessage, ReportedBody]] = []
        signed: list[tuple[ReportedMessage, ReportedBody]] = []
        for message in own:
            before = checked.get(message.sequence)
            if before is not None and before[0] is message:
                bodies.append(before)
                signed.append(before)
            elif (body := fold.decode(message)) is not None:
                bodies.append((message, body))
                if not isinstance(body, ClientMessage) or self._parts.ports.signer.is_signed(message.body):
                    signed.append((message, body))
        return bodies, signed

    def _moved(self, folded: Sequence[ReportedMessage]) -> dict[int, Position]:
        """Returns the cursors of partitions after a tick; that of a partition may stay where it is."""
        touched = {message.partition for message in folded}
        moved = {lease.id: (lease.last_seq, lease.last_ms) for lease in self._parts.ownership if lease.id in touched}
        for partition, position in self._unfolded.cursors(folded).items():
            moved[partition] = max(position, moved.get(partition, position))
        return moved

    async def _prepare(self, bodies: Bodies, tick: PendingTick) -> None:
        """Loads the executions and new playbooks that the fold of these messages needs."""
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
