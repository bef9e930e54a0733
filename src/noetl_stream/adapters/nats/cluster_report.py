"""NATS's diagnosis of itself and of the streams, and the metrics of a process's connection to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from noetl_stream.adapters.certificates import certificate_ends_ms
from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.adapters.nats.streams import differing_settings, stream_info
from noetl_stream.errors import StoreMissing
from noetl_stream.ports.self_reports import NatsFacts, NatsStorage, StreamFacts
from noetl_stream.settings.servers import NatsSync
from noetl_stream.telemetry.measures import Metric, Reading

if TYPE_CHECKING:
    from noetl_stream.adapters.nats.monitor import NatsDisks

CONNECTED: Final = Metric("gauge", "noetl_nats_connected", "1 while the process is connected to NATS, else 0.")
RECONNECTS: Final = Metric("counter", "noetl_nats_reconnects", "How often the connection to NATS was restored.")
RETRIES: Final = Metric(
    "counter",
    "noetl_nats_publish_retries",
    "Messages sent again, because JetStream has not acknowledged them, by stream.",
    ("stream",),
)
REFUSALS: Final = Metric(
    "counter",
    "noetl_nats_publish_refusals",
    "Messages that JetStream has refused to store, by stream and by its code.",
    ("stream", "code"),
)
REFUSED: Final = Metric(
    "gauge",
    "noetl_nats_messages_refused",
    "Messages that JetStream has refused and that are sent again until it stores them, by stream.",
    ("stream",),
)
WRITTEN: Final = Metric("counter", "noetl_objects_written_bytes", "Bytes of large values put into the object store.")
READ: Final = Metric("counter", "noetl_objects_read_bytes", "Bytes of large values read from the object store.")


class _Limits(msgspec.Struct):
    max_storage: int = -1


class _Account(msgspec.Struct):
    storage: int = 0
    limits: _Limits = msgspec.field(default_factory=_Limits)


class NatsOwnDiagnosis:
    """:class:`~noetl_stream.ports.self_reports.NatsDiagnosis`."""

    def __init__(self, connection: NatsConnection, sync: NatsSync) -> None:
        self._connection, self._sync = connection, sync

    async def facts(self) -> NatsFacts:
        await self._connection.flush()
        told = await self._disks()
        client = self._connection.client
        info = client._server_info  # noqa: SLF001  nats-py shows neither the cluster nor the transport
        return NatsFacts(
            version=str(info.get("version", "")),
            user=self._connection.identity,
            cluster=str(info.get("cluster", "")),
            certificate_ends_ms=certificate_ends_ms(client._transport._io_writer.transport),  # type: ignore[union-attr]  # noqa: SLF001
            sync_s=self._sync.interval_s if told is None else told.sync_s,
            keeps_copies_apart=None if told is None else told.keeps_copies_apart,
        )

    async def _disks(self) -> NatsDisks | None:
        if not self._sync.monitors:
            return None
        from noetl_stream.adapters.nats.monitor import read_disks  # the roles, which use this module, start faster

        return await read_disks(self._sync.monitors)

    async def stream(self, name: str) -> StreamFacts:
        try:
            found = await stream_info(self._connection, name)
        except StoreMissing:
            return StreamFacts(name)
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
            acknowledges_early=found.config.get("persist_mode") == "async",
        )

    async def storage(self) -> NatsStorage:
        account = msgspec.json.decode(await self._connection.api("INFO"), type=_Account)
        bound = account.limits.max_storage
        told = await self._disks()
        servers, failures = ((), ()) if told is None else (told.stores, told.failures)
        return NatsStorage(account.storage, bound if bound >= 0 else None, servers, failures)

    async def stored_since(self, stream: str, from_ms: int) -> int:
        last = (await stream_info(self._connection, stream)).state.last_seq
        wanted = {"start_time": datetime.fromtimestamp(from_ms / 1000, UTC).isoformat(), "batch": 1}
        fields = await self._connection.direct_get(stream, wanted)
        return 0 if fields is None else max(0, last + 1 - int(fields["Nats-Sequence"]))


def nats_readings(
    connection: NatsConnection, log: NatsEventLog, queue: NatsCommandQueue, blobs: NatsBlobs
) -> Sequence[Reading]:
    outboxes = {"EVENTS": log.outbox, "COMMANDS": queue.outbox, "OBJECTS": blobs.outbox}
    refusals: dict[tuple[str, ...], float] = {
        (name, code): count for name, one in outboxes.items() for code, count in one.refusals.items()
    }
    return [
        CONNECTED.read(connection.is_connected),
        RECONNECTS.read(connection.line - 1),
        RETRIES.read_each({name: one.retries for name, one in outboxes.items()}),
        REFUSALS.read_each(refusals),
        REFUSED.read_each({name: one.refused for name, one in outboxes.items()}),
        WRITTEN.read(blobs.written_bytes),
        READ.read(blobs.read_bytes),
    ]
