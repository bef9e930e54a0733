"""The durable consumer of a pool: made by servers, found by workers.

A worker may not make it: such a request could also name a subject that JetStream then sends the commands to, and
JetStream may publish anywhere.
"""

from __future__ import annotations

import contextlib
from typing import Final

import msgspec

from noetl_stream.adapters.nats.connection import API_TIMEOUT_S, ApiRefused, NatsConnection
from noetl_stream.adapters.nats.protocol import CONSUMER_NOT_FOUND, NANOSECONDS, milliseconds
from noetl_stream.adapters.nats.streams import stream_api
from noetl_stream.errors import Unreachable, UsageError
from noetl_stream.model.ids import is_valid_id
from noetl_stream.ports.subjects import ASK_QUEUE, COMMANDS

CONSUMER_PREFIX: Final = "pool-"
"""The consumer of a pool is named after it."""

MAX_ACK_PENDING: Final = 1_000_000
MAX_WAITING: Final = 8192


class _ConsumerInfo(msgspec.Struct):
    ts: str


def consumer_of(pool: str) -> str:
    """The name of a pool's consumer.

    Raises:
        UsageError: the pool's name is not valid.
    """
    if not is_valid_id(pool):
        raise UsageError(f"{pool!r} is not a valid pool name", hint="use 1 to 64 letters, digits, '_' and '-'")
    return f"{CONSUMER_PREFIX}{pool}"


async def make_consumer(connection: NatsConnection, pool: str, ack_wait_s: float) -> None:
    """Makes the consumer of a pool, if it does not exist. ``ack_wait_s`` is the lease of a delivery.

    Raises:
        StoreMissing: the stream does not exist.
        UsageError: the pool's name is not valid.
        Unreachable: no answer in time.
    """
    name, filter_subject = consumer_of(pool), f"noetl.commands.{pool}.>"
    config = {
        "durable_name": name,
        "name": name,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": round(ack_wait_s * NANOSECONDS),
        "max_deliver": -1,
        "max_ack_pending": MAX_ACK_PENDING,
        "max_waiting": MAX_WAITING,
        "filter_subject": filter_subject,
    }
    subject = f"CONSUMER.CREATE.{COMMANDS}.{name}.{filter_subject}"
    await stream_api(connection, COMMANDS, subject, {"stream_name": COMMANDS, "config": config})


async def find_consumer(connection: NatsConnection, pool: str) -> int | None:
    """The server's time in milliseconds, as the pool's consumer tells it; ``None`` if there is no such consumer.

    Raises:
        StoreMissing: the stream does not exist.
        UsageError: the pool's name is not valid.
        Unreachable: no answer in time.
    """
    try:
        answer = await stream_api(connection, COMMANDS, f"CONSUMER.INFO.{COMMANDS}.{consumer_of(pool)}")
    except ApiRefused as error:
        if error.err_code == CONSUMER_NOT_FOUND:
            return None
        raise
    return milliseconds(msgspec.json.decode(answer, type=_ConsumerInfo).ts)


async def ensure_consumer(connection: NatsConnection, pool: str) -> int:
    """Like :func:`find_consumer`; a server is asked for a consumer that does not exist.

    Raises:
        Unreachable: also if no server has made it.
    """
    found = await find_consumer(connection, pool)
    if found is None:
        with contextlib.suppress(TimeoutError):
            await connection.request(f"{ASK_QUEUE}.{pool}", b"", API_TIMEOUT_S)
        found = await find_consumer(connection, pool)
    if found is None:
        raise Unreachable(f"pool {pool} has no queue: no server has made it", hint="start a server")
    return found
