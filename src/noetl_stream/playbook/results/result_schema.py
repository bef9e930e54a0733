"""Reads JSON Schemas: of a task's result, inline or named in the catalog, and of the workload (LANGUAGE §9, §10, §15).

The dialect is draft 2020-12 without keywords that make validation access the network or take very long: references are
local, patterns take linear time, and no subschema recurses along two ways. An unknown keyword would match anything, and
is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from collections.abc import Mapping as MappingOf
from functools import cached_property
from hashlib import sha256
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from noetl_stream.model.json.codec import encode
from noetl_stream.playbook.codes import Code
from noetl_stream.playbook.diagnostics import Location, Problems
from noetl_stream.playbook.model.sections import Required, Section, described, report_wrong_type
from noetl_stream.playbook.results.validator import InvalidSchema, SchemaRefused, Validator, Walk
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.yaml.nodes import (
    Mapping,
    MappingKey,
    Node,
    Scalar,
    Sequence,
    descend,
    holds_template,
    node_at,
)

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_SINGLE: Final = frozenset([
    "additionalProperties", "unevaluatedProperties", "items", "unevaluatedItems", "contains", "propertyNames",
    "not", "if", "then", "else",
])  # fmt: skip
_LISTED: Final = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
_NAMED: Final = frozenset(["properties", "patternProperties", "dependentSchemas", "$defs"])
_PLAIN: Final = frozenset([
    "type", "const", "enum", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum",
    "maxLength", "minLength", "pattern", "format", "maxItems", "minItems", "uniqueItems", "maxContains", "minContains",
    "maxProperties", "minProperties", "required", "dependentRequired", "title", "description", "default", "deprecated",
    "examples", "readOnly", "writeOnly", "$comment", "$ref",
])  # fmt: skip
_AT_ROOT: Final = frozenset(["$schema", "$id"])
KEYWORDS: Final = _SINGLE | _LISTED | _NAMED | _PLAIN | _AT_ROOT
_REFUSED: Final = {
    "definitions": "write `$defs`",
    "dependencies": "write `dependentRequired` or `dependentSchemas`",
    "additionalItems": "write `prefixItems` and `items`",
    **dict.fromkeys(["$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"], "write `$ref: '#/$defs/…'`"),
}
MAX_PATTERNS: Final = 500
"""The most patterns of one schema: each may take a megabyte and some milliseconds to compile."""
_EXAMPLE: Final = "write schema: { type: object, properties: { … } }, or schema: { path: schemas/order, version: '1' }"


class NamedSchema(Section):
    """A schema of the catalog, the latest without ``version``."""

    title = "`spec.result.schema`"
    example = _EXAMPLE

    path: Annotated[str, Required("path: schemas/order")] = described("The path of a registered schema.", default="")
    version: str | None = described("Its version; without it the latest.")


class ResultSchema(msgspec.Struct, frozen=True, dict=True):
    """The JSON Schema of a task's result: ``content``, or the schema at ``address`` (``PATH[@VERSION]``)."""

    content: Any = None
    address: str = ""

    @cached_property
    def digest(self) -> str:
        """The digest of ``content``: its SHA-256, in hex."""
        return sha256(encode(self.content)).hexdigest()


def read_result_schema(node: Node, problems: Problems) -> ResultSchema | None:
    """Reads the value of ``spec.result.schema``; ``None``, after reporting, if it has problems."""
    if isinstance(node, Mapping) and "path" in node.keys:
        named = NamedSchema.from_node(node, problems)
        path = named.path.removeprefix("/")
        return ResultSchema(address=path if named.version is None else f"{path}@{named.version}") if path else None
    content = read_json_schema(node, "`spec.result.schema`", problems)
    return None if content is None else ResultSchema(content)


class Dialect(NamedTuple):
    """A dialect of JSON Schema: the allowed keywords, the replacements of others, and an example."""

    keywords: Collection[str]
    instead: MappingOf[str, str]
    example: str


_OF_RESULTS: Final = Dialect(KEYWORDS, _REFUSED, _EXAMPLE)


