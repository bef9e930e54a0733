"""The last message of a subject, replaced only by who has seen it: of several that replace it, one succeeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from noetl_stream.adapters.nats.api_errors import CHECK_UNDER_WAY, WRONG_LAST_SEQUENCE
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.outbox import Outbox, publish_once
from noetl_stream.adapters.nats.streams import stored_message
from noetl_stream.errors import OutcomeUnknown

EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"


async def replace_last(
    connection: NatsConnection,
    outbox: Outbox,
    stream: str,
    subject: str,
    wanted: Callable[[bytes | None, int], bytes | int],
    headers: Mapping[str, str] | None = None,
) -> int:
    """Stores a message after the last one of its subject, and returns its sequence.

    Args:
        wanted: Called with the last message, ``None`` without one, and its sequence; again if another was stored
            meanwhile. Returns the new message, or what is to be returned instead.

    Raises:
        StoreMissing: the stream does not exist.
        Unreachable: no answer in time.
    """
    while True:
        stored = await stored_message(connection, stream, {"last_by_subj": subject})
        sequence = stored.seq if stored is not None else 0
        body = wanted(stored.data if stored is not None else None, sequence)
        if not isinstance(body, bytes):
            return body
        try:
            return (await publish_once(outbox, subject, body, {EXPECTED: str(sequence), **(headers or {})})).seq
        except OutcomeUnknown:
            continue
        except ApiRefused as error:
            if error.err_code not in CHECK_UNDER_WAY | {WRONG_LAST_SEQUENCE}:
                raise
