"""How much work it is to compare a value with a JSON Schema of the workload, counted beforehand (LANGUAGE §9).

Each part of a value meets one subschema. Nearly every keyword then costs less than to read the part; only a ``pattern``
and an ``enum`` with numbers, lists or mappings cost many times that, and are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import frexp
from typing import Any, Final, NamedTuple

from noetl_stream.playbook.results.validator import pattern_weight
from noetl_stream.playbook.yaml.nodes import extend_pointer

_FLOAT: Final = 8
_BITS: Final = 8
"""Of a number, as many as are one comparison: numbers are compared exactly, however large or small they are."""


class _Beyond(Exception):
    """The bound is passed at the end of ``path``, which begins with the innermost key."""

    def __init__(self) -> None:
        super().__init__()
        self.path: list[str | int] = []


class Counted(NamedTuple):
    """A subschema with keywords that are counted, in itself or for parts of its values."""

    weight: int = 0
    """Comparisons for a byte of a text."""
    choices: int = 0
    size_of_choices: int = 0
    properties: Mapping[str, Counted] = {}
    declared: Collection[str] = ()
    """The keys that ``others`` is not for."""
    others: Counted | None = None
    items: Counted | None = None


def counted(schema: Any) -> Counted | None:
    """What is counted of a schema; ``None`` if nothing is."""
    if not isinstance(schema, Mapping):
        return None
    declared = schema.get("properties", {})
    inner = {key: counted(part) for key, part in declared.items()}
    choices = schema.get("enum", ())
    is_cheap = all(one is None or isinstance(one, str | bool) for one in choices)
    found = Counted(
        weight=pattern_weight(schema["pattern"]) if "pattern" in schema else 0,
        choices=0 if is_cheap else len(choices),
        size_of_choices=0 if is_cheap else sum(map(_size, choices)),
        properties={key: part for key, part in inner.items() if part is not None},
        declared=frozenset(declared),
        others=counted(schema.get("additionalProperties")),
        items=counted(schema.get("items")),
    )
    return found if any((found.weight, found.choices, found.properties, found.others, found.items)) else None


def part_beyond(schema: Counted, value: Any, most: int) -> str | None:
    """The JSON pointer of the part of ``value`` at which it takes more than ``most`` comparisons; ``None`` if it does
    not. Counts no further.
    """
    try:
        _left(schema, value, most)
    except _Beyond as beyond:
        pointer = ""
        for key in reversed(beyond.path):
            pointer = extend_pointer(pointer, key)
        return pointer
    return None


def _left(schema: Counted, value: Any, left: int) -> int:
    """How many comparisons are left after those of ``value``."""
    if schema.choices:
        left -= schema.size_of_choices + schema.choices * _size(value)
    if isinstance(value, str):
        left -= schema.weight * (len(value) if value.isascii() else len(value.encode(errors="replace")))
    if left < 0:
        raise _Beyond
    for key, inner, part in _parts(schema, value):
        try:
            left = _left(inner, part, left)
        except _Beyond as beyond:
            beyond.path.append(key)
            raise
    return left


def _parts(schema: Counted, value: Any) -> Iterator[tuple[str | int, Counted, Any]]:
    """The parts of a value in which something is counted."""
    if isinstance(value, Mapping):
        yield from ((key, inner, value[key]) for key, inner in schema.properties.items() if key in value)
        if schema.others is not None:
            yield from ((key, schema.others, value[key]) for key in value if key not in schema.declared)
    elif isinstance(value, list) and schema.items is not None:
        yield from ((index, schema.items, item) for index, item in enumerate(value))


def _size(value: Any) -> int:
    """Comparisons of a value with one that is equal to it."""
    if isinstance(value, float):
        return _FLOAT + abs(frexp(value)[1]) // _BITS
    if isinstance(value, int):
        return 1 + value.bit_length() // _BITS
    if isinstance(value, Mapping):
        return 1 + sum(1 + _size(member) for member in value.values())
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1
