"""``executor.spec.workload``: the JSON Schema of the merged workload (LANGUAGE §9 *Schema of the workload*).

A schema has only keywords with which each part of a value meets one subschema, so that the number of comparisons for a
workload can be counted before the first. A server makes a few of them itself, has another process make many, and
refuses a workload that takes too many. Nearly every keyword costs less than reading the part; only a ``pattern``, an
``enum`` with values other than texts and the bounds of numbers cost many times that, and are counted. A comparison
takes at most some 10 ns; the sizes below were measured (``benchmarks/comparisons.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from collections.abc import Mapping as MappingOf
from functools import cached_property
from math import frexp
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.errors import WorkloadRefused
from noetl_stream.model.json.codec import encode
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.sections import is_null
from noetl_stream.playbook.results.result_schema import Dialect, at_pointer, read_json_schema
from noetl_stream.playbook.results.validator import Mismatch, Validator, pattern_weight
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Sequence, extend_pointer, walk

_TEXT: Final = 1
"""The cost of comparing a short text, a boolean or null with its like."""
_INTEGER: Final = 6
"""The cost of comparing an integer of 64 bits with its like."""
_PART: Final = 14
"""The additional cost of counting and comparing a part of a list or mapping."""
_NUMBER: Final = 80
"""The least cost of comparing any other number, which is compared exactly."""
_VISIT: Final = 50
"""The cost of counting a part."""
_INTEGER_BITS: Final = 64
_ORDINARY: Final = 2.0**60
"""The bound below which numbers are cheap to compare with an integer of 64 bits."""
_LONG_TEXT: Final = 100
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


class _Beyond(Exception):
    """The bound is exceeded at the end of ``path``, which begins with the innermost key."""

    def __init__(self) -> None:
        super().__init__()
        self.path: list[str | int] = []


class Counted(NamedTuple):
    """A subschema with counted keywords, in itself or for parts of its values."""

    weight: int = 0
    """The comparisons for a byte of a text."""
    choices: int = 0
    size_of_choices: int = 0
    has_table: bool = False
    """Whether the choices are integers of 64 bits or null: another integer is looked up among them."""
    bounds: int = 0
    size_of_bounds: int = 0
    has_small_bounds: bool = False
    """Whether the bounds are integers of 64 bits."""
    properties: MappingOf[str, Counted] = {}
    declared: Collection[str] = ()
    """The keys to which ``others`` does not apply."""
    others: Counted | None = None
    items: Counted | None = None


def counted(schema: Any) -> Counted | None:
    """The counted part of a schema; ``None`` if nothing is counted."""
    if not isinstance(schema, MappingOf):
        return None
    declared, choices = schema.get("properties", {}), schema.get("enum", ())
    is_cheap = all(isinstance(one, str) for one in choices)  # such texts are looked up
    bounds = [schema[word] for word in _BOUNDS if word in schema]
    found = Counted(
        weight=pattern_weight(schema["pattern"]) if "pattern" in schema else 0,
        choices=0 if is_cheap else len(choices),
        size_of_choices=0 if is_cheap else sum(map(_size, choices)),
        has_table=all(one is None or _is_short_integer(one) for one in choices),
        bounds=len(bounds),
        size_of_bounds=sum(map(_size, bounds)),
        has_small_bounds=all(map(_is_short_integer, bounds)),
        properties={key: part for key, inner in declared.items() if (part := counted(inner)) is not None},
        declared=frozenset(declared),
        others=counted(schema.get("additionalProperties")),
        items=counted(schema.get("items")),
    )
    is_counted = found.weight or found.choices or found.bounds or found.properties or found.others or found.items
    return found if is_counted else None


def comparisons(schema: Counted, value: Any, most: int) -> int | None:
    """The number of comparisons for ``value``; ``None`` for more than ``most``. Counts no further."""
    try:
        return most - _left(schema, value, most)
    except _Beyond:
        return None


def part_beyond(schema: Counted, value: Any, most: int) -> str | None:
    """The JSON pointer of the part of ``value`` at which it exceeds ``most`` comparisons; ``None`` if it does not."""
    try:
        _left(schema, value, most)
    except _Beyond as beyond:
        pointer = ""
        for key in reversed(beyond.path):
            pointer = extend_pointer(pointer, key)
        return pointer
    return None


def _left(schema: Counted, value: Any, left: int) -> int:
    """The number of comparisons left after those for ``value``."""
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
    """The comparisons of a value with the choices; any number above ``left`` if they exceed it."""
    if schema.has_table and isinstance(value, int):
        return _size(value)
    if isinstance(value, list | MappingOf) and (least := _PART * len(value) * schema.choices) > left:
        return least
    return schema.size_of_choices + schema.choices * _size(value)


def _cost_of_likes(schema: Counted, values: list[Any]) -> int | None:
    """The comparisons for a list of texts or of ordinary numbers, in which no part is visited; else ``None``."""
    kinds = set(map(type, values))
    if schema.choices:
        return None
    if kinds <= {str}:
        return schema.weight * _bytes_of("".join(values))
    if kinds <= {int, float} and (not schema.bounds or schema.has_small_bounds):
        return 0 if min(values) > -_ORDINARY and max(values) < _ORDINARY else None
    return None


def _parts(schema: Counted, value: Any) -> Iterator[tuple[str | int, Counted, Any]]:
    if isinstance(value, MappingOf):
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


def _is_short_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < _INTEGER_BITS


def _size(value: Any) -> int:
    """The comparisons of a value with an equal one."""
    if isinstance(value, bool):
        return _TEXT
    if isinstance(value, float):
        return _NUMBER + abs(frexp(value)[1]) * 5 // 4
    if isinstance(value, int):
        bits = value.bit_length()
        # Beyond 64 bits its digits are made and read, which takes quadratic time.
        return _INTEGER if bits < _INTEGER_BITS else _NUMBER + bits // 4 + bits * bits // 2_500
    if isinstance(value, MappingOf):
        return _PART + sum(2 * _PART + _size(key) + _size(member) for key, member in value.items())
    if isinstance(value, list):
        return _PART + _PART * len(value) + sum(map(_size, value))
    return _TEXT + (len(value) // _LONG_TEXT if isinstance(value, str) else 0)


KEYWORDS: Final = frozenset([
    "type", "enum", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern",
    "description",
])  # fmt: skip
MAX_CHOICES: Final = 100
"""The most values of an ``enum``: a value may be compared with each."""
MAX_COMPARISONS: Final = 150_000_000
"""The most comparisons of a workload with its schema, at most 2 s. A megabyte with ordinary patterns takes fewer."""

COMPARISONS_AT_ONCE: Final = 2_500_000
"""The comparisons that take at most 25 ms, with as long again for counting them."""

MAX_REASONS_BYTES: Final = 64 * 1024 * 1024
"""The bytes of messages about mismatching defaults: the text of an ``enum`` or a ``pattern`` for each of them."""

_BEYOND: Final = f"up to here it takes more than {MAX_COMPARISONS:,} comparisons (max_workload_comparisons)"
_SHORTEN: Final = "shorten its texts and lists, or simplify the `pattern` or `enum` they are compared with"

_DIALECT: Final = Dialect(
    KEYWORDS,
    {"default": "write it under `workload`"},
    "write executor: { spec: { workload: { properties: { city: { type: string } } } } }",
)


class WorkloadSchema(msgspec.Struct, frozen=True, dict=True):
    """The schema of an execution's workload: ``content``, a JSON Schema."""

    content: dict[str, Any]

    @cached_property
    def _validator(self) -> Validator:
        return Validator(self.content)

    @cached_property
    def _counted(self) -> Counted | None:
        return counted(self.content)

    @property
    def properties(self) -> dict[str, Any]:
        """The subschemas by key of the workload."""
        found = self.content.get("properties")
        return found if isinstance(found, dict) else {}

    @property
    def is_closed(self) -> bool:
        """Whether it refuses other keys."""
        return self.content.get("additionalProperties") is False

    def comparisons(self, workload: MappingOf[str, Any], most: int = COMPARISONS_AT_ONCE) -> int | None:
        """The number of comparisons for the merged workload; ``None`` for more than ``most``."""
        return 0 if self._counted is None else comparisons(self._counted, workload, most)

    def refusal(self, workload: MappingOf[str, Any]) -> WorkloadRefused | None:
        """The reason why an execution with this merged workload does not start, if any. May take seconds."""
        beyond = self.part_beyond(workload)
        if beyond is not None:
            place = f"`{beyond}`" if beyond else "the top"
            reason = f"{_BEYOND}: {_SHORTEN}"
            return WorkloadRefused(f"the workload does not match its schema at {place}: {reason}", beyond, reason)
        return self.mismatch(workload)

    def mismatch(self, workload: MappingOf[str, Any]) -> WorkloadRefused | None:
        """The first mismatch of the merged workload, if any, regardless of the cost."""
        found = self._validator.mismatch(workload)
        if found is None:
            return None
        return WorkloadRefused(f"the workload does not match its schema {found}", found.pointer, found.reason)

    def part_beyond(self, workload: MappingOf[str, Any]) -> str | None:
        """The JSON pointer of the part at which it takes too many comparisons; ``None`` if it does not."""
        return None if self._counted is None else part_beyond(self._counted, workload, MAX_COMPARISONS)

    def mismatches(self, defaults: MappingOf[str, Any]) -> list[Mismatch]:
        """All mismatches of the defaults; a start may add the keys that they lack."""
        return Validator(_without_required(self.content)).mismatches(defaults)


