"""Values of two executions, compared without what differs in every execution: times and ids."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from noetl_stream.model.json import codec
from noetl_stream.operations.executions.reading.step_runs import SHOWN_BYTES
from noetl_stream.ports.operations.reading.diffs import VALUES_SHOWN, ValueDifferenceDocument, ValueDifferencesDocument

_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_TIME: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
)
_HTTP_TIME: Final = r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT"
_VOLATILE: Final = rf"(?:{_UUID}|{_TIME}|{_HTTP_TIME})"
_is_volatile: Final = re.compile(rf"{_VOLATILE}\Z").match
_hide_volatile: Final = re.compile(rf'"{_VOLATILE}"'.encode()).sub

SHORTEST_ID: Final = 16
"""A shorter id of an execution is not looked for in its values: it may be a word."""

HIDDEN: Final = "~"
NOTHING_DIFFERS: Final = ValueDifferencesDocument([], 0)
_ABSENT: Final = object()


class Likeness:
    """Values of one execution in a form that is equal for values that differ in times and ids alone."""

    def __init__(self, execution_id: str) -> None:
        self._own = execution_id if len(execution_id) >= SHORTEST_ID else "\0"  # no JSON holds it
        self._own_bytes = self._own.encode()

    def digest(self, value: Any) -> int:
        """A 64-bit digest of a JSON value: equal digests count as equal values."""
        text = codec.encode_sorted(value).replace(self._own_bytes, HIDDEN.encode())
        return int.from_bytes(blake2b(_hide_volatile(b'"~"', text), digest_size=8).digest())

    def text(self, value: str) -> str:
        value = value.replace(self._own, HIDDEN)
        return HIDDEN if _is_volatile(value) else value


def differences(
    a: Any, b: Any, like_a: Likeness, like_b: Likeness, most: int = VALUES_SHOWN
) -> ValueDifferencesDocument:
    """How two JSON values differ, at most ``most`` times in full."""
    found: list[ValueDifferenceDocument] = []
    volatile: list[ValueDifferenceDocument] = []
    count = 0
    for pointer, one, other in _differing(a, b):
        count += 1
        texts = isinstance(one, str) and isinstance(other, str)
        kept = volatile if texts and like_a.text(one) == like_b.text(other) else found
        if len(kept) < most:
            in_a, in_b = one is not _ABSENT, other is not _ABSENT
            kept.append(
                ValueDifferenceDocument(
                    pointer,
                    in_a,
                    _shown(one) if in_a else None,
                    in_b,
                    _shown(other) if in_b else None,
                    kept is volatile,
                )
            )
    items = [*found, *volatile][:most]
    return ValueDifferencesDocument(items, count - len(items))


def _differing(a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    """The smallest parts that differ, in order. No recursion: the values may be nested deeply."""
    waiting = [("", a, b)]
    while waiting:
        pointer, one, other = waiting.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            keys = list(dict.fromkeys((*one, *other)))
            inner = [(_escaped(key), one.get(key, _ABSENT), other.get(key, _ABSENT)) for key in keys]
        elif isinstance(one, list) and isinstance(other, list):
            inner = [(str(n), _at(one, n), _at(other, n)) for n in range(max(len(one), len(other)))]
        elif type(one) is not type(other) or one != other:
            yield pointer, one, other
            continue
        else:
            continue
        waiting += [(f"{pointer}/{name}", *both) for name, *both in reversed(inner)]


def _at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else _ABSENT


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _shown(value: Any) -> Any:
    size = len(codec.encode(value))
    return value if size <= SHOWN_BYTES else {"$large": {"size": size}}
