"""Client requests that the fold does not answer: repeated ones, and those for unknown executions (PROTOCOL §1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeGuard

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.events import ClientRequest, ExecutionRequested
from noetl_stream.model.ids import is_valid_id, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AggregateRequest, ClientMessage, ReportedBody, Request
from noetl_stream.model.status import Rejection
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.protocol.signed_requests import RequestSigner
from noetl_stream.server.memory.execution_cache import CachedExecution, ExecutionCache
from noetl_stream.server.ticks.fold import IN_NO_JOURNAL
from noetl_stream.server.ticks.tick import PendingTick, refused_answer

Bodies = Sequence[tuple[ReportedMessage, ReportedBody]]


def without_messages(rest: Sequence[ReportedMessage], bodies: Bodies) -> Bodies:
    """Returns ``bodies`` without the messages in ``rest``, which a later tick folds."""
    left = {message.sequence for message in rest}
    return [one for one in bodies if one[0].sequence not in left]


def without_unsigned(bodies: Bodies, signer: RequestSigner) -> Bodies:
    """Returns ``bodies`` without requests that neither a gateway nor the local operator has signed (PROTOCOL §7)."""
    return [one for one in bodies if not isinstance(one[1], ClientMessage) or signer.is_signed(one[0].body)]


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
    """Answers each request the fold has not answered with a rejection; an existing answer is kept.

    Call this after the fold, when the first request has begun its execution.

    Args:
        bodies: All requests that were received.
        folded: The signed ones of these requests.
    """
    signed = {message.sequence for message, _ in folded}
    answered = {(row.execution_id, row.request_id) for row in tick.requests}
    for message, body in bodies:
        if not isinstance(body, ClientMessage):
            continue
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
    """Rejects each request that became a dead letter in this tick, if its ids can be read: else its client would
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
    if isinstance(body, AggregateRequest):  # its tick was committed, and its answer lost since
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
    """Returns whether this start has begun its execution, which answers it once its playbook is evaluated."""
    if not cached.is_stub:
        return cached.state is not None and cached.state.request_id == body.request_id
    first = [] if _is_request(body) else await store.events_named(body.execution_id, ["execution.requested"], limit=1)
    facts = [codec.decode_fact(event.data) for event in first]
    return any(isinstance(fact, ExecutionRequested) and fact.request_id == body.request_id for fact in facts)


def _is_request(body: ReportedBody) -> TypeGuard[ClientMessage]:
    """Returns whether the message is a request that begins no execution, which may be repeated."""
    return isinstance(body, AggregateRequest) or (isinstance(body, Request) and isinstance(body.fact, ClientRequest))
