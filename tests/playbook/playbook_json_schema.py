"""Whether a value fits a JSON Schema (draft 2020-12): the keywords our schema uses, and no others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

Schema = Any
_ANNOTATIONS = {"$schema", "$defs", "title", "description", "default", "examples", "doNotSuggest", "errorMessage"}


class JsonSchema:
    """A schema with its definitions.

    Raises:
        AssertionError: it uses a keyword that is unknown here, wherever that stands.
    """

    def __init__(self, schema: Schema) -> None:
        self.root = schema
        self._check(schema)

    def fits(self, value: Any) -> bool:
        return self._fits(self.root, value)

    def _check(self, schema: Schema) -> None:
        if isinstance(schema, bool):
            return
        unknown = schema.keys() - _ANNOTATIONS - _RULES.keys() - {"then", "else"}
        assert not unknown, f"keywords this reader does not know: {sorted(unknown)}"
        for name in ("properties", "$defs"):
            for one in schema.get(name, {}).values():
                self._check(one)
        for name in ("allOf", "anyOf", "oneOf"):
            for one in schema.get(name, []):
                self._check(one)
        for name in ("items", "contains", "not", "if", "then", "else", "propertyNames", "additionalProperties"):
            self._check(schema.get(name, True))
        if "$ref" in schema:
            self._definition(schema["$ref"])

    def _definition(self, reference: str) -> Schema:
        prefix, name = reference[: len("#/$defs/")], reference[len("#/$defs/") :]
        assert prefix == "#/$defs/" and name in self.root["$defs"], f"{reference} leads nowhere"
        return self.root["$defs"][name]

    def _fits(self, schema: Schema, value: Any) -> bool:
        if isinstance(schema, bool):
            return schema
        return all(_RULES[name](self, schema, value) for name in schema if name in _RULES)

    def _object(self, schema: Schema, value: Any) -> bool:
        """``properties`` and ``additionalProperties``, which goes by them."""
        if not isinstance(value, dict):
            return True
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        return all(self._fits(known.get(name, others), one) for name, one in value.items())

    def _condition(self, schema: Schema, value: Any) -> bool:
        branch = "then" if self._fits(schema["if"], value) else "else"
        return self._fits(schema.get(branch, True), value)


def _is(kind: str, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "integer":
            return is_number and float(value).is_integer()
        case "number":
            return is_number
        case _:
            types = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
            return isinstance(value, types[kind])


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON values: true is not 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _text(rule: Callable[[str, Any], bool]) -> Callable[[JsonSchema, Any, Any, str], bool]:
    return lambda _, schema, value, name: not isinstance(value, str) or rule(value, schema[name])


def _number(rule: Callable[[float, float], bool]) -> Callable[[JsonSchema, Any, Any, str], bool]:
    return lambda _, schema, value, name: not _is("number", value) or rule(value, schema[name])


def _array(rule: Callable[[JsonSchema, list[Any], Any], bool]) -> Callable[[JsonSchema, Any, Any, str], bool]:
    return lambda self, schema, value, name: not isinstance(value, list) or rule(self, value, schema[name])


def _mapping(rule: Callable[[JsonSchema, dict[str, Any], Any], bool]) -> Callable[[JsonSchema, Any, Any, str], bool]:
    return lambda self, schema, value, name: not isinstance(value, dict) or rule(self, value, schema[name])


def _any(rule: Callable[[JsonSchema, Any, Any], bool]) -> Callable[[JsonSchema, Any, Any, str], bool]:
    return lambda self, schema, value, name: rule(self, value, schema[name])


_NAMED: dict[str, Callable[[JsonSchema, Any, Any, str], bool]] = {
    "$ref": _any(lambda self, value, name: self._fits(self._definition(name), value)),
    "type": _any(
        lambda _, value, kinds: any(_is(one, value) for one in ([kinds] if isinstance(kinds, str) else kinds))
    ),
    "enum": _any(lambda _, value, values: any(_same(one, value) for one in values)),
    "const": _any(lambda _, value, wanted: _same(wanted, value)),
    "allOf": _any(lambda self, value, schemas: all(self._fits(one, value) for one in schemas)),
    "anyOf": _any(lambda self, value, schemas: any(self._fits(one, value) for one in schemas)),
    "oneOf": _any(lambda self, value, schemas: sum(self._fits(one, value) for one in schemas) == 1),
    "not": _any(lambda self, value, schema: not self._fits(schema, value)),
    "if": lambda self, schema, value, name: self._condition(schema, value),
    "properties": lambda self, schema, value, name: self._object(schema, value),
    "additionalProperties": lambda self, schema, value, name: self._object(schema, value),
    "propertyNames": _mapping(lambda self, value, schema: all(self._fits(schema, key) for key in value)),
    "required": _mapping(lambda _, value, names: all(name in value for name in names)),
    "dependentRequired": _mapping(
        lambda _, value, needs: all(one in value for name in needs if name in value for one in needs[name])
    ),
    "items": _array(lambda self, value, schema: all(self._fits(schema, one) for one in value)),
    "contains": _array(lambda self, value, schema: any(self._fits(schema, one) for one in value)),
    "minItems": _array(lambda _, value, least: len(value) >= least),
    "pattern": _text(lambda value, pattern: re.search(pattern, value) is not None),
    "minLength": _text(lambda value, least: len(value) >= least),
    "maxLength": _text(lambda value, most: len(value) <= most),
    "minimum": _number(lambda value, least: value >= least),
    "maximum": _number(lambda value, most: value <= most),
    "exclusiveMinimum": _number(lambda value, least: value > least and math.isfinite(value)),
}
_RULES: dict[str, Callable[[JsonSchema, Any, Any], bool]] = {
    name: (lambda self, schema, value, name=name, rule=rule: rule(self, schema, value, name))  # type: ignore[misc]
    for name, rule in _NAMED.items()
}
