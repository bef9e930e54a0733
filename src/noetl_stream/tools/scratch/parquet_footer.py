"""The footer of a Parquet file: its columns, with their types in DuckDB's words, and its number of rows.

A footer is a Thrift structure in the compact protocol, of which the first three fields are read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from noetl_stream.sealing.data_references import Column

MAGIC: Final = b"PAR1"
END_BYTES: Final = 8
"""The bytes after the footer: its length, and :data:`MAGIC`."""
MAX_FOOTER_BYTES: Final = 16 * 1024 * 1024
MAX_COLUMNS: Final = 10_000

_MOST_DEPTH: Final = 64
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_SCHEMA, _ROWS = 2, 3
_KIND, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _LOGICAL = 1, 3, 4, 5, 6, 7, 8, 10
_REPEATED: Final = 2
_PLAIN: Final = dict(enumerate(("BOOLEAN", "INTEGER", "BIGINT", "TIMESTAMP", "FLOAT", "DOUBLE", "BLOB", "BLOB")))
"""The types of kinds, by their number."""
_CONVERTED_TYPES: Final = {
    **dict.fromkeys((0, 4), "VARCHAR"),
    6: "DATE",
    **dict.fromkeys((7, 8), "TIME"),
    **dict.fromkeys((9, 10), "TIMESTAMP"),
    **dict(enumerate(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), 11)),
    **dict(enumerate(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), 15)),
    19: "JSON",
    21: "INTERVAL",
}
_OF_STRING, _OF_MAP, _OF_LIST, _OF_ENUM, _OF_DECIMAL, _OF_DATE, _OF_TIME, _OF_TIMESTAMP = range(1, 9)
_OF_INTEGER, _OF_UNKNOWN, _OF_JSON, _OF_UUID, _OF_FLOAT16 = 10, 11, 12, 14, 15
_MAP_CONVERTED, _KEY_VALUE_CONVERTED, _LIST_CONVERTED, _DECIMAL_CONVERTED = 1, 2, 3, 5
_LOGICAL_TYPES: Final = {
    _OF_STRING: "VARCHAR",
    _OF_ENUM: "VARCHAR",
    _OF_DATE: "DATE",
    _OF_UNKNOWN: '"NULL"',
    _OF_JSON: "JSON",
    _OF_UUID: "UUID",
    _OF_FLOAT16: "FLOAT",
}
_INTEGERS: Final = {8: "TINYINT", 16: "SMALLINT", 32: "INTEGER", 64: "BIGINT"}
_NANOSECONDS: Final = 3
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NotParquet(Exception):
    """Bytes that are not the footer of a Parquet file, or of one with types that a table cannot have."""


class Footer(NamedTuple):
    """The contents of a Parquet file's footer."""

    columns: tuple[Column, ...]
    rows: int


def footer_length(end: bytes) -> int:
    """Returns the length of the footer, from the last :data:`END_BYTES` bytes of a file.

    Raises:
        NotParquet: They are not the end of a Parquet file.
    """
    length = int.from_bytes(end[:4], "little")
    if len(end) != END_BYTES or end[4:] != MAGIC or length > MAX_FOOTER_BYTES:
        raise NotParquet("it does not end as a Parquet file, or its footer is too large")
    return length


