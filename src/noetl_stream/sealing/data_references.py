"""References to files and tables: values of the language that open one object each (PROTOCOL §3 *Object keys*).

The bytes are encrypted with a key of their own. The reference contains that key, sealed for one execution. A value from
outside that looks like a reference therefore opens nothing, and a reference that is handed to another execution is
sealed again for it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.sealing.keys import KEY_BYTES, NONCE_BYTES, KeyRing, open_bytes, seal_bytes, seal_large

PART_BYTES: Final = 4 * 1024 * 1024
"""The bytes of each part but the last, each of which is an object."""

HEAD_ROWS: Final = 20
"""The maximum number of first rows of a table that templates may read."""
HEAD_BYTES: Final = 16 * 1024
"""The maximum size of these rows as JSON, in bytes."""

_PARTS: Final = "parts"
_HEAD: Final = "head"
_MAX_DIGITS: Final = 7

_MARKER: Final = b'"seal":"'
"""A marker in the JSON of each reference, which is searched for before any JSON is decoded."""

_SEALS: Final = re.compile(rb'(?<="seal":")[^"\\]+(?=")')

PARQUET: Final = "application/vnd.apache.parquet"


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a table: its name, and its type in DuckDB's words, such as ``BIGINT`` or ``VARCHAR[]``."""

    name: str
    type: str


class DataReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reference to a file, or to a table, which is a Parquet file.

    Attributes:
        key: The place of the data: ``<execution>/<command>/<run>/<n>/parts-<count>``.
        size: Its bytes.
        checksum: ``sha256:<hex>`` over all bytes.
        seal: The key of the data, sealed for one execution; empty in a mere description.
        name: The file's name, without folders; empty for a table.
        columns: The columns of a table, in order; ``None`` for a file.
        rows: The number of rows of a table.
        first: The first row in the stored table: a part of a table is a reference with the same key and seal.
    """

    key: str
    size: int
    checksum: str
    seal: str = ""
    name: str = ""
    media_type: str = ""
    columns: tuple[Column, ...] | None = None
    rows: int | None = None
    first: int = 0

    @property
    def execution_id(self) -> str:
        """The execution that has stored the data."""
        return self.key.partition("/")[0]

    @property
    def what(self) -> str:
        """The name of the data in messages: ``the file orders.csv``."""
        return f"the file {self.name}" if self.name else "the table" if self.columns is not None else "the file"

    @property
    def shown(self) -> str:
        """The data in a list for people: ``orders.csv (1,200 bytes)``, ``table (5 rows, 3 columns)``."""
        if self.columns is not None:
            return f"{self.name or 'table'} ({self.rows or 0:,} rows, {len(self.columns)} columns)"
        return f"{self.name or 'file'} ({self.size:,} bytes)"


class StoredParts(NamedTuple):
    """The parts of a file or table: the prefix of their keys, and their number if it is known."""

    prefix: str
    total: int | None = None

    @property
    def key(self) -> str:
        """The key that stands for all of them."""
        return f"{self.prefix}{_PARTS}" if self.total is None else f"{self.prefix}{_PARTS}-{self.total}"


def parts_of(key: str) -> StoredParts | None:
    """The parts that a key stands for; ``None`` for the key of one object."""
    name = key.rpartition("/")[2]
    prefix, (kind, dash, total) = key.removesuffix(name), name.partition("-")
    if kind != _PARTS or (dash and not (total.isascii() and total.isdecimal() and len(total) <= _MAX_DIGITS)):
        return None
    return StoredParts(prefix, int(total) if dash else None)


def head_key(key: str) -> str:
    """The key of a table's first rows, from the key of the table."""
    return f"{key.rpartition('/')[0]}/{_HEAD}"


def is_head(key: str) -> bool:
    """Returns true if a key is that of a table's first rows."""
    return key.endswith(f"/{_HEAD}")


def fitting_rows(rows: Sequence[Any]) -> list[Any]:
    """The first rows within :data:`HEAD_ROWS` and :data:`HEAD_BYTES`, which templates may read."""
    fitting, size = [], 2
    for row in rows[:HEAD_ROWS]:
        size += len(msgspec.json.encode(row)) + 1
        if size > HEAD_BYTES:
            break
        fitting.append(row)
    return fitting


