"""Two ways to publish: once, with an answer in time or an unknown outcome; and held, resent until acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from noetl_stream.adapters.nats.connection import ApiRefused
from noetl_stream.adapters.nats.outbox import MESSAGE_ID, Outbox, PendingPublish
from noetl_stream.adapters.nats.protocol import STORE_REFUSED, ApiError, PublishAck
from noetl_stream.errors import NoetlError, OutcomeUnknown

log = logging.getLogger(__name__)

_FULL = "the stream is full: raise its limits, or make room on the server's disk"
_NO_STREAM = "run `noetl-stream stream ensure`"


class SinglePublish:
    """One message. ``answer`` ends with the acknowledgement, or with OutcomeUnknown or ApiRefused."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[PublishAck] = asyncio.get_running_loop().create_future()

    def acknowledged(self, sent: PendingPublish, ack: PublishAck) -> None:
        if not self.answer.done():
            self.answer.set_result(ack)

    def refused(self, sent: PendingPublish, error: ApiError) -> bool:
        self._fail(ApiRefused(sent.subject, error, hint=hint_for(error)))
        return False

    def overdue(self, sent: PendingPublish, reason: str) -> bool:
        self._fail(OutcomeUnknown(f"{sent.subject}: {reason}", hint="publish again under the same message id"))
        return False

    def abandoned(self, error: NoetlError) -> None:
        self._fail(error)

    def _fail(self, error: NoetlError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


async def publish_once(outbox: Outbox, subject: str, body: bytes, headers: Mapping[str, str]) -> PublishAck:
    """Publishes one message and returns its acknowledgement.

    Raises:
        ApiRefused: the stream rejected it; the error says why.
        OutcomeUnknown: no answer in time, or the connection was lost meanwhile.
        PayloadRefused: too large.
    """
    once = SinglePublish()
    outbox.put(subject, body, headers, once)
    return await once.answer


class HeldBatch:
    """Messages that are resent until each is acknowledged; ``all_acknowledged`` completes then."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._missing = 0
        self._complaint = ""
        self.all_acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, subject: str, body: bytes, message_id: str) -> None:
        self._missing += 1
        self._outbox.put(subject, body, {MESSAGE_ID: message_id}, self)

    def seal(self) -> asyncio.Future[None]:
        """Closes the batch; returns the future that completes with the last acknowledgement."""
        if not self._missing and not self.all_acknowledged.done():
            self.all_acknowledged.set_result(None)
        return self.all_acknowledged

    def acknowledged(self, sent: PendingPublish, ack: PublishAck) -> None:
        self._missing -= 1
        self.seal()

    def refused(self, sent: PendingPublish, error: ApiError) -> bool:
        if error.description != self._complaint:
            self._complaint = error.description
            log.warning("will retry: %s", ApiRefused(sent.subject, error, hint=hint_for(error)))
        return True

    def overdue(self, sent: PendingPublish, reason: str) -> bool:
        return True

    def abandoned(self, error: NoetlError) -> None:
        if not self.all_acknowledged.done():
            self.all_acknowledged.set_exception(error)
            # Raised to whoever waits; if nobody does, the role is ending and asyncio need not warn.
            self.all_acknowledged.exception()


def hint_for(error: ApiError) -> str | None:
    """A hint for fixing a rejected publish."""
    if error.err_code == STORE_REFUSED or "insufficient" in error.description:
        return _FULL
    return _NO_STREAM if error.err_code == 0 else None