def footer_of(path: Path) -> Footer:
    """Reads the footer of a file.

    Raises:
        NotParquet: It is not a Parquet file.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - END_BYTES))
        length = footer_length(file.read())
        file.seek(max(0, size - END_BYTES - length))
        return read_footer(file.read(length))


def read_footer(footer: bytes) -> Footer:
    """Reads a footer; bytes after it are ignored.

    Raises:
        NotParquet: It is not a footer.
    """
    try:
        found = _Compact(footer).fields(until=_ROWS)
        elements = iter(found[_SCHEMA])
        root = next(elements)
        columns = tuple(_column(elements, 0) for _ in range(_bounded(root[_CHILDREN])))
        rows = found[_ROWS]
    except (KeyError, IndexError, StopIteration, TypeError, ValueError, UnicodeDecodeError) as error:
        raise NotParquet("its footer cannot be read") from error
    if not isinstance(rows, int) or rows < 0:
        raise NotParquet("its footer has no number of rows")
    return Footer(columns, rows)


def _column(elements: Iterator[dict[int, Any]], depth: int) -> Column:
    element = next(elements)
    return Column(element[_NAME].decode(), _type(element, elements, depth))


def _type(element: dict[int, Any], elements: Iterator[dict[int, Any]], depth: int) -> str:
    """Returns the type of a column; takes its inner ones from ``elements``."""
    if depth > _MOST_DEPTH:
        raise NotParquet("its columns nest too deeply")
    found = _group(element, elements, depth) if _CHILDREN in element else _scalar(element)
    return f"{found}[]" if element.get(_REPETITION) == _REPEATED else found


def _group(element: dict[int, Any], elements: Iterator[dict[int, Any]], depth: int) -> str:
    logical, converted = element.get(_LOGICAL, {}), element.get(_CONVERTED)
    count = _bounded(element[_CHILDREN])
    if _OF_LIST in logical or converted == _LIST_CONVERTED:
        return _list(elements, depth)
    if _OF_MAP in logical or converted in (_MAP_CONVERTED, _KEY_VALUE_CONVERTED):
        pair = next(elements)
        inner = [_column(elements, depth + 1).type for _ in range(_bounded(pair[_CHILDREN]))]
        return f"MAP({', '.join(inner)})"
    parts = (_column(elements, depth + 1) for _ in range(count))
    return f"STRUCT({', '.join(f'{_quoted(one.name)} {one.type}' for one in parts)})"


def _list(elements: Iterator[dict[int, Any]], depth: int) -> str:
    repeated = next(elements)
    if _CHILDREN not in repeated or repeated[_CHILDREN] != 1:  # the items themselves, as old files have them
        found = _type({**repeated, _REPETITION: 0}, elements, depth + 1)
    else:
        found = _column(elements, depth + 1).type
    return f"{found}[]"


def _scalar(element: dict[int, Any]) -> str:
    logical, converted = element.get(_LOGICAL, {}), element.get(_CONVERTED, -1)
    if _OF_DECIMAL in logical or converted == _DECIMAL_CONVERTED:
        about = logical.get(_OF_DECIMAL, {})
        precision, scale = about.get(2, element.get(_PRECISION, 0)), about.get(1, element.get(_SCALE, 0))
        return f"DECIMAL({precision},{scale})" if precision <= 38 else "DOUBLE"
    if _OF_INTEGER in logical:
        about = logical[_OF_INTEGER]
        return ("" if about[2] else "U") + _INTEGERS[about[1]]
    if _OF_TIMESTAMP in logical:
        about = logical[_OF_TIMESTAMP]
        if about[1]:
            return "TIMESTAMP WITH TIME ZONE"
        return "TIMESTAMP_NS" if _NANOSECONDS in about[2] else "TIMESTAMP"
    if _OF_TIME in logical:
        about = logical[_OF_TIME]
        return "TIME WITH TIME ZONE" if about[1] else "TIME_NS" if _NANOSECONDS in about[2] else "TIME"
    for kind, name in _LOGICAL_TYPES.items():
        if kind in logical:
            return name
    return _CONVERTED_TYPES.get(converted, _PLAIN[element[_KIND]])


def _quoted(name: str) -> str:
    return name if _WORD.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _bounded(count: int) -> int:
    if not 0 <= count <= MAX_COLUMNS:
        raise NotParquet(f"it has more than {MAX_COLUMNS:,} columns")
    return count


class _Compact:
    """Reads values of the compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fields(self, *, until: int | None = None, depth: int = 0) -> dict[int, Any]:
        """Reads a structure, up to the field ``until``: its values by the number of their field."""
        if depth > _MOST_DEPTH:
            raise NotParquet("its footer nests too deeply")
        found: dict[int, Any] = {}
        number = 0
        while until not in found:
            head = self._byte()
            kind, step = head & 15, head >> 4
            if kind == _STOP:
                break
            number = number + step if step else self._signed()
            found[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _BINARY:
            return self._take(self._unsigned())
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._unsigned()
            if count > len(self._data):
                raise NotParquet("its footer cannot be read")
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == _STRUCT:
            return self.fields(depth=depth + 1)
        if kind == _MAP:
            raise NotParquet("its footer cannot be read")
        return self._signed()

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _take(self, size: int) -> bytes:
        self._at += size
        if self._at > len(self._data):
            raise NotParquet("its footer is cut off")
        return self._data[self._at - size : self._at]

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7
            if shift > 63:
                raise NotParquet("its footer has a number that is too long")

    def _signed(self) -> int:
        number = self._unsigned()
        return (number >> 1) ^ -(number & 1)
