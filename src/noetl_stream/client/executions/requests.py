"""Asking something of an execution that exists: a patch, a signal, a cancel … answered by the fold (PROTOCOL §4)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from noetl_stream.concurrency import first_done
from noetl_stream.errors import NoetlError, OutcomeUnknown
from noetl_stream.model import codec
from noetl_stream.model.events import InterventionFact
from noetl_stream.model.messages import Request
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.event_log import EventLog
from noetl_stream.ports.operations.executions import AcceptedDocument

ANSWER_WAITS_S: Final = (0.05, 2.0)
"""How long a pushed answer is waited for before it is looked up: at first briefly, since it may be there already."""

LOOK_UP_S: Final = 2.0


class RequestRefused(NoetlError):
    """The fold said no: the execution is unknown, has ended, or cannot take this. ``code`` says which, for programs."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.code = code


async def ask_of(
    log: EventLog,
    bus: Bus,
    clock: Clock,
    execution_id: str,
    fact: InterventionFact,
    unanswered: Callable[[], Awaitable[None]] | None = None,
) -> AcceptedDocument:
    """Publishes ``fact`` until the fold has answered it.

    Args:
        unanswered: Called each time no server has answered, before the request is published again.

    Raises:
        RequestRefused: the fold said no.
    """
    body = codec.encode(Request(execution_id, fact.request_id, fact))
    message_id = f"{execution_id}.{fact.request_id}"
    pushed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def take(_subject: str, answer: bytes, _reply: str) -> None:
        if not pushed.done():
            pushed.set_result(answer)

    subscription = await bus.listen(subjects.answered(execution_id, fact.request_id), take)
    try:
        while True:
            # Of unknown outcome: published again under the same request id, unless the fold turns out to know it.
            with contextlib.suppress(OutcomeUnknown):
                await log.publish_reported(execution_id, message_id, body)
            for wait_s in ANSWER_WAITS_S:
                if await first_done([pushed], clock.sleep(wait_s)):
                    return _granted(codec.decode_json(pushed.result()))
                # Answered before we listened, or the push was lost.
                reply = await bus.ask(subjects.ask_request(execution_id, fact.request_id), b"", LOOK_UP_S)
                known = codec.decode_json(reply) if reply is not None else None
                if known is None:
                    break
                if known["known"]:
                    return _granted(known["answer"])
            if unanswered is not None:
                await unanswered()
    finally:
        await subscription.close()


def _granted(answer: dict[str, Any]) -> AcceptedDocument:
    if not answer["ok"]:
        raise RequestRefused(answer["error"], answer.get("code", ""))
    return AcceptedDocument(answer["execution_id"], answer.get("position"), answer.get("already", False))
