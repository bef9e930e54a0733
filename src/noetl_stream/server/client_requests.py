"""Requests that the fold does not answer: told twice, or about an execution that is not there (PROTOCOL §1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from noetl_stream.model.events import ClientRequest
from noetl_stream.model.messages import Report, Request
from noetl_stream.model.rejection import Rejection
from noetl_stream.ports.event_log import ReportedMessage
from noetl_stream.ports.store import Store
from noetl_stream.server.execution_cache import CachedExecution, ExecutionCache
from noetl_stream.server.fold import IN_NO_JOURNAL
from noetl_stream.server.tick import PendingTick, refused

Bodies = Sequence[tuple[ReportedMessage, Request | Report]]


async def first_told(bodies: Bodies, store: Store) -> Bodies:
    """``bodies`` without what was asked of an execution before, here or earlier: no request is evaluated twice."""
    asked = {(body.execution_id, body.request_id) for _, body in bodies if _is_asked(body)}
    if not asked:
        return bodies
    told = await store.answered(asked)
    first = []
    for message, body in bodies:
        if _is_asked(body):
            key = (body.execution_id, body.request_id)
            if key in told:
                continue
            told.add(key)
        first.append((message, body))
    return first


async def refuse_others(bodies: Bodies, executions: ExecutionCache, store: Store, tick: PendingTick) -> None:
    """Gives each request that the fold has not answered a row that says why; one that has its row keeps that.

    Call it after the fold of ``bodies``: whoever came first has begun the execution by then.
    """
    answered = {(row.execution_id, row.request_id) for row in tick.requests}
    for message, body in bodies:
        if not isinstance(body, Request):
            continue
        one = executions.get(message.execution_id)
        if one is not None and one.state is not None and one.state.request_id == body.request_id:
            continue
        key = (body.execution_id, body.request_id)
        if key in answered or await store.request(*key):
            continue
        answered.add(key)
        answer = refused(body.execution_id, await _rejection(body, one, store))
        tick.answer(body.request_id, body.execution_id, answer, IN_NO_JOURNAL)


async def _rejection(body: Request, one: CachedExecution | None, store: Store) -> Rejection:
    execution = f"execution {body.execution_id}"
    if not _is_asked(body):
        return Rejection("exists", f"{execution} exists already: another request has begun it")
    if one is not None and one.state is not None and one.state.ended:  # in this very tick: it has no row yet
        return Rejection("ended", f"{execution} has ended ({one.state.status})")
    row = await store.execution(body.execution_id)
    if row is None:
        return Rejection("unknown_execution", f"there is no {execution}")
    return Rejection("ended", f"{execution} has ended ({row.status})")


def _is_asked(body: Request | Report) -> TypeGuard[Request]:
    return isinstance(body, Request) and isinstance(body.fact, ClientRequest)
