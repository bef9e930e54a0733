"""How much work it is to compare a value with a JSON Schema of the workload, counted beforehand (LANGUAGE §9).

Each part of a value meets one subschema. Nearly every keyword then costs less than to read the part; only a
``pattern``, an ``enum`` of other values than texts and the bounds of numbers cost many times that, and are counted.
A comparison takes at most some 10 ns; the sizes below were measured (``benchmarks/comparisons.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import frexp
from typing import Any, Final, NamedTuple

from noetl_stream.playbook.results.validator import pattern_weight
from noetl_stream.playbook.yaml.nodes import extend_pointer

_TEXT: Final = 1
"""What it costs to compare a short text, a boolean or null with its like."""
_INTEGER: Final = 6
"""What it costs to compare an integer of 64 bits with its like."""
_PART: Final = 14
"""What it costs beyond that to count and to compare a part of a list or mapping."""
_NUMBER: Final = 80
"""What it costs to compare any other number, which is compared exactly, at least."""
_VISIT: Final = 50
"""What it costs to count a part."""
_INTEGER_BITS: Final = 64
_ORDINARY: Final = 2.0**60
"""Numbers below cost little to compare with an integer of 64 bits."""
_LONG_TEXT: Final = 100
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


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
    has_table: bool = False
    """Whether the choices are integers of 64 bits or null: another integer is looked up among them."""
    bounds: int = 0
    size_of_bounds: int = 0
    has_small_bounds: bool = False
    """Whether the bounds are integers of 64 bits."""
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
    is_cheap = all(isinstance(one, str) for one in choices)  # such texts are looked up
    bounds = [schema[word] for word in _BOUNDS if word in schema]
    found = Counted(
        weight=pattern_weight(schema["pattern"]) if "pattern" in schema else 0,
        choices=0 if is_cheap else len(choices),
        size_of_choices=0 if is_cheap else sum(map(_size, choices)),
        has_table=all(one is None or _is_small(one) for one in choices),
        bounds=len(bounds),
        size_of_bounds=sum(map(_size, bounds)),
        has_small_bounds=all(map(_is_small, bounds)),
        properties={key: part for key, part in inner.items() if part is not None},
        declared=frozenset(declared),
        others=counted(schema.get("additionalProperties")),
        items=counted(schema.get("items")),
    )
    is_counted = found.weight or found.choices or found.bounds or found.properties or found.others or found.items
    return found if is_counted else None


def comparisons(schema: Counted, value: Any, most: int) -> int | None:
    """How many comparisons ``value`` takes; ``None`` if they are more than ``most``. Counts no further."""
    try:
        return most - _left(schema, value, most)
    except _Beyond:
        return None


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
    left -= _VISIT
    if schema.choices:
        left -= _choosing(schema, value, left)
    if schema.bounds and isinstance(value, int | float):
        size = _size(value)
        if schema.has_small_bounds and size >= _NUMBER:
            size -= _NUMBER - _INTEGER
        left -= schema.size_of_bounds + schema.bounds * size
    if schema.weight and isinstance(value, str):
        left -= schema.weight * _bytes_of(value)
    if left < 0:
        raise _Beyond
    if isinstance(value, list) and schema.items is not None:
        cost = _cost_of_likes(schema.items, value)
        if cost is not None and cost <= left:
            return left - cost
    for key, inner, part in _parts(schema, value):
        try:
            left = _left(inner, part, left)
        except _Beyond as beyond:
            beyond.path.append(key)
            raise
    return left


def _choosing(schema: Counted, value: Any, left: int) -> int:
    """The comparisons of a value with the choices; any number that is more than ``left``."""
    if schema.has_table and isinstance(value, int):
        return _size(value)
    if isinstance(value, list | Mapping) and (least := _PART * len(value) * schema.choices) > left:
        return least
    return schema.size_of_choices + schema.choices * _size(value)


def _cost_of_likes(schema: Counted, values: list[Any]) -> int | None:
    """The comparisons of a list of texts or of ordinary numbers, in which no part is visited; else ``None``."""
    kinds = set(map(type, values))
    if schema.choices:
        return None
    if kinds <= {str}:
        return schema.weight * _bytes_of("".join(values))
    if kinds <= {int, float} and (not schema.bounds or schema.has_small_bounds):
        return 0 if min(values) > -_ORDINARY and max(values) < _ORDINARY else None
    return None


def _parts(schema: Counted, value: Any) -> Iterator[tuple[str | int, Counted, Any]]:
    """The parts of a value in which something is counted."""
    if isinstance(value, Mapping):
        fewer, others = (
            (schema.properties, value) if len(schema.properties) < len(value) else (value, schema.properties)
        )
        both = (key for key in fewer if key in others)
        yield from ((key, schema.properties[key], value[key]) for key in both)
        if schema.others is not None:
            yield from ((key, schema.others, value[key]) for key in value if key not in schema.declared)
    elif isinstance(value, list) and schema.items is not None:
        yield from ((index, schema.items, item) for index, item in enumerate(value))


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _is_small(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < _INTEGER_BITS


def _size(value: Any) -> int:
    """Comparisons of a value with one that is equal to it."""
    if isinstance(value, bool):
        return _TEXT
    if isinstance(value, float):
        return _NUMBER + abs(frexp(value)[1]) * 5 // 4
    if isinstance(value, int):
        bits = value.bit_length()
        # Beyond 64 bits its digits are made and read, which takes a time that grows with their square.
        return _INTEGER if bits < _INTEGER_BITS else _NUMBER + bits // 4 + bits * bits // 2_500
    if isinstance(value, Mapping):
        return _PART + sum(2 * _PART + _size(key) + _size(member) for key, member in value.items())
    if isinstance(value, list):
        return _PART + _PART * len(value) + sum(map(_size, value))
    return _TEXT + (len(value) // _LONG_TEXT if isinstance(value, str) else 0)
