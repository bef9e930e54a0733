"""The audit of what is done without a gateway, and leaves no other trace of who did it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

from noetl_stream.errors import NoetlError
from noetl_stream.ports.access import Audit, AuditedAnswer, AuditedCall, audit_text
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.problems import problem_kind

log = logging.getLogger(__name__)

Recorded: TypeAlias = Callable[[str, str, str], AbstractAsyncContextManager[None]]
"""Of an operation (its id in the OpenAPI document), its target and who acts: what the operation is done within."""


@asynccontextmanager
async def unrecorded(operation: str, target: str, by: str) -> AsyncIterator[None]:
    """For a gateway, which records each of its calls itself."""
    yield


class AuditRecord:
    """A :data:`Recorded`: the entry is written before the operation, its end afterwards, as a gateway does."""

    def __init__(self, audit: Audit, clock: Clock) -> None:
        self._audit = audit
        self._clock = clock

    @asynccontextmanager
    async def __call__(self, operation: str, target: str, by: str) -> AsyncIterator[None]:
        """
        Raises:
            Unreachable: the entry cannot be written; nothing was done.
        """
        call = AuditedCall(
            at_ms=self._clock.now_ms(),
            principal=audit_text(by),
            role="",
            method="",
            operation=operation,
            target=audit_text(target),
            correlation_id="",
            remote="",
            idempotency_key="",
        )
        number = await self._audit.begin(call)
        try:
            yield
        except Exception as error:
            kind = problem_kind(error)
            await self._answer(number, AuditedAnswer(kind.status, kind.name))
            raise
        await self._answer(number, AuditedAnswer(204 if operation.startswith("delete") else 200))

    async def _answer(self, number: int, answer: AuditedAnswer) -> None:
        try:
            await self._audit.answer(number, answer)
        except NoetlError as error:
            log.error("the audit lacks how entry %s ended (%s): %s", number, answer.status, error)