def read_reference(value: Any) -> DataReference | None:
    """The reference that a value contains, if it is one; else ``None``. Nothing is opened."""
    if not isinstance(value, dict) or not {"key", "seal"} <= value.keys():
        return None
    try:
        found = msgspec.convert(value, DataReference)
    except msgspec.ValidationError:
        return None
    parts = parts_of(found.key)
    return found if parts is not None and parts.total == -(-found.size // PART_BYTES) else None


def references_of(value: Any) -> Iterator[DataReference]:
    """The references in a value, in order. Nothing is opened."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, dict) and (reference := read_reference(value)) is not None:
            yield reference
        elif isinstance(value, dict | list):
            left += reversed(list(value.values()) if isinstance(value, dict) else value)


def without_seals(value: Any) -> Any:
    """The value as people read it: with words in place of each reference."""
    if isinstance(value, list):
        return [without_seals(item) for item in value]
    if not isinstance(value, dict):
        return value
    reference = read_reference(value)
    return {key: without_seals(item) for key, item in value.items()} if reference is None else reference.shown


def sealed_for(reference: DataReference, data_key: bytes, ring: KeyRing) -> DataReference:
    """The reference with the key of its data sealed for the execution that has ``ring``.

    The nonce derives from the sealed content, so that sealing again gives the same text.
    """
    key = ring.current
    nonce = hmac.digest(key.value, b"noetl data nonce\0" + data_key + _bound_to(reference), "sha256")[:NONCE_BYTES]
    sealed = seal_bytes(key.value, data_key, _bound_to(reference), nonce=nonce)
    return msgspec.structs.replace(reference, seal=base64.urlsafe_b64encode(sealed).decode())


def data_key_of(reference: DataReference, rings: Iterable[KeyRing]) -> bytes | None:
    """The key of its data, if it is sealed for an execution of ``rings``; else ``None``."""
    try:
        sealed = base64.urlsafe_b64decode(reference.seal)
    except (binascii.Error, ValueError):
        return None
    context = _bound_to(reference)
    opened = (open_bytes(key.value, sealed, context) for ring in rings for key in ring.all)
    return next((found for found in opened if found is not None and len(found) == KEY_BYTES), None)


def has_references(text: bytes) -> bool:
    """Whether a JSON text may have references in it."""
    return _MARKER in text


def references_in(text: bytes, ring: KeyRing) -> Iterator[tuple[DataReference, bytes]]:
    """The references in a JSON text that are sealed for the execution with ``ring``, each with the key of its data."""
    value: Any = None
    if has_references(text):
        with contextlib.suppress(msgspec.DecodeError, RecursionError):  # invalid JSON is reported by its readers
            value = msgspec.json.decode(text)
    for reference in references_of(value):
        data_key = data_key_of(reference, (ring,))
        if data_key is not None:
            yield reference, data_key


def hand_on(text: bytes, giver: KeyRing, receiver: KeyRing) -> bytes:
    """The JSON text with each reference sealed for ``receiver`` that was sealed for ``giver``."""
    if giver == receiver:
        return text
    seals = {
        reference.seal.encode(): sealed_for(reference, data_key, receiver).seal.encode()
        for reference, data_key in references_in(text, giver)
    }
    return _SEALS.sub(lambda found: seals.get(found[0], found[0]), text) if seals else text


def seal_part(data_key: bytes, key: str, data: bytes | memoryview, into: memoryview | None = None) -> memoryview:
    """Encrypts the part with this key. ``into`` as for :func:`~noetl_stream.sealing.keys.seal_large`."""
    return seal_large(data_key, data, key.encode(), into)


def open_part(data_key: bytes, key: str, sealed: bytes) -> bytes | None:
    """Decrypts the part with this key; ``None`` if it is another one, or was modified."""
    return open_bytes(data_key, sealed, key.encode())


def _bound_to(reference: DataReference) -> bytes:
    return f"noetl data\0{reference.key}\0{reference.size}\0{reference.checksum}".encode()