def _longest_text(schema: Any) -> int:
    """The length of the longest ``enum`` or ``pattern``, in bytes."""
    if not isinstance(schema, MappingOf):
        return 0
    inner = [*schema.get("properties", {}).values(), schema.get("additionalProperties"), schema.get("items")]
    return max(*(len(encode(schema.get(word))) for word in ("enum", "pattern")), *map(_longest_text, inner))


def _without_required(schema: Any) -> Any:
    if not isinstance(schema, MappingOf):
        return schema
    kept = {word: value for word, value in schema.items() if word != "required"}
    kept |= {word: _without_required(kept[word]) for word in ("additionalProperties", "items") if word in kept}
    if "properties" in kept:
        kept["properties"] = {key: _without_required(part) for key, part in kept["properties"].items()}
    return kept


def read_workload_schema(
    node: Node | None, defaults: Node | None, workload: MappingOf[str, Any], problems: Problems
) -> WorkloadSchema | None:
    """The value of ``executor.spec.workload``, after reporting its problems; ``None`` without one.

    Args:
        defaults: The playbook's ``workload``, each value of which must match; null stands for a required one.
        workload: The same as plain values.
    """
    if node is None or is_null(node):
        return None
    content = read_json_schema(node, "`executor.spec.workload`", problems, _DIALECT)
    if content is None or not _is_small(node, problems):
        # Its declarations still count: other messages would be noise.
        return WorkloadSchema(node.plain()) if isinstance(node, Mapping) else None
    schema = WorkloadSchema(content)
    beyond = schema.part_beyond(workload)
    if beyond is not None:
        message = f"a default of `workload` cannot be compared with its schema: {_BEYOND}"
        problems.error("limit_exceeded", message, node if defaults is None else at_pointer(defaults, beyond), _SHORTEN)
        return schema
    is_long = schema.comparisons(workload) is None  # then compared when an execution starts, in another process
    if schema.mismatch({} if is_long else workload) is None or is_long:  # compiles the schema here in any case
        return schema
    if _longest_text(content) * len(encode(workload)) > MAX_REASONS_BYTES:
        message = "the defaults of `workload` do not match its schema, and are too many to name those that do not"
        problems.error("limit_exceeded", message, defaults or node, _SHORTEN)
        return schema
    for found in schema.mismatches(workload):
        at = at_pointer(defaults, found.pointer) if isinstance(defaults, Mapping) else node
        if at.plain() is None or (isinstance(at, Mapping) and found.keyword == "enum"):
            continue  # a start may complete it
        name = ".".join(("workload", *found.pointer.split("/")[1:]))
        problems.error("invalid_default", f"`{name}` does not match its schema: {found.reason}", at)
    return schema


def _is_small(node: Node, problems: Problems) -> bool:
    """Whether no ``enum`` is too long; reports those that are."""
    long = [
        values
        for part in walk(node)
        if isinstance(part, Mapping) and isinstance(values := part.get("enum"), Sequence)
        if len(values.items) > MAX_CHOICES
    ]
    for values in long:
        message = f"`enum` has {len(values.items):,} values; the limit is {MAX_CHOICES} (max_workload_choices)"
        problems.error("limit_exceeded", message, values)
    return not long
