"""The metrics of a process's connection to NATS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.adapters.nats.blobs import NatsBlobs
from noetl_stream.adapters.nats.commands.command_queue import NatsCommandQueue
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.event_log import NatsEventLog
from noetl_stream.telemetry.measures import Metric, Reading

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
