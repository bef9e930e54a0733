"""Long JSON, encoded and decoded piece by piece: other threads run between two pieces, but not during one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import codec

LONG_BYTES: Final = 128 * 1024
"""The length from which JSON takes a millisecond, or a few, to encode or decode."""

_MEMBER_BYTES: Final = 32
"""The weight of a member of a list or object beyond its characters: short ones take more time than they have bytes.
"""

_SHORT: Final = frozenset({int, float, bool, type(None)})
_MANY: Final = 512
"""As many members are weighed at once: most are short together."""

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
"""How many commas may be between two members before these are decoded one by one."""

_LEVELS: Final = 16
"""The most levels of long lists and objects that are taken apart; anything deeper is one piece."""


def is_long(value: Any) -> bool:
    """Whether the JSON of a value may be long, found without going through more of it than that."""
    return _weight(value) >= LONG_BYTES


def _weight(value: Any) -> int:
    """About how many bytes of JSON a value is; of a long one, at least :data:`LONG_BYTES`."""
    rest, weight = [value], 0
    while rest and weight < LONG_BYTES:
        one = rest.pop()
        if isinstance(one, str | bytes | msgspec.Raw):
            weight += len(one)
        elif isinstance(one, msgspec.Struct):
            weight += _MEMBER_BYTES * len(one.__struct_fields__)
            if weight < LONG_BYTES:
                rest += (getattr(one, name) for name in one.__struct_fields__)
        elif isinstance(one, dict | list | tuple):
            weight += _MEMBER_BYTES * len(one)
            if weight < LONG_BYTES:
                rest += one.values() if isinstance(one, dict) else one
    return weight


def encode(value: Any) -> bytes:
    """Encodes a value as :func:`.codec.encode` does, piece by piece.

    Raises:
        PayloadRefused: JSON cannot represent it.
    """
    return b"".join(_pieces(value))


def beginning(value: Any, size: int) -> bytes:
    """At least so many bytes of :func:`encode`, or all; most of a long value is not encoded."""
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
    members = iter(value.items() if kind is dict else enumerate(value))
    for group in chain.from_iterable(map(_groups, iter(lambda: list(islice(members, _MANY)), []))):
        yield before
        before = b","
        if len(group) > 1:
            yield codec.encode(dict(group) if kind is dict else [item for _, item in group])[1:-1]
            continue
        ((key, member),) = group
        if kind is dict:
            yield codec.encode({key: None})[1 : -len(b"null}")]
        yield from _pieces(member, levels - 1)
    yield end


def _groups(members: list[tuple[Any, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    """Groups members that are not long; a long member is a group of its own."""
    values = [member for _, member in members]
    if _SHORT.issuperset(map(type, values)) or _weight(values) < LONG_BYTES:
        yield members
        return
    group: list[tuple[Any, Any]] = []
    room = LONG_BYTES
    for member in members:
        weight = _MEMBER_BYTES + _weight(member[1])
        if group and weight > room:
            yield group
            group, room = [], LONG_BYTES
        group.append(member)
        room -= weight
    yield group


def decode(data: bytes | msgspec.Raw) -> Any:
    """Decodes JSON as :func:`.codec.decode_json` does, piece by piece.

    Raises:
        PayloadRefused: ``data`` is not JSON.
    """
    opening = bytes(memoryview(data)[:1])
    if len(data) < LONG_BYTES or opening not in _CLOSING:
        return codec.decode_json(data)
    return codec.call_without_gc(_list_in if opening == b"[" else _object_in, bytes(data))


def parse(data: bytes) -> Any:
    """What ``msgspec.json.decode`` makes of JSON that enters from outside. Raises what it raises, in its words."""
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
    """The members of a long list or object, many short ones together, up to the first that is long."""

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
        """What is left, as a list or object."""
        return self._opening + self._text[self._at :]
