"""NATS's diagnosis of itself and of the streams, and the metrics of a process's connection to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from noetl_stream.adapters.certificates import certificate_ends_ms
from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.protocol import NANOSECONDS
from noetl_stream.adapters.nats.streams import differing_settings, stream_api
from noetl_stream.errors import StoreMissing
from noetl_stream.ports.self_reports import NatsFacts, NatsStorage, StreamFacts
from noetl_stream.telemetry.measures import Metric, Reading

FAR_BEHIND: Final = 1_000
"""How many of the leader's last writes a copy may lack before it counts as behind."""

SILENT_S: Final = 5.0
"""How long a copy may be silent to its leader before it counts as away. It reports each second; NATS waits longer.

A new leader that has not heard from a copy yet says 0, for ever if the copy died as the leader.
"""

CONNECTED: Final = Metric("gauge", "noetl_nats_connected", "1 while the process is connected to NATS, else 0.")
RECONNECTS: Final = Metric("counter", "noetl_nats_reconnects", "How often the connection to NATS was restored.")
RETRIES: Final = Metric(
    "counter",
    "noetl_nats_publish_retries",
    "Messages sent again, because JetStream has not acknowledged them, by stream.",
    ("stream",),
)
WRITTEN: Final = Metric("counter", "noetl_objects_written_bytes", "Bytes of large values put into the object store.")
READ: Final = Metric("counter", "noetl_objects_read_bytes", "Bytes of large values read from the object store.")


class _Copy(msgspec.Struct):
    name: str
    active: int = 0
    current: bool = False
    offline: bool = False
    lag: int = 0

    @property
    def is_away(self) -> bool:
        is_silent = self.active > SILENT_S * NANOSECONDS or (self.active == 0 and not self.current)
        return self.offline or is_silent or self.lag > FAR_BEHIND


class _Cluster(msgspec.Struct):
    replicas: list[_Copy] = []


class _State(msgspec.Struct):
    bytes: int = 0
    messages: int = 0


class _StreamAnswer(msgspec.Struct):
    config: dict[str, Any]
    state: _State
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)
    ts: datetime | None = None


class _Limits(msgspec.Struct):
    max_storage: int = -1


class _Account(msgspec.Struct):
    storage: int = 0
    limits: _Limits = msgspec.field(default_factory=_Limits)


class NatsOwnDiagnosis:
    """:class:`~noetl_stream.ports.self_reports.NatsDiagnosis`."""

    def __init__(self, connection: NatsConnection) -> None:
        self._connection = connection

    async def facts(self) -> NatsFacts:
        await self._connection.flush()
        client = self._connection.client
        info = client._server_info  # noqa: SLF001  nats-py shows neither the cluster nor the transport
        return NatsFacts(
            version=str(info.get("version", "")),
            user=self._connection.identity,
            cluster=str(info.get("cluster", "")),
            certificate_ends_ms=certificate_ends_ms(client._transport._io_writer.transport),  # type: ignore[union-attr]  # noqa: SLF001
        )

    async def stream(self, name: str) -> StreamFacts:
        try:
            answer = await stream_api(self._connection, name, f"STREAM.INFO.{name}")
        except StoreMissing:
            return StreamFacts(name)
        found = msgspec.json.decode(answer, type=_StreamAnswer)
        bound = found.config.get("max_bytes", -1)
        return StreamFacts(
            name,
            exists=True,
            differs=differing_settings(name, found.config),
            size_bytes=found.state.bytes,
            max_bytes=bound if bound > 0 else None,
            messages=found.state.messages,
            now_ms=None if found.ts is None else int(found.ts.timestamp() * 1000),
            replicas=found.config.get("num_replicas", 1),
            away=[copy.name for copy in found.cluster.replicas if copy.is_away],
        )

    async def storage(self) -> NatsStorage:
        account = msgspec.json.decode(await self._connection.api("INFO"), type=_Account)
        bound = account.limits.max_storage
        return NatsStorage(account.storage, bound if bound >= 0 else None)


def nats_readings(
    connection: NatsConnection, log: NatsEventLog, queue: NatsCommandQueue, blobs: NatsBlobs
) -> Sequence[Reading]:
    retries = {"EVENTS": log.retries, "COMMANDS": queue.retries, "OBJECTS": blobs.retries}
    return [
        CONNECTED.read(connection.is_connected),
        RECONNECTS.read(connection.line - 1),
        RETRIES.read_each(retries),
        WRITTEN.read(blobs.written_bytes),
        READ.read(blobs.read_bytes),
    ]
