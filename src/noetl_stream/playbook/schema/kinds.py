"""JSON Schema of the kinds' inputs, knobs and keychain settings, generated from their models.

Rules that a model's validators enforce in code are not in the schema; ``check`` reports them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any, Final, TypeAlias

from pydantic import BaseModel
from pydantic.errors import PydanticInvalidForJsonSchema

from noetl_stream.playbook.kinds.inputs import spellings
from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.playbook.vocabulary import legacy

Schema: TypeAlias = dict[str, Any]

HOLDS_TEMPLATE: Final[Schema] = {
    "description": "Text with a template, or a list or mapping that holds one at any depth.",
    "anyOf": [
        {"type": "string", "pattern": r"\{[{%#]"},
        {"type": "array", "contains": {"$ref": "#/$defs/holds_template"}},
        {"type": "object", "not": {"additionalProperties": {"not": {"$ref": "#/$defs/holds_template"}}}},
    ],
}
MAX_COMBINED_INPUTS: Final = 6
"""Most inputs for which the schema lists the allowed combinations; their number doubles with each input."""

_TEMPLATED: Final[Schema] = {"$ref": "#/$defs/holds_template"}
_NEVER: Final[Schema] = {"not": {}}


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def refused(advice: Mapping[str, Any]) -> dict[str, Schema]:
    """Keys of older or misplaced forms. Editors that support ``errorMessage`` show what to write instead."""
    return {
        name: {**_NEVER, "doNotSuggest": True, "errorMessage": f"{one.message}: {one.hint}"}
        for name, one in advice.items()
    }


def task_schemas(kind: KindSpec, policy: Schema, timeout: Schema) -> dict[str, Schema]:
    """The definitions ``inputs_<kind>``, ``spec_<kind>`` and ``task_<kind>``; the last adds the required inputs."""
    name = kind.kind
    inputs, needed = _properties(kind.inputs, f"{name}_input_", kind.verbatim)
    knobs, knobs_needed = _properties(kind.knobs, f"{name}_knob_", None)
    own = {"name": ref("name"), "kind": {"const": name}, "spec": ref(f"spec_{name}")}
    spec = {**refused(_without(legacy.TASK_SPEC, knobs)), **knobs, "policy": policy, "timeout": timeout}
    return {
        **needed,
        **knobs_needed,
        f"inputs_{name}": _mapping(kind.inputs, {**refused(_without(legacy.TASK, inputs)), **inputs, **own}),
        f"task_{name}": {"allOf": [ref(f"inputs_{name}"), *_needed(kind.inputs), *_together(kind)]},
        f"spec_{name}": {**_mapping(kind.knobs, spec), "type": ["object", "null"]},
    }


def settings_schema(kind: str, model: type[BaseModel]) -> dict[str, Schema]:
    """The definitions of a keychain entry of this kind."""
    properties, definitions = _properties(model, f"keychain_{kind}_", None)
    entry = _mapping(model, {**properties, "name": ref("identifier"), "kind": {"const": kind}})
    return {**definitions, f"keychain_{kind}": {"allOf": [entry, {"required": ["name"]}, *_needed(model)]}}


def by_kind(prefix: str, kinds: Collection[str]) -> Schema:
    """A mapping whose ``kind`` selects the definition it must match."""
    return {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": sorted(kinds)}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": ref(f"{prefix}{kind}")}
            for kind in sorted(kinds)
        ],
    }


def _without(words: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    return {name: advice for name, advice in words.items() if name not in known}


def _is_free(model: type[BaseModel]) -> bool:
    return model.model_config.get("extra") == "allow"


def _properties(
    model: type[BaseModel], prefix: str, verbatim: Collection[str] | None
) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """The properties of a model, synonyms included, and the definitions they refer to.

    Args:
        prefix: Prefix of those definitions' names.
        verbatim: Fields that are never rendered; ``None`` for all fields.
    """
    try:
        schema = model.model_json_schema(ref_template=f"#/$defs/{prefix}{{model}}")
    except PydanticInvalidForJsonSchema:  # a plugin's model may have types without a JSON form
        schema = {"properties": {names[0]: {} for names in _synonyms(model).values()}}
    fields = {spellings(model)[key]: _untitled(field) for key, field in schema.get("properties", {}).items()}
    needed = {f"{prefix}{name}": _untitled(one) for name, one in schema.get("$defs", {}).items()}
    properties = {
        spelling: fields[name] if verbatim is None or name in verbatim else {"anyOf": [fields[name], _TEMPLATED]}
        for spelling, name in spellings(model).items()
    }
    return properties, needed


def _untitled(schema: Any) -> Any:
    """Without the titles that pydantic derives from names, since editors would show them."""
    if isinstance(schema, list):
        return [_untitled(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: _untitled(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}


def _mapping(model: type[BaseModel], properties: dict[str, Schema]) -> Schema:
    """A mapping with these properties, which allows one spelling of each field."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": _is_free(model)}
    both = [list(pair) for names in _synonyms(model).values() for pair in combinations(names, 2)]
    return {**schema, "not": {"anyOf": [{"required": pair} for pair in both]}} if both else schema


def _synonyms(model: type[BaseModel]) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for spelling, name in spellings(model).items():
        fields.setdefault(name, []).append(spelling)
    return fields


def _needed(model: type[BaseModel]) -> list[Schema]:
    """The required fields, under any spelling."""
    return [
        {"anyOf": [{"required": [spelling]} for spelling in names]}
        for name, names in _synonyms(model).items()
        if model.model_fields[name].is_required()
    ]


def _together(kind: KindSpec) -> list[Schema]:
    """The combinations of inputs that are allowed, if the kind restricts them."""
    fields = list(kind.inputs.model_fields)
    if kind.combination_error is None or len(fields) > MAX_COMBINED_INPUTS:
        return []
    sets = [names for size in range(len(fields) + 1) for names in combinations(fields, size)]
    return [{"anyOf": [_given(names, fields) for names in sets if kind.combination_error(names) is None]}]


def _given(names: Collection[str], fields: Collection[str]) -> Schema:
    """These fields have a value and the others do not."""
    null: Schema = {"type": "null"}
    values = {name: {"not": null} if name in names else null for name in fields}
    return {"required": list(names), "properties": values}
