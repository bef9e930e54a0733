"""Collects the objects that the rows of a database name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from noetl_stream.ports.backup import Sink, TableShape
from noetl_stream.protocol.subjects import bundle_key
from noetl_stream.sealing.data_references import parts_of

_NAMED: Final = re.compile(rb'"store":"nats","key":"([^"\\]{1,400})"')
_FILES: Final = re.compile(rb'"key":"([^"\\]{1,400}/parts-[0-9]{1,7})"')


def objects_of(key: str) -> Iterator[str]:
    """The keys of the objects that this key stands for, in order: itself, or the parts of a file or table. Should be
    read no further than they exist: a value that looks like a reference may claim any number.
    """
    parts = parts_of(key)
    if parts is None:
        yield key
    else:
        yield from (f"{parts.prefix}{number}" for number in range(parts.total or 0))


class NamedObjects:
    """Collects the ``keys`` of objects, files and tables from passing rows, in arbitrary pieces."""

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
        """Returns a ``write`` that also reads the passing rows of the table."""
        read = self.reader_of(table)
        if read is None:
            return write

        async def sink(piece: bytes) -> None:
            read(piece)
            await write(piece)

        return sink


def _from_json(keys: set[str], table: TableShape, line: bytes) -> None:
    keys.update(key.decode() for named in (_NAMED, _FILES) for key in named.findall(line))


def _from_uses(keys: set[str], table: TableShape, line: bytes) -> None:
    row = dict(zip(table.columns, line.split(b"\t"), strict=True))
    if row["store"] == b"nats":
        keys.add(row["key"].decode())


def _from_bundles(keys: set[str], table: TableShape, line: bytes) -> None:
    row = dict(zip(table.columns, line.split(b"\t"), strict=True))
    keys.add(bundle_key(row["name"].decode().replace("\\\\", "\\")))  # Postgres doubles backslashes


_TAKERS: Final[Mapping[str, Callable[[set[str], TableShape, bytes], None]]] = {
    "event": _from_json,
    "object_use": _from_uses,
    "bundle": _from_bundles,
}
