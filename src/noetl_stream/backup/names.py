"""Collects the objects that the rows of a database name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from noetl_stream.ports.backup import Sink, TableShape
from noetl_stream.protocol.subjects import bundle_key

_NAMED: Final = re.compile(rb'"store":"nats","key":"([^"\\]{1,400})"')


class NamedObjects:
    """Collects the ``keys`` of objects from rows as they pass by, in pieces cut anywhere."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    def reader_of(self, table: TableShape) -> Callable[[bytes], None] | None:
        """Returns a reader of the table's rows; ``None`` if they name no objects."""
        take = _TAKERS.get(table.name)
        if take is None:
            return None
        rest = b""

        def read(piece: bytes) -> None:
            nonlocal rest
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                take(self.keys, table, line)

        return read

    def reading_rows(self, table: TableShape, write: Sink) -> Sink:
        """Returns ``write``, with the rows of the table read as they pass."""
        read = self.reader_of(table)
        if read is None:
            return write

        async def sink(piece: bytes) -> None:
            read(piece)
            await write(piece)

        return sink


def _from_json(keys: set[str], table: TableShape, line: bytes) -> None:
    keys.update(key.decode() for key in _NAMED.findall(line))


def _from_uses(keys: set[str], table: TableShape, line: bytes) -> None:
    row = dict(zip(table.columns, line.split(b"\t"), strict=True))
    if row["store"] == b"nats":
        keys.add(row["key"].decode())


def _from_bundles(keys: set[str], table: TableShape, line: bytes) -> None:
    row = dict(zip(table.columns, line.split(b"\t"), strict=True))
    keys.add(bundle_key(row["name"].decode().replace("\\\\", "\\")))  # which Postgres doubles


_TAKERS: Final[Mapping[str, Callable[[set[str], TableShape, bytes], None]]] = {
    "event": _from_json,
    "object_use": _from_uses,
    "bundle": _from_bundles,
}
