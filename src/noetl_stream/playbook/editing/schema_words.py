"""The words of the JSON Schema of playbooks for a place in a text that is being written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from noetl_stream.playbook.editing.tree import (
    Step,
    TextList,
    TextMapping,
    TextPart,
    TextScalar,
    child_of,
    find,
    names_in,
    pairs_of,
)

Schema = dict[str, Any]

_DEEPEST: Final = 24
_DEEPEST_CONDITION: Final = 8


class KnownKey(msgspec.Struct, frozen=True):
    """A key that a place may have. ``opens`` is the kind of its value: ``mapping``, ``list`` or empty."""

    name: str
    description: str
    opens: str


class SchemaWords:
    """The keys, values and descriptions of one JSON Schema, by path."""

    def __init__(self, schema: Schema) -> None:
        self._root: Final = schema

    def keys_at(self, root: TextPart | None, path: tuple[Step, ...], *, also_there: bool = False) -> list[KnownKey]:
        """The keys that the mapping at a path may have, without its present keys unless ``also_there``."""
        there = set() if also_there else set(names_in(find(root, path)))
        found: dict[str, KnownKey] = {}
        held = self._schemas_at(root, path)
        properties = [pair for schema in held for pair in schema.get("properties", {}).items()]
        for name, one in [*properties, *(pair for schema in held for pair in self._deciding_keys(schema, there))]:
            known = [*self._expand(one, None)]
            if not known or name in there or (name in found and found[name].description):
                continue
            description = _description(known)
            if not description.startswith("Reserved"):
                found[name] = KnownKey(name, description, _opens(known))
        return [*found.values()]

    def _deciding_keys(self, schema: Schema, there: set[str]) -> Iterator[tuple[str, Schema]]:
        """The keys that would satisfy a condition that asks only for keys, such as ``else``."""
        condition = schema.get("if", {})
        if condition.keys() == {"required"} and not there & set(condition["required"]):
            for inner in self._expand(schema.get("then", {}), None):
                yield from (
                    (name, inner["properties"][name])
                    for name in condition["required"]
                    if name in inner.get("properties", {})
                )

    def values_at(self, root: TextPart | None, path: tuple[Step, ...]) -> list[str]:
        """The words that the value at a path may be, as far as known."""
        words: dict[str, None] = {}
        for schema in self._schemas_at(root, path):
            listed = [schema["const"]] if "const" in schema else schema.get("enum", ())
            if not listed and "boolean" in _types(schema):
                listed = [True, False]
            for word in listed:
                if isinstance(word, bool):
                    words["true" if word else "false"] = None
                elif isinstance(word, str | int) and word != "":
                    words[str(word)] = None
        return [*words]

    def about(self, root: TextPart | None, path: tuple[Step, ...]) -> list[str]:
        """The texts about the key that ends a path: its description, its possible values, its default."""
        if not path or not isinstance(path[-1], str):
            return []
        held = [inner for schema in self._schemas_at(root, path[:-1]) for inner in _schemas_within(schema, path[-1])]
        known = [one for schema in held for one in self._expand(schema, find(root, path))]
        words = self.values_at(root, path)
        types = list(dict.fromkeys(kind for one in known for kind in _types(one) if kind != "null"))
        default = next((one["default"] for one in known if one.get("default") is not None), None)
        kinds = f"One of {', '.join(f'`{word}`' for word in words)}." if words else ""
        if types and not words:
            kinds = f"Type: {' or '.join(types)}."
        shown = "" if default is None else f"Default: `{msgspec.json.encode(default).decode()}`."
        return [line for line in (_description(known), kinds, shown) if line]

    def _schemas_at(self, root: TextPart | None, path: tuple[Step, ...]) -> list[Schema]:
        """The schemas that apply at a path, as far as the text so far decides."""
        held = [*self._expand(self._root, root)]
        for step in path:
            root = child_of(root, step)
            inner = [one for schema in held for one in _schemas_within(schema, step)]
            held = [found for schema in inner for found in self._expand(schema, root)]
        return held

    def _expand(self, schema: Schema, part: TextPart | None, depth: int = 0) -> Iterator[Schema]:
        """Yields a schema, and all schemas that apply with it."""
        if depth > _DEEPEST or schema.get("doNotSuggest"):
            return
        yield schema
        also = [*schema.get("allOf", ()), *schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if (referred := self._resolve(schema)) is not None:
            also.insert(0, referred)
        if "if" in schema:
            chosen = schema.get("then" if self._matches(schema["if"], part) else "else")
            also += [chosen] if chosen else []
        for one in also:
            yield from self._expand(one, part, depth + 1)

    def _resolve(self, schema: Schema) -> Schema | None:
        name = schema.get("$ref", "").removeprefix("#/$defs/")
        return self._root["$defs"].get(name) if name else None

    def _matches(self, schema: Schema, part: TextPart | None, depth: int = 0) -> bool:
        """Whether the text so far matches the condition of an ``if``."""
        if depth > _DEEPEST_CONDITION:
            return True
        names = names_in(part)
        referred = self._resolve(schema)
        properties, other = schema.get("properties", {}), schema.get("additionalProperties")
        return (
            (referred is None or self._matches(referred, part, depth + 1))
            and _is_of(schema, part)
            and all(name in names for name in schema.get("required", ()))
            and schema.get("minProperties", 0) <= len(names) <= schema.get("maxProperties", len(names))
            and all(self._matches(one, part, depth + 1) for one in schema.get("allOf", ()))
            and ("anyOf" not in schema or any(self._matches(one, part, depth + 1) for one in schema["anyOf"]))
            and ("not" not in schema or not self._matches(schema["not"], part, depth + 1))
            and all(
                self._matches(inner, pair.value, depth + 1)
                for pair in pairs_of(part)
                if isinstance(inner := properties.get(pair.key.value, other), dict)
            )
        )


def _schemas_within(schema: Schema, step: Step) -> list[Schema]:
    if isinstance(step, int):
        inner = schema.get("items")
    else:
        inner = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
    return [inner] if isinstance(inner, dict) else []


def _is_of(schema: Schema, part: TextPart | None) -> bool:
    words = [schema["const"]] if "const" in schema else schema.get("enum")
    if words is not None and not (isinstance(part, TextScalar) and part.value in map(str, words)):
        return False
    wanted = {"object": TextMapping, "array": TextList}.get(str(schema.get("type")))
    return wanted is None or isinstance(part, wanted)


def _types(schema: Schema) -> list[str]:
    kind = schema.get("type", [])
    return [kind] if isinstance(kind, str) else kind


def _description(schemas: list[Schema]) -> str:
    return next((one["description"] for one in schemas if one.get("description")), "")


def _opens(schemas: list[Schema]) -> str:
    kinds = {kind for schema in schemas for kind in _types(schema)} - {"null"}
    return {"object": "mapping", "array": "list"}.get(next(iter(kinds)), "") if len(kinds) == 1 else ""
