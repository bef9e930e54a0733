"""The durable consumers of a pool: made by servers, found by workers.

A worker may not make them: such a request could also name a subject to which JetStream then sends the commands, and
JetStream may publish anywhere.

The consumer named after the pool takes all its commands until one has a priority other than the default. From then on
each such priority has its own consumer, and the pool's takes the rest. A work queue has one consumer for each subject,
so no two deliver the same command.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from noetl_stream.adapters.nats.api_errors import CONSUMER_UNSTORED, SUBJECTS_OVERLAP
from noetl_stream.adapters.nats.connections.connection import API_TIMEOUT_S, ApiRefused, NatsConnection
from noetl_stream.adapters.nats.protocol import NANOSECONDS, milliseconds
from noetl_stream.adapters.nats.streams import ConsumerInfo, consumer_info, stream_api, stream_info
from noetl_stream.concurrency import for_each
from noetl_stream.errors import NoetlError, Unreachable, UsageError
from noetl_stream.model.ids import is_valid_id
from noetl_stream.model.priorities import DEFAULT_PRIORITY, PRIORITIES
from noetl_stream.protocol.subjects import ASK_QUEUE, COMMANDS, NEW_PRIORITY, commands_of, commands_without_priority

log = logging.getLogger(__name__)

CONSUMER_PREFIX: Final = "pool-"
"""The prefix of a consumer's name, before the pool."""

PRIORITY_MARK: Final = "="
"""Separates pool and priority in a consumer's name; no pool's name contains it."""

MAX_ACK_PENDING: Final = 1_000_000
MAX_WAITING: Final = 8192

_READS_PRIORITIES: Final = "noetl_priorities"
"""The key in the metadata of a pool's consumer which records that workers take from all its priorities. Workers of
version 0.3 take from the consumer of the pool only.
"""

_ALL: Final = "all"
_SUBJECTS: Final = ("filter_subject", "filter_subjects")

OTHER_PRIORITIES: Final = tuple(priority for priority in PRIORITIES if priority != DEFAULT_PRIORITY)


class PoolConsumers(NamedTuple):
    """The consumers of a pool by priority, and the server's time in milliseconds after they were found."""

    consumers: Mapping[int, str]
    server_ms: int


def consumer_of(pool: str, priority: int = DEFAULT_PRIORITY) -> str:
    """Returns the name of the consumer of a pool, or of one of its other priorities.

    Raises:
        UsageError: the pool's name is not valid.
    """
    if not is_valid_id(pool):
        raise UsageError(f"{pool!r} is not a valid pool name", hint="use 1 to 64 letters, digits, '_' and '-'")
    own = "" if priority == DEFAULT_PRIORITY else f"{PRIORITY_MARK}{priority:d}"
    return f"{CONSUMER_PREFIX}{pool}{own}"


def pool_in(consumer: str) -> tuple[str, int] | None:
    """Returns the pool and priority that a consumer is named after, if any."""
    pool, _, priority = consumer.removeprefix(CONSUMER_PREFIX).partition(PRIORITY_MARK)
    return (pool, int(priority or DEFAULT_PRIORITY)) if consumer.startswith(CONSUMER_PREFIX) else None


async def make_consumer(connection: NatsConnection, pool: str, ack_wait_s: float) -> None:
    """Makes the consumer of a pool, if missing, for workers that take from all priorities, with this delivery lease.

    Raises:
        StoreMissing: the stream does not exist.
        UsageError: the pool's name is not valid.
        Unreachable: no answer in time.
    """
    name = consumer_of(pool)
    config = await _config(connection, name, ack_wait_s)
    try:
        await _make(connection, name, [_all_commands(pool)], config)
    except ApiRefused as error:
        if error.err_code != SUBJECTS_OVERLAP:
            raise
        await _make(connection, name, await _without_others(connection, pool), config)


async def make_consumer_of_priority(connection: NatsConnection, pool: str, priority: int, ack_wait_s: float) -> bool:
    """Makes the consumer of a priority other than the default, if it does not exist, and tells the pool's workers.
    Returns whether commands may have this priority: not while the pool has only had workers of version 0.3.

    Raises:
        StoreMissing: the stream does not exist.
        UsageError: the pool's name is not valid.
        Unreachable: no answer in time.
    """
    if await consumer_info(connection, COMMANDS, consumer_of(pool, priority)) is not None:
        return True
    known = await consumer_info(connection, COMMANDS, consumer_of(pool))
    if known is not None and _READS_PRIORITIES not in known.metadata:
        return False
    for name, subjects in (
        (consumer_of(pool), await _without_others(connection, pool)),
        (consumer_of(pool, priority), [commands_of(pool, priority)]),
    ):
        await _make(connection, name, subjects, await _config(connection, name, ack_wait_s))
    connection.wire.send(f"{NEW_PRIORITY}.{pool}", b"")
    return True


