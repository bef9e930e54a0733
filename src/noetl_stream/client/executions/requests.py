"""Asking something of an execution that exists: a patch, a signal, a cancel … answered by the fold (PROTOCOL §4)."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from noetl_stream.errors import NoetlError, OutcomeUnknown
from noetl_stream.model import codec
from noetl_stream.model.events import InterventionFact
from noetl_stream.model.messages import Request
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.event_log import EventLog
from noetl_stream.ports.operations.executions import AcceptedDocument

ANSWER_WAIT_S: Final = 2.0
LOOK_S: Final = 0.05
LOOKS: Final = 40
"""How often the answer is looked for before the request is published again."""


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
    subject = subjects.ask_request(execution_id, fact.request_id)
    while True:
        # Of unknown outcome: published again under the same request id, unless the fold turns out to know it.
        with contextlib.suppress(OutcomeUnknown):
            await log.publish_reported(execution_id, message_id, body)
        for _ in range(LOOKS):
            reply = await bus.ask(subject, b"", ANSWER_WAIT_S)
            known = codec.decode_json(reply) if reply is not None else None
            if known is None:
                break
            if known["known"]:
                return _granted(known["answer"])
            await clock.sleep(LOOK_S)
        await clock.sleep(LOOK_S)  # a server that cannot reach Postgres says so at once
        if unanswered is not None:
            await unanswered()


def _granted(answer: dict[str, Any]) -> AcceptedDocument:
    if not answer["ok"]:
        raise RequestRefused(answer["error"], answer.get("code", ""))
    return AcceptedDocument(answer["execution_id"], answer.get("position"), answer.get("already", False))
