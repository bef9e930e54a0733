"""The audit: a call is recorded before it is performed, its answer afterwards; refusals are sampled."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar
from urllib.parse import unquote

from aiohttp import web
from aiohttp.typedefs import Handler

from noetl_stream.errors import Forbidden, NoetlError, Unauthenticated
from noetl_stream.gateway.access.authentication import client_of
from noetl_stream.gateway.http.connections import address_group
from noetl_stream.gateway.http.problems import kind_of
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.identities import Audit, AuditedAnswer, AuditedCall, Caller, audit_text
from noetl_stream.storage.refusal_audit import Refusal, RefusalAudit

log = logging.getLogger(__name__)

REFUSED: Final = frozenset({400, 401, 403, 413, 415, 429})
"""The answers that count as refusals. Not found and unavailable do not."""

DAY_MS: Final = 24 * 3600 * 1000
TRIM_EVERY_S: Final = 6 * 3600.0


Done = TypeVar("Done")


class Auditor:
    """Writes :class:`~noetl_stream.ports.stores.identities.Audit`.

    A change that cannot be recorded beforehand is not made: the error goes to the caller. If only its answer cannot be
    recorded, the change was made, and its entry stays without an answer.

    Args:
        keep_days: The least number of days for which entries are kept.
        count_left_out: Called for each refusal that gets no entry of its own.

    Attributes:
        refusals: The sample of refused calls.
    """

    def __init__(
        self, audit: Audit, clock: Clock, *, keep_days: int, count_left_out: Callable[[], None] = lambda: None
    ) -> None:
        self._audit = audit
        self._clock = clock
        self._keep_days = keep_days
        self.refusals = RefusalAudit(audit, clock, count_left_out)

    async def recorded(
        self, request: web.Request, operation: str, caller: Caller, handler: Handler
    ) -> web.StreamResponse:
        """Performs a change, with an entry in the audit."""

        async def perform() -> tuple[web.StreamResponse, AuditedAnswer]:
            response = await handler(request)
            made = unquote(response.headers.get("Location", "").rpartition("/")[2])
            reason = unquote(request.headers.get("X-Reason", ""))
            return response, AuditedAnswer(response.status, audit_text(reason), audit_text(made))

        return await self.performed(self.attempt(request, operation, caller), perform)

    async def performed(
        self, attempt: AuditedCall, perform: Callable[[], Awaitable[tuple[Done, AuditedAnswer]]]
    ) -> Done:
        """Returns the result of ``perform`` and records its answer."""
        number = await self._audit.begin(attempt)
        try:
            done, answer = await perform()
        except Exception as error:
            await self._answer(number, _answer_of(error))
            raise
        await self._answer(number, answer)
        return done

    async def refused(self, request: web.Request, operation: str, caller: Caller | None, error: NoetlError) -> None:
        """Records a refused call with the reason, or counts it; errors that are not refusals are not recorded."""
        await self.refused_attempt(self.attempt(request, operation, caller), error)

    async def refused_attempt(self, attempt: AuditedCall, error: NoetlError) -> None:
        """Like :meth:`refused`."""
        if kind_of(error).status in REFUSED:
            who = attempt.principal or address_group(attempt.remote)
            await self.refusals.add(Refusal(who, attempt, _answer_of(error)))

    async def trim(self) -> None:
        """Deletes old entries periodically; never returns."""
        while True:
            try:
                await self._audit.trim(self._clock.now_ms() - self._keep_days * DAY_MS)
            except NoetlError as error:
                log.warning("cannot delete old entries of the audit: %s", error)
            await self._clock.sleep(TRIM_EVERY_S)

    def attempt(self, request: web.Request, operation: str, caller: Caller | None) -> AuditedCall:
        """A call as received."""
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
    """The answer to record. Only refusals keep their message: that of other errors may repeat what the caller sent."""
    kind = kind_of(error)
    words = str(error) if isinstance(error, Unauthenticated | Forbidden) else kind.name
    return AuditedAnswer(kind.status, audit_text(words))