def _all_commands(pool: str) -> str:
    return f"noetl.commands.{pool}.>"


async def _without_others(connection: NatsConnection, pool: str) -> Sequence[str]:
    """Returns the pool's subjects, with version 0.2's only if it has commands: a second costs a tenth per command."""
    older = commands_without_priority(pool)
    found = await stream_info(connection, COMMANDS, {"subjects_filter": older})
    return (commands_of(pool, DEFAULT_PRIORITY), *([older] if found.state.subjects else []))


async def _config(connection: NatsConnection, name: str, ack_wait_s: float) -> Mapping[str, Any]:
    """Returns the settings of a consumer without its subjects; those of a new one, if it does not exist."""
    present = await consumer_info(connection, COMMANDS, name)
    if present is not None:
        metadata = {**present.metadata, _READS_PRIORITIES: _ALL}
        return {key: value for key, value in present.config.items() if key not in _SUBJECTS} | {"metadata": metadata}
    return {
        "durable_name": name,
        "name": name,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": round(ack_wait_s * NANOSECONDS),
        "max_deliver": -1,
        "max_ack_pending": MAX_ACK_PENDING,
        "max_waiting": MAX_WAITING,
        "metadata": {_READS_PRIORITIES: _ALL},
    }


async def _make(connection: NatsConnection, name: str, subjects: Sequence[str], config: Mapping[str, Any]) -> None:
    only = subjects[0] if len(subjects) == 1 else ""
    request = f"CONSUMER.CREATE.{COMMANDS}.{name}" + (f".{only}" if only else "")
    chosen: Mapping[str, Any] = {"filter_subject": only} if only else {"filter_subjects": subjects}

    async def make(**more: Any) -> None:
        wanted = {**config, **chosen, **more}
        await stream_api(connection, COMMANDS, request, {"stream_name": COMMANDS, "config": wanted})

    try:
        await make()
    except ApiRefused as error:
        if error.err_code not in CONSUMER_UNSTORED:
            raise
        # Deliveries of the former one are known elsewhere: acknowledged commands are gone, others are asked for again.
        await make(mem_storage=True)
        log.error(
            "NATS cannot read its files of the consumer %s of COMMANDS: it is made again, and kept in memory. "
            "To keep it on disk, stop NATS, and move the folder streams/COMMANDS/obs/%s away",
            name, name,
        )  # fmt: skip


async def find_consumer(connection: NatsConnection, pool: str) -> int | None:
    """Returns the server's time in milliseconds, from the pool's consumer; ``None`` without such a consumer.

    Raises:
        StoreMissing: the stream does not exist.
        UsageError: the pool's name is not valid.
        Unreachable: no answer in time.
    """
    found = await consumer_info(connection, COMMANDS, consumer_of(pool))
    return None if found is None else milliseconds(found.ts)


async def ensure_consumers(connection: NatsConnection, pool: str) -> PoolConsumers:
    """Returns the consumers of a pool; asks a server for the pool's own, if that is missing or of version 0.3.

    Raises:
        StoreMissing: the stream does not exist.
        Unreachable: also if no server has made it.
    """
    found = await consumer_info(connection, COMMANDS, consumer_of(pool))
    if found is None or _READS_PRIORITIES not in found.metadata:
        with contextlib.suppress(TimeoutError):
            await connection.request(f"{ASK_QUEUE}.{pool}", b"", API_TIMEOUT_S)
        found = await consumer_info(connection, COMMANDS, consumer_of(pool))
    if found is None:
        raise Unreachable(f"pool {pool} has no queue: no server has made it", hint="start a server")
    return await _all_of(connection, pool, found)


async def find_consumers(connection: NatsConnection, pool: str) -> PoolConsumers | None:
    """Finds consumers like :func:`ensure_consumers`; ``None`` if the pool's own does not exist."""
    found = await consumer_info(connection, COMMANDS, consumer_of(pool))
    return None if found is None else await _all_of(connection, pool, found)


async def _all_of(connection: NatsConnection, pool: str, own: ConsumerInfo) -> PoolConsumers:
    consumers, server_ms = {DEFAULT_PRIORITY: consumer_of(pool)}, [milliseconds(own.ts)]
    if own.config.get("filter_subject") == _all_commands(pool):
        return PoolConsumers(consumers, *server_ms)

    async def find(priority: int) -> None:
        name = consumer_of(pool, priority)
        try:
            found = await consumer_info(connection, COMMANDS, name)
        except NoetlError as error:  # also if this user's rights are those of version 0.3
            log.warning("pool %s: priority %d is looked for again later: %s", pool, priority, error)
            return
        if found is not None:
            consumers[priority] = name
            server_ms.append(milliseconds(found.ts))

    await for_each(OTHER_PRIORITIES, find)
    return PoolConsumers(consumers, max(server_ms))
