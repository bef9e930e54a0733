"""What takes room: streams and tables."""

from __future__ import annotations

import asyncio

from noetl_stream.operations.doctor.readings import STREAMS, DoctorPorts, reading
from noetl_stream.ports.operations.diagnosis import StoredDocument
from noetl_stream.protocol.subjects import RESULTS


async def stored(ports: DoctorPorts) -> list[StoredDocument]:
    """See :meth:`noetl_stream.ports.operations.diagnosis.Diagnosis.storage`."""
    streams, account, tables, database = await asyncio.gather(
        reading("the streams", asyncio.gather(*(ports.nats.stream(name) for name in STREAMS))),
        reading("the storage of NATS", ports.nats.storage()),
        reading("the tables", ports.database.tables()),
        reading("Postgres", ports.database.facts()),
    )
    in_nats = [
        StoredDocument(
            "objects" if one.name == RESULTS else "stream", one.name, one.size_bytes, one.max_bytes, one.messages
        )
        for one in streams
        if one.exists
    ]
    in_postgres = [StoredDocument("table", one.name, one.size_bytes, None, one.rows) for one in tables]
    return [
        StoredDocument("account", "NATS", account.size_bytes, account.max_bytes, None),
        *_largest_first(in_nats),
        StoredDocument("database", "Postgres", database.size_bytes, None, None),
        *_largest_first(in_postgres),
    ]


def _largest_first(found: list[StoredDocument]) -> list[StoredDocument]:
    return sorted(found, key=lambda one: -one.bytes)
