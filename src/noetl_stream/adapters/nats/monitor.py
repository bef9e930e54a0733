"""The disks of nats-servers, by their monitoring addresses.

https://docs.nats.io/running-a-nats-service/nats_admin/monitoring
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import aiohttp
import msgspec

from noetl_stream.errors import Unreachable
from noetl_stream.ports.self_reports import StoreUse

ANSWER_S: Final = 3.0
MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
NANOSECONDS: Final = 1e9


class NatsDisks(msgspec.Struct, frozen=True):
    """The disk settings and use of nats-servers.

    Attributes:
        sync_s: The longest ``sync_interval`` of them, in seconds; 0 if all sync every message.
        keeps_copies_apart: Whether all place copies of a stream on servers with different tags.
        stores: The bytes that each stores, and may store (``max_file_store``).
        failures: The reasons why servers are unhealthy, such as a stream that cannot be written, each with the server's
            address.
    """

    sync_s: float
    keeps_copies_apart: bool
    stores: Sequence[StoreUse]
    failures: Sequence[str] = ()


class _Health(msgspec.Struct):
    error: str = ""


class _JetStreamConfig(msgspec.Struct):
    sync_interval: int = 0
    sync_always: bool = False
    unique_tag: str = ""
    max_storage: int = 0


class _JetStreamStats(msgspec.Struct):
    storage: int = 0


class _JetStream(msgspec.Struct):
    config: _JetStreamConfig | None = None
    stats: _JetStreamStats = msgspec.field(default_factory=_JetStreamStats)


class _Varz(msgspec.Struct):
    jetstream: _JetStream = msgspec.field(default_factory=_JetStream)


async def read_disks(monitors: Sequence[str]) -> NatsDisks:
    """Reads all monitoring addresses.

    Raises:
        Unreachable: one does not answer in time, or reports nothing of JetStream.
    """
    timeout = aiohttp.ClientTimeout(ANSWER_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        found = await asyncio.gather(*(_read(session, monitor) for monitor in monitors))
        failures = await asyncio.gather(*(_failure(session, monitor) for monitor in monitors))
    return NatsDisks(
        sync_s=max(0.0 if one.sync_always else one.sync_interval / NANOSECONDS for one, _ in found),
        keeps_copies_apart=all(one.unique_tag for one, _ in found),
        stores=[
            StoreUse(f"nats-server {monitor.partition('://')[2]}", stats.storage, config.max_storage or None)
            for monitor, (config, stats) in zip(monitors, found, strict=True)
        ],
        failures=[one for one in failures if one],
    )


async def _read(session: aiohttp.ClientSession, monitor: str) -> tuple[_JetStreamConfig, _JetStreamStats]:
    try:
        async with session.get(f"{monitor}/varz", allow_redirects=False) as answer:
            found = msgspec.json.decode(await _bounded(answer), type=_Varz).jetstream
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
        raise _unreachable(monitor, str(error) or "no answer in time") from None
    if found.config is None:
        raise _unreachable(monitor, "it tells nothing of JetStream")
    return found.config, found.stats


async def _failure(session: aiohttp.ClientSession, monitor: str) -> str:
    try:
        async with session.get(f"{monitor}/healthz", allow_redirects=False) as answer:
            error = msgspec.json.decode(await _bounded(answer), type=_Health).error
    except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError):
        return ""
    return f"nats-server {monitor.partition('://')[2]} says: {error}" if error else ""


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError(f"the answer has more than {MAX_ANSWER_BYTES} bytes")
    return bytes(body)


def _unreachable(monitor: str, why: str) -> Unreachable:
    return Unreachable(
        f"{monitor}/varz does not tell how NATS writes to its disk: {why}", hint="see NOETL_NATS_MONITOR"
    )
