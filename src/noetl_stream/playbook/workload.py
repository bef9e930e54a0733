"""``executor.spec.workload``: the JSON Schema of the merged workload (LANGUAGE §9 *Schema of the workload*).

A schema has only keywords with which each part of a value meets one subschema, so how many comparisons a workload takes
can be counted before the first. A server makes a few where it decides, has another process make many, and refuses a
workload that takes too many.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from functools import cached_property
from typing import Any, Final

import msgspec

from noetl_stream.errors import WorkloadRefused
from noetl_stream.model.json.codec import encode
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.sections import is_null
from noetl_stream.playbook.results.comparisons import Counted, comparisons, counted, part_beyond
from noetl_stream.playbook.results.result_schema import Dialect, at_pointer, read_json_schema
from noetl_stream.playbook.results.validator import Mismatch, Validator
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Sequence, walk

KEYWORDS: Final = frozenset([
    "type", "enum", "properties", "required", "additionalProperties", "items", "minItems", "maxItems",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern",
    "description",
])  # fmt: skip
MAX_CHOICES: Final = 100
"""Values of an ``enum``: a value may be compared with each."""
MAX_COMPARISONS: Final = 150_000_000
"""Of a workload with its schema, at most 2 s. One of a megabyte with ordinary patterns takes fewer."""

COMPARISONS_AT_ONCE: Final = 2_500_000
"""As many take at most 25 ms, and to count them as long again."""

MAX_REASONS_BYTES: Final = 64 * 1024 * 1024
"""Of what may be said of defaults that do not match: the text of an ``enum`` or a ``pattern`` for each of them."""

_BEYOND: Final = f"up to here it takes more than {MAX_COMPARISONS:,} comparisons (max_workload_comparisons)"
_SHORTEN: Final = "shorten its texts and lists, or simplify the `pattern` or `enum` they are compared with"

_DIALECT: Final = Dialect(
    KEYWORDS,
    {"default": "write it under `workload`"},
    "write executor: { spec: { workload: { properties: { city: { type: string } } } } }",
)


class WorkloadSchema(msgspec.Struct, frozen=True, dict=True):
    """What the workload of an execution must match: ``content``, a JSON Schema."""

    content: dict[str, Any]

    @cached_property
    def _validator(self) -> Validator:
        return Validator(self.content)

    @cached_property
    def _counted(self) -> Counted | None:
        return counted(self.content)

    @property
    def properties(self) -> dict[str, Any]:
        """Its schemas by key of the workload."""
        found = self.content.get("properties")
        return found if isinstance(found, dict) else {}

    @property
    def is_closed(self) -> bool:
        """Whether it refuses other keys."""
        return self.content.get("additionalProperties") is False

    def comparisons(self, workload: MappingOf[str, Any], most: int = COMPARISONS_AT_ONCE) -> int | None:
        """How many comparisons the merged workload takes; ``None`` if they are more than ``most``."""
        return 0 if self._counted is None else comparisons(self._counted, workload, most)

    def refusal(self, workload: MappingOf[str, Any]) -> WorkloadRefused | None:
        """Why an execution with this merged workload does not start, if it does not. May take seconds."""
        beyond = self.part_beyond(workload)
        if beyond is not None:
            place = f"`{beyond}`" if beyond else "the top"
            reason = f"{_BEYOND}: {_SHORTEN}"
            return WorkloadRefused(f"the workload does not match its schema at {place}: {reason}", beyond, reason)
        return self.mismatch(workload)

    def mismatch(self, workload: MappingOf[str, Any]) -> WorkloadRefused | None:
        """Where the merged workload does not match, if it does not, whatever that takes."""
        found = self._validator.mismatch(workload)
        if found is None:
            return None
        return WorkloadRefused(f"the workload does not match its schema {found}", found.pointer, found.reason)

    def part_beyond(self, workload: MappingOf[str, Any]) -> str | None:
        """The JSON pointer of the part at which it takes too many comparisons; ``None`` if it does not."""
        return None if self._counted is None else part_beyond(self._counted, workload, MAX_COMPARISONS)

    def mismatches(self, defaults: MappingOf[str, Any]) -> list[Mismatch]:
        """Everything in defaults that does not match; a start may add the keys that they lack."""
        return Validator(_without_required(self.content)).mismatches(defaults)


def _longest_text(schema: Any) -> int:
    """The most bytes that an ``enum`` or a ``pattern`` has."""
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
        defaults: The playbook's ``workload``, each value of which must match; null stands for one to be given.
        workload: The same as plain values.
    """
    if node is None or is_null(node):
        return None
    content = read_json_schema(node, "`executor.spec.workload`", problems, _DIALECT)
    if content is None or not _is_small(node, problems):
        # What it declares is bound all the same: other messages would be noise.
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
