"""The audit: a call is written before it is performed, its answer afterwards."""

from __future__ import annotations

import logging
from typing import Final
from urllib.parse import unquote

from aiohttp import web
from aiohttp.typedefs import Handler

from noetl_stream.errors import Forbidden, NoetlError, TooBusy, Unauthenticated, Unreachable
from noetl_stream.gateway.access.network import client_of
from noetl_stream.gateway.http.problems import kind_of
from noetl_stream.ports.access import Audit, AuditedAnswer, AuditedCall, Caller, audit_text
from noetl_stream.ports.clock import Clock

log = logging.getLogger(__name__)

REFUSALS_AT_ONCE: Final = 8
"""How many refusals are written at a time: a flood of them must not take the database from others."""


class Auditor:
    """Writes :class:`~noetl_stream.ports.access.Audit`.

    A change whose attempt cannot be written is not made: the error goes to the caller. One whose answer cannot be
    written was made, and its entry stays without an answer.
    """

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock
        self._refusals = 0

    async def recorded(
        self, request: web.Request, operation: str, caller: Caller, handler: Handler
    ) -> web.StreamResponse:
        """Performs a call that changes something, with an entry in the audit."""
        number = await self._audit.begin(self._attempt(request, operation, caller))
        try:
            response = await handler(request)
        except Exception as error:
            await self._answer(number, _answer_of(error))
            raise
        made = unquote(response.headers.get("Location", "").rpartition("/")[2])
        reason = unquote(request.headers.get("X-Reason", ""))
        await self._answer(number, AuditedAnswer(response.status, audit_text(reason), audit_text(made)))
        return response

    async def refused(
        self, request: web.Request, operation: str, caller: Caller | None, error: Unauthenticated | Forbidden
    ) -> None:
        """Records a refused call, and why it was refused.

        Raises:
            TooBusy: too many are being refused at once; this one is not recorded.
        """
        if self._refusals >= REFUSALS_AT_ONCE:
            raise TooBusy("too many calls are being refused", 1.0, hint="is a token wrong somewhere?")
        self._refusals += 1
        try:
            await self._audit.add(self._attempt(request, operation, caller), _answer_of(error))
        except Unreachable as unwritten:
            log.error("a refusal was not recorded: %s %s by %s: %s", request.method, operation, caller, unwritten)
        finally:
            self._refusals -= 1

    def _attempt(self, request: web.Request, operation: str, caller: Caller | None) -> AuditedCall:
        return AuditedCall(
            at_ms=self._clock.now_ms(),
            principal=caller.principal if caller else "",
            role=caller.role if caller else "",
            method=request.method,
            operation=operation,
            target=audit_text("/".join(request.match_info.values())),
            correlation_id=audit_text(request.headers.get("X-Correlation-Id", "")),
            remote=client_of(request),
            idempotency_key=audit_text(request.headers.get("Idempotency-Key", "")),
        )

    async def _answer(self, number: int, answer: AuditedAnswer) -> None:
        try:
            await self._audit.answer(number, answer)
        except NoetlError as error:
            log.error("the answer of audit entry %s (%s) was not recorded: %s", number, answer.status, error)


def _answer_of(error: Exception) -> AuditedAnswer:
    """Only refusals keep their message: that of other errors may repeat what the caller sent."""
    kind = kind_of(error)
    words = str(error) if isinstance(error, Unauthenticated | Forbidden) else kind.name
    return AuditedAnswer(kind.status, audit_text(words))