def read_json_schema(
    node: Node, what: str, problems: Problems, dialect: Dialect = _OF_RESULTS
) -> dict[str, Any] | None:
    """Reads a JSON Schema; ``None``, after reporting, if ``node`` is none."""
    if not isinstance(node, Mapping):
        report_wrong_type(node, what, "a JSON Schema", problems, dialect.example)
        return None
    found = list(_problems(node, dialect, is_root=True))
    for code, message, at, hint in found:
        problems.error(code, message, at, hint)
    if holds_template(node):
        problems.warn("template_not_rendered", "a schema is not rendered: its text stays as written", node)
    schema: dict[str, Any] = node.plain()
    if found or not _is_usable(schema, node, problems):
        return None
    return schema


_Problem = tuple[Code, str, Location, str | None]


def _problems(node: Node, dialect: Dialect, *, is_root: bool = False) -> Iterator[_Problem]:
    """The keywords of a schema, at any depth, that are unknown or refused."""
    if not isinstance(node, Mapping):
        return
    keywords, instead, _ = dialect
    for name, key in node.keys.items():
        value = node.values[name]
        if name in instead or (name in KEYWORDS and name not in keywords):
            hint = instead.get(name) or f"use {list_names(sorted(keywords))}"
            yield "invalid_schema", f"`{name}` is not supported", key, hint
        elif name in _AT_ROOT and not is_root:
            yield "invalid_schema", f"`{name}` belongs at the root of the schema", key, "remove it"
        elif name == "$schema" and value.plain() != DIALECT:
            yield "invalid_schema", f"`$schema` must be `{DIALECT}`", value, "remove it: that is the default"
        elif name == "$ref":
            if not (isinstance(value, Scalar) and isinstance(value.value, str) and _is_local(value.value)):
                yield "invalid_schema", "a reference must be local", value, "write `$ref: '#/$defs/…'`"
        elif name not in keywords and not name.startswith("x-"):
            hint = did_you_mean(name, sorted(keywords)) or "draft 2020-12 has none; your own begin with `x-`"
            yield "unknown_key", f"unknown keyword `{name}` in a schema", key, hint
    for part in _subschemas(node):
        yield from _problems(part, dialect)


def _is_local(reference: str) -> bool:
    return reference == "#" or reference.startswith("#/")


def _subschemas(node: Mapping) -> Iterator[Node]:
    for name, value in node.values.items():
        if name in _SINGLE:
            yield value
        elif name in _LISTED and isinstance(value, Sequence):
            yield from value.items
        elif name in _NAMED and isinstance(value, Mapping):
            yield from value.values.values()


def _patterns(node: Node) -> Iterator[Node | MappingKey]:
    if isinstance(node, Mapping):
        if "pattern" in node.values:
            yield node.values["pattern"]
        named = node.values.get("patternProperties")
        yield from named.keys.values() if isinstance(named, Mapping) else ()
        for part in _subschemas(node):
            yield from _patterns(part)


def _is_usable(schema: dict[str, Any], node: Mapping, problems: Problems) -> bool:
    beyond = next(islice(_patterns(node), MAX_PATTERNS, None), None)
    if beyond is not None:
        message = f"the schema has more than {MAX_PATTERNS} patterns (max_schema_patterns)"
        problems.error("limit_exceeded", message, beyond, "validate fewer texts by a pattern")
        return False
    try:
        Validator(schema)
        Walk(schema).check_bounded()
    except InvalidSchema as error:
        problems.error("invalid_schema", error.message, descend(node, error.path))
    except SchemaRefused as error:
        hint = "give each alternative its own part of the value, or validate less"
        problems.error("unbounded_schema", error.message, at_pointer(node, error.pointer), hint)
    else:
        return True
    return False


def at_pointer(node: Node, pointer: str) -> Node:
    """The part of a value at a JSON pointer, as far as it exists."""
    for part in pointer.split("/")[1:]:
        inner = node_at(node, f"/{part}")
        if inner is None:
            break
        node = inner
    return node
