"""Requests that begin nothing: the execution exists, begun by another (PROTOCOL §1 *Request rows*)."""

from __future__ import annotations

from collections.abc import Collection

from noetl_stream.model import codec
from noetl_stream.model.messages import Report, Request
from noetl_stream.ports.event_log import ReportedMessage
from noetl_stream.ports.store import RequestRow, Store
from noetl_stream.server.living import LivingExecutions
from noetl_stream.server.tick import PendingTick

IN_NO_JOURNAL = 0
"""The position of a request that changed nothing."""


async def refuse_others(
    bodies: Collection[tuple[ReportedMessage, Request | Report]],
    living: LivingExecutions,
    store: Store,
    tick: PendingTick,
) -> None:
    """Gives each request that did not begin its execution a row that says so; one that has its row keeps that.

    Call it after the fold of ``bodies``: whoever came first has begun the execution by then.
    """
    for message, body in bodies:
        if not isinstance(body, Request):
            continue
        one = living.get(message.execution_id)
        if one is not None and one.state is not None and one.state.request_id == body.request_id:
            continue
        key = (body.execution_id, body.request_id)
        if any((row.execution_id, row.request_id) == key for row in tick.requests) or await store.request(*key):
            continue
        text = f"execution {body.execution_id} exists already: another request has begun it"
        answer = {"ok": False, "execution_id": body.execution_id, "error": text}
        tick.requests.append(RequestRow(body.request_id, body.execution_id, codec.encode(answer), IN_NO_JOURNAL))
