"""Building blocks of the JSON Schemas of the language's keys."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Schema: TypeAlias = dict[str, Any]

ANYTHING: Final[Schema] = {}
NULL: Final[Schema] = {"type": "null"}
SECONDS: Final[Schema] = {"type": "number", "exclusiveMinimum": 0}
MAPPING: Final[Schema] = {"type": ["object", "null"]}


def ref(name: str) -> Schema:
    """The schema that refers to a definition."""
    return {"$ref": f"#/$defs/{name}"}


def or_null(schema: Schema) -> Schema:
    """The schema of a value, or null, which counts as absent."""
    return {"anyOf": [schema, NULL]}


def section(model: str) -> Schema:
    """The schema of a section, given the name of its model, or null."""
    return or_null(ref(model))


def list_of(item: Schema, least: int = 0) -> Schema:
    """The schema of a list with at least so many items."""
    return {"type": "array", "items": item, **({"minItems": least} if least else {})}


def number_or_template(number: Schema) -> Schema:
    """The schema of a number, or of text that renders to one."""
    return {"anyOf": [number, {"type": "string", "pattern": r"\{\{"}]}


def mapping_of(value: Schema) -> Schema:
    """The schema of a mapping of names to values."""
    return {"type": "object", "propertyNames": ref("identifier"), "additionalProperties": value}


def mapping_with(name: str, value: Schema) -> Schema:
    """The schema of a mapping that has this key with such a value."""
    return {"type": "object", "properties": {name: value}, "required": [name]}


def ladder(rule: str, then: Schema) -> Schema:
    """The schema of rules: ``when`` and ``then``, ``when`` and ``then`` …, ``else``."""
    otherwise = {"allOf": [ref("Else"), {"properties": {"then": then}}]}
    rung = {"allOf": [ref(rule), {"required": ["when"], "properties": {"then": then}}]}
    only_else = {"properties": {"else": otherwise}, "additionalProperties": False}
    return list_of({"type": "object", "if": {"required": ["else"]}, "then": only_else, "else": rung}, 1)
