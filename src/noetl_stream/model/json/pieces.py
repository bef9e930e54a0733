"""Long JSON, encoded and decoded in pieces: other threads run between two pieces, but not during one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import codec

LONG_BYTES: Final = 128 * 1024
"""The length from which JSON takes a millisecond or more to encode or decode."""

_MEMBER_BYTES: Final = 32
"""The weight of a member of a list or object beyond its characters: short ones take more time than they have bytes.
"""

_SLICES: Final = 64
"""The approximate number of pieces for a list or object with more members. Weighing each member would take many times
as long as encoding it, and one call takes some 40 ms for 16 MiB.
"""

_TEXTS: Final = (str, bytes, msgspec.Raw)
_HOLDERS: Final = (dict, list, tuple)

_CLOSING: Final = {b"[": b"]", b"{": b"}"}
_COMMA: Final = re.compile(rb",(?!\s*\])")
_BEFORE_KEY: Final = re.compile(rb",\s*(?=\")")
_BETWEEN: Final = {
    b"{": re.compile(rb"(?<=\}),\s*(?=\{)"),
    b"[": re.compile(rb"(?<=\]),\s*(?=\[)"),
    b'"': re.compile(rb'(?<="),\s*(?=")'),
}
"""A comma between two members like the first."""

_TRIES: Final = 4
"""The number of commas between two members up to which these are decoded one by one."""

_LEVELS: Final = 16
"""The most levels of long lists and objects that are divided; anything deeper is one piece."""


def is_long(value: Any) -> bool:
    """Whether the JSON of a value may be long, found without traversing more of it."""
    return bool(value) and _weight(value) >= LONG_BYTES


def _weight(value: Any) -> int:
    """The approximate bytes of a value as JSON; for a long one, at least :data:`LONG_BYTES`."""
    rest, weight = [value], 0
    while rest and weight < LONG_BYTES:
        one = rest.pop()
        if isinstance(one, _TEXTS):
            weight += len(one)
        elif isinstance(one, msgspec.Struct):
            weight += _MEMBER_BYTES * len(one.__struct_fields__)
            if weight < LONG_BYTES:
                rest += (getattr(one, name) for name in one.__struct_fields__)
        elif isinstance(one, _HOLDERS):
            weight += _MEMBER_BYTES * len(one)
            if weight < LONG_BYTES:
                rest += one.values() if isinstance(one, dict) else one
    return weight


def encode(value: Any) -> bytes:
    """Encodes a value like :func:`.codec.encode`, in pieces.

    Raises:
        PayloadRefused: JSON cannot represent it.
    """
    return b"".join(_pieces(value))


def beginning(value: Any, size: int) -> bytes:
    """At least this many bytes of :func:`encode`, or all; most of a long value is not encoded."""
    found = bytearray()
    for piece in _pieces(value):
        found += piece
        if len(found) >= size:
            break
    return bytes(found)


def _pieces(value: Any, levels: int = _LEVELS) -> Iterator[bytes]:
    kind = type(value)
    if isinstance(value, msgspec.Struct) and levels:
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        long = {name: msgspec.Raw(b"".join(_pieces(one, levels - 1))) for name, one in fields.items() if is_long(one)}
        yield codec.encode(replace(value, **long) if long else value)
        return
    if kind not in (str, list, tuple, dict) or not levels or not is_long(value):
        yield codec.encode(value)
        return
    if kind is str:
        yield b'"'
        for first in range(0, len(value), LONG_BYTES):
            yield codec.encode(value[first : first + LONG_BYTES])[1:-1]
        yield b'"'
        return
    before, end = (b"{", b"}") if kind is dict else (b"[", b"]")
    size = len(value) // _SLICES + 1
    for group in _slices(value, size):
        yield before
        before = b","
        if size > 1:
            yield codec.encode(group)[1:-1]
            continue
        if isinstance(group, dict):
            yield codec.encode(dict.fromkeys(group))[1 : -len(b"null}")]
        for member in group.values() if isinstance(group, dict) else group:
            yield from _pieces(member, levels - 1)
    yield end


def _slices(value: Any, size: int) -> Iterator[Any]:
    if not isinstance(value, dict):
        return (value[first : first + size] for first in range(0, len(value), size))
    members = iter(value.items())
    return iter(lambda: dict(islice(members, size)), {})


def decode(data: bytes | msgspec.Raw) -> Any:
    """Decodes JSON like :func:`.codec.decode_json`, in pieces.

    Raises:
        PayloadRefused: ``data`` is not JSON.
    """
    opening = bytes(memoryview(data)[:1])
    if len(data) < LONG_BYTES or opening not in _CLOSING:
        return codec.decode_json(data)
    return codec.call_without_gc(_list_in if opening == b"[" else _object_in, bytes(data))


def parse(data: bytes) -> Any:
    """Decodes JSON from outside like ``msgspec.json.decode``, with its errors."""
    try:
        return decode(data)
    except PayloadRefused:
        return msgspec.json.decode(data)


def _list_in(text: bytes | msgspec.Raw) -> list[Any]:
    found: list[Any] = []
    rest = _Members(bytes(text))
    for members in rest:
        found += members
    found += [decode(item) for item in codec.decode_as(list[msgspec.Raw], rest.left())]
    return found


def _object_in(text: bytes | msgspec.Raw) -> dict[str, Any]:
    found: dict[str, Any] = {}
    rest = _Members(bytes(text))
    for members in rest:
        found.update(members)
    found.update((key, decode(value)) for key, value in codec.decode_as(dict[str, msgspec.Raw], rest.left()).items())
    return found


class _Members:
    """The members of a long list or object, many short ones together, up to the first long one."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._opening = text[:1]
        self._closing = _CLOSING[self._opening]
        first = text[1:].lstrip()[:1] if text[1:2].isspace() else text[1:2]
        self._between = _BETWEEN.get(first, _COMMA) if self._opening == b"[" else _BEFORE_KEY
        self._at = 1

    def __iter__(self) -> Iterator[Any]:
        while len(self._text) - self._at > LONG_BYTES:
            first = self._at + LONG_BYTES
            for comma in islice(self._between.finditer(self._text, first, first + LONG_BYTES), _TRIES):
                try:
                    members = codec.decode_json(self._opening + self._text[self._at : comma.start()] + self._closing)
                except PayloadRefused:
                    continue  # the comma is in a text or in a member
                self._at = comma.end()
                yield members
                break
            else:
                return

    def left(self) -> bytes:
        """The remaining members, as a list or object."""
        return self._opening + self._text[self._at :]
