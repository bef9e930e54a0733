"""JSON Schema (draft 2020-12) of the language: ``noetl-stream playbook schema``.

Generated from the parser's own models, whose fields describe each key, and the kinds' models of inputs, knobs and
keychain settings. Rules that a model's validators enforce in code are not in the schema; ``check`` reports them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import msgspec
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.playbook.kinds.inputs import spellings
from noetl_stream.playbook.kinds.keychain import installed_kinds
from noetl_stream.playbook.kinds.spec import LANGUAGE_KINDS, Kinds, KindSpec
from noetl_stream.playbook.model import (
    document,
    ending,
    flow_control,
    layering,
    loop,
    observability,
    placement,
    policy,
    step,
    sugar,
    task,
    workbook,
)
from noetl_stream.playbook.model.sections import (
    NULL,
    SECONDS,
    Required,
    Reserved,
    Schema,
    Section,
    list_of,
    ref,
    section,
)
from noetl_stream.playbook.results.result_schema import DIALECT, NamedSchema
from noetl_stream.playbook.results.result_table import ResultTable, TableColumn
from noetl_stream.playbook.vocabulary import advice, hints
from noetl_stream.playbook.vocabulary.names import MAX_NAME_CHARS
from noetl_stream.playbook.workload import MAX_CHOICES
from noetl_stream.template.runtime.scope import NAMESPACES

HOLDS_TEMPLATE: Final[Schema] = {
    "description": "Text with a template, or a list or mapping that holds one at any depth.",
    "anyOf": [
        {"type": "string", "pattern": r"\{[{%#]"},
        {"type": "array", "contains": {"$ref": "#/$defs/holds_template"}},
        {"type": "object", "not": {"additionalProperties": {"not": {"$ref": "#/$defs/holds_template"}}}},
    ],
}
MAX_COMBINED_INPUTS: Final = 6
"""The most inputs for which the schema lists the allowed combinations; their number doubles with each input."""

_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Schema] = {"type": "number"}
_TYPE: Final[Schema] = {"enum": ["string", "number", "integer", "boolean", "array", "object", "null"]}
_WORKLOAD_SCHEMA: Final[Schema] = {
    "type": "object",
    "properties": {
        "type": {"anyOf": [_TYPE, {"type": "array", "items": _TYPE, "minItems": 1, "uniqueItems": True}]},
        "enum": {"type": "array", "maxItems": MAX_CHOICES},
        "properties": {"type": "object", "additionalProperties": ref("workload_part")},
        "required": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "additionalProperties": ref("workload_part"),
        "items": ref("workload_part"),
        **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength"), _COUNT),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
        "pattern": {"type": "string"},
        "description": {"type": "string"},
    },
    "patternProperties": {"^x-": {}},
    "additionalProperties": False,
}
"""The schema of a workload schema with its :data:`~noetl_stream.playbook.workload.KEYWORDS`."""

LAYERED: Final = (document.ExecutorSpec, step.StepSpec, loop.LoopSpec)
"""Sections that may also hold task knobs, which are checked in the tasks (LANGUAGE §1 *Layering*)."""

SECTIONS: Final[tuple[type[Section], ...]] = (
    *(document.Root, document.Executor, document.ExecutorSpec, document.ExecutorPolicy, document.PolicyDefaults),
    *(step.Step, step.StepSpec, step.StepPolicy, ending.StepCompensation, ending.ExecutorCompensation),
    *(flow_control.Concurrency, flow_control.KeyLimit, flow_control.ExecutionQuotas),
    *(placement.PlacementLabels, placement.Resources),
    *(flow_control.LimitRate, step.Lifecycle, step.Router, step.RouterSpec, step.Arc, loop.Loop, loop.LoopSpec),
    *(flow_control.ArcSpec, flow_control.RouterPolicy),
    *(loop.LoopPolicy, loop.LoopFailure, policy.Admit, policy.AdmitWait, policy.NextWait, policy.TaskPolicy),
    *(policy.Rule, policy.Else, policy.Then, policy.SharedEntry, sugar.ChooseEntry, sugar.BranchRule),
    *(sugar.WhileEntry, sugar.UntilEntry, sugar.Round, task.ResultSpec, workbook.WorkbookTasks),
    *(workbook.ListedEntry, document.Metadata, layering.TimeoutParts, layering.TaskTimeoutParts),
    *(document.PolicyFailure, document.PolicyResults, policy.Allow),
    *(observability.Emit, observability.EmitEntry, observability.SpanAttributes),
    *(NamedSchema, ResultTable, TableColumn),
)
"""The sections in the order of their definitions."""


def playbook_schema(kinds: Kinds, limits: Limits = DEFAULT_LIMITS) -> Schema:
    """The schema of a playbook that uses these tool kinds and stays within these limits."""
    kinds = {**kinds, **LANGUAGE_KINDS}
    definitions = {**_common(limits), **{model.__name__: _section_schema(model) for model in SECTIONS}}
    for model in LAYERED:
        own = definitions[model.__name__]["properties"]
        own |= {name: {} for kind in kinds.values() for name in spellings(kind.knobs) if name not in own}
    for kind in kinds.values():
        definitions |= _task_schemas(kind)
    keychain_settings = installed_kinds().settings
    for name, settings in keychain_settings.items():
        definitions |= _settings_schema(name, settings)
    definitions["task_workbook"]["allOf"].append({"anyOf": [{"required": ["task"]}, {"required": ["name"]}]})
    making = [name for name, kind in kinds.items() if task.makes_tables(kind)]
    labels = {"propertyNames": ref("name"), "additionalProperties": _mapping_by_kind("task_", kinds)}
    definitions |= {
        "entry": _entry(kinds),
        "tasks": list_of({"if": _LABELLED, "then": labels, "else": ref("entry")}, 1),
        "workbook_task": {**_mapping_by_kind("inputs_", kinds.keys() - {"workbook"}), "not": {"required": ["name"]}},
        "keychain_entry": _mapping_by_kind("keychain_", keychain_settings),
        "rows": _mapping_by_kind("rows_", making) if making else {"not": {}},
    }
    root = definitions.pop(document.Root.__name__)
    return {"$schema": DIALECT, "title": "NoETL playbook", **root, "$defs": definitions}


def _common(limits: Limits) -> dict[str, Schema]:
    return {
        "identifier": {"type": "string", "maxLength": MAX_NAME_CHARS, "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "name": {
            **ref("identifier"),
            "description": "Matches [A-Za-z_][A-Za-z0-9_]*, contains no `__`, and is not a template namespace.",
            "not": {"anyOf": [{"enum": sorted(NAMESPACES)}, {"pattern": "__"}]},
        },
        "pool": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "guard": {
            "description": "A boolean, or exactly one {{ expression }}.",
            "anyOf": [{"type": "boolean"}, ref("expression")],
        },
        "expression": {"type": "string", "pattern": r"^\s*\{\{[\s\S]*\}\}\s*$"},
        "holds_template": HOLDS_TEMPLATE,
        "workload_schema": _WORKLOAD_SCHEMA,
        "workload_part": {"anyOf": [{"type": "boolean"}, ref("workload_schema")]},
        "timeout": {"description": "Seconds for one attempt.", "anyOf": [SECONDS, ref("TimeoutParts")]},
        "task_timeout": {
            "description": "Seconds for one attempt; they may be templates.",
            "anyOf": [SECONDS, ref("holds_template"), ref("TaskTimeoutParts")],
        },
        "limits": {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: _limit(value) for name, value in msgspec.structs.asdict(limits).items()},
        },
    }


def _limit(value: float) -> Schema:
    whole = isinstance(value, int)
    return {"type": "integer" if whole else "number", "minimum": 1 if whole else 0, "maximum": value}


def _entry(kinds: Kinds) -> Schema:
    """The schema of a pipeline entry: a task, or a construct, recognized by its keyword."""
    schema: Schema = _mapping_by_kind("task_", kinds)
    for word, model in reversed(sugar.WORDS.items()):
        schema = {"if": {"required": [word]}, "then": ref(model.__name__), "else": schema}
    return {"type": "object", "if": {"required": ["kind"]}, "then": _mapping_by_kind("task_", kinds), "else": schema}


_LABELLED: Final[Schema] = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": {"type": "object", "required": ["kind"]},
}
"""The schema of a labelled task."""


def _section_schema(model: type[Section]) -> Schema:
    properties = _rejected_keys(model.rejected)
    required = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        schema = _value(model, name)
        if any(isinstance(mark, Required) for mark in field.metadata):
            required.append(key)
            schema = {"allOf": [schema, {"not": NULL}]}
        properties[key] = {"description": field.description, **schema} if field.description else schema
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return {**schema, **model.schema_rules}


def _value(model: type[Section], name: str) -> Schema:
    """The schema of a key of a section."""
    field = model.model_fields[name]
    for mark in field.metadata:
        if isinstance(mark, Reserved):
            return {"description": "Reserved for a later version.", "enum": [None, "", [], {}, *mark.neutral]}
    if isinstance(field.json_schema_extra, dict):
        return field.json_schema_extra
    annotation: Any = field.annotation
    return TypeAdapter(annotation).json_schema()


def _rejected_keys(words: Mapping[str, hints.RejectedKey], known: Collection[str] = ()) -> dict[str, Schema]:
    """The schemas of keys of older or misplaced forms, except ``known`` ones.

    Editors that support ``errorMessage`` show the replacement.
    """
    shown = {word: rejected.hint.replace("<follows>", hints.follows(None)) for word, rejected in words.items()}
    return {
        word: {"not": {}, "doNotSuggest": True, "errorMessage": f"{rejected.message}: {shown[word]}"}
        for word, rejected in words.items()
        if word not in known
    }


def _task_schemas(kind: KindSpec) -> dict[str, Schema]:
    """The definitions ``inputs_<kind>``, ``spec_<kind>`` and ``task_<kind>``, which adds the required inputs, and
    ``rows_<kind>`` of one that makes the rows of a loop.
    """
    name = kind.kind
    inputs, needed = _properties(kind.inputs, f"{name}_input_", kind.verbatim)
    knobs, knobs_needed = _properties(kind.knobs, f"{name}_knob_", None)
    known = {**knobs, "timeout": ref("timeout")}
    beside = {key: known[target] for key, target in kind.beside.items()}
    own = {**beside, "name": ref("name"), "kind": {"const": name}, "spec": ref(f"spec_{name}")}
    spec = {
        **_rejected_keys(advice.TASK_SPEC, knobs),
        **knobs,
        "policy": ref("TaskPolicy"),
        "timeout": ref("task_timeout"),
    }
    spec["result"] = section("ResultSpec")
    keys = {**_rejected_keys(advice.TASK, inputs), **inputs, **own}
    rules = [*_required_fields(kind.inputs), *_input_combinations(kind), *_exclusive_keys(kind.beside)]
    schemas = {
        **needed,
        **knobs_needed,
        f"inputs_{name}": _mapping(kind.inputs, keys),
        f"task_{name}": {"allOf": [ref(f"inputs_{name}"), *rules]},
        f"spec_{name}": {**_mapping(kind.knobs, spec), "type": ["object", "null"]},
    }
    if task.makes_tables(kind):
        made = {"batch": loop.BATCH, "into": {"description": "`table`, which need not be written.", "const": "table"}}
        schemas[f"rows_{name}"] = {"allOf": [_mapping(kind.inputs, keys | made), *rules]}
    return schemas


def _settings_schema(kind: str, model: type[BaseModel]) -> dict[str, Schema]:
    """The definitions of a keychain entry of this kind."""
    properties, definitions = _properties(model, f"keychain_{kind}_", None)
    entry = _mapping(model, {**properties, "name": ref("identifier"), "kind": {"const": kind}})
    return {**definitions, f"keychain_{kind}": {"allOf": [entry, {"required": ["name"]}, *_required_fields(model)]}}


def _mapping_by_kind(prefix: str, kinds: Collection[str]) -> Schema:
    """The schema of a mapping whose ``kind`` selects the definition it must match."""
    return {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"enum": sorted(kinds)}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": ref(f"{prefix}{kind}")}
            for kind in sorted(kinds)
        ],
    }


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
    fields = {spellings(model)[key]: _without_titles(field) for key, field in schema.get("properties", {}).items()}
    needed = {f"{prefix}{name}": _without_titles(one) for name, one in schema.get("$defs", {}).items()}
    properties = {
        spelling: fields[name]
        if verbatim is None or name in verbatim
        else {"anyOf": [fields[name], ref("holds_template")]}
        for spelling, name in spellings(model).items()
    }
    return properties, needed


def _without_titles(schema: Any) -> Any:
    """Removes the titles that pydantic derives from names, since editors would show them."""
    if isinstance(schema, list):
        return [_without_titles(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_titles(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)
    }


def _mapping(model: type[BaseModel], properties: dict[str, Schema]) -> Schema:
    """The schema of a mapping with these properties, which allows one spelling of each field."""
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": model.model_config.get("extra") == "allow",
    }
    both = [list(pair) for names in _synonyms(model).values() for pair in combinations(names, 2)]
    return {**schema, "not": {"anyOf": [{"required": pair} for pair in both]}} if both else schema


def _synonyms(model: type[BaseModel]) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for spelling, name in spellings(model).items():
        fields.setdefault(name, []).append(spelling)
    return fields


def _required_fields(model: type[BaseModel]) -> list[Schema]:
    """The schemas that require the required fields, under any spelling."""
    return [
        {"anyOf": [{"required": [spelling]} for spelling in names]}
        for name, names in _synonyms(model).items()
        if model.model_fields[name].is_required()
    ]


def _input_combinations(kind: KindSpec) -> list[Schema]:
    """The schemas of the allowed combinations of inputs, if the kind restricts them."""
    fields = _synonyms(kind.inputs)
    if kind.combination_error is None or len(fields) > MAX_COMBINED_INPUTS:
        return []
    sets = [names for size in range(len(fields) + 1) for names in combinations(fields, size)]
    return [{"anyOf": [_exact_fields(names, fields) for names in sets if kind.combination_error(names) is None]}]


def _exclusive_keys(beside: Mapping[str, str]) -> list[Schema]:
    """The schema by which a key of ``spec`` is either there or beside ``kind``."""
    both = [
        {"required": [key, "spec"], "properties": {"spec": {"type": "object", "required": [target]}}}
        for key, target in beside.items()
    ]
    return [{"not": {"anyOf": both}}] if both else []


def _exact_fields(names: Collection[str], fields: Mapping[str, Sequence[str]]) -> Schema:
    """The schema by which these fields have a value, in one of their spellings, and the others do not."""
    absent = {spelling: NULL for name, spellings in fields.items() if name not in names for spelling in spellings}
    given = [[{"required": [one], "properties": {one: {"not": NULL}}} for one in fields[name]] for name in names]
    return {"allOf": [{"properties": absent}, *({"anyOf": spellings} for spellings in given)]}


STORE_URL: Final = "https://json.schemastore.org/noetl-playbook.json"
"""The address of the file ``noetl-playbook.json`` in the store."""

CATALOG_ENTRY: Final[dict[str, Any]] = {
    "name": "NoETL playbook",
    "description": "Playbook of a durable workflow of noetl-stream",
    "fileMatch": ["*.noetl.yaml", "*.noetl.yml"],
    "url": STORE_URL,
}
"""The entry of the store's catalog. Its file names are for playbooks: folders ``playbooks`` are Ansible's there."""


def with_store_address(schema: dict[str, Any]) -> dict[str, Any]:
    """Adds to the schema the address that it has in the store."""
    return {"$id": STORE_URL, **schema}
