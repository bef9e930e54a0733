"""JSON Schema (draft 2020-12) of the language: ``noetl-stream playbook schema``.

Generated from the parser's own models and the kinds' models of inputs, knobs and keychain settings. Tables add the
parts that the parser reads piece by piece. Rules that a model's validators enforce in code are not in the schema;
``check`` reports them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any, Final, TypeAlias

import msgspec
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.paths import MAX_PATH_CHARS
from noetl_stream.model.priorities import HIGHEST_PRIORITY, LOWEST_PRIORITY
from noetl_stream.playbook.kinds.inputs import spellings
from noetl_stream.playbook.kinds.keychain import installed_kinds
from noetl_stream.playbook.kinds.spec import LANGUAGE_KINDS, Kinds, KindSpec
from noetl_stream.playbook.model import document, flow_control, layering, loop, policy, step, sugar, task, workbook
from noetl_stream.playbook.model.sections import PartMark, Required, Reserved, Section
from noetl_stream.playbook.results.schema import DIALECT, KEYWORDS, NamedSchema
from noetl_stream.playbook.vocabulary import advice
from noetl_stream.playbook.vocabulary.descriptions import DESCRIPTIONS
from noetl_stream.playbook.vocabulary.names import MAX_NAME_CHARS
from noetl_stream.playbook.workload import MAX_CHOICES
from noetl_stream.template.runtime.scope import NAMESPACES

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

_NULL: Final[Schema] = {"type": "null"}
_SECONDS: Final[Schema] = {"type": "number", "exclusiveMinimum": 0}
_TEXT: Final[Schema] = {"type": "string", "pattern": r"[^\s/]"}
_KEY: Final[Schema] = {"type": "string", "pattern": r"\S"}
_AT_ONCE: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": flow_control.MOST_AT_ONCE}
_PER_S: Final[Schema] = {"type": "number", "minimum": flow_control.LEAST_PER_S, "maximum": flow_control.MOST_PER_S}


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, _NULL]}


def _section(model: type[Section]) -> Schema:
    """A section that may be null, which counts as absent."""
    return _or_null(ref(model.__name__))


def _list(item: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": item, **({"minItems": least} if least else {})}


def _number_or_template(number: Schema) -> Schema:
    return {"anyOf": [number, {"type": "string", "pattern": r"\{\{"}]}


def _writes(value: Schema) -> Schema:
    return {"type": "object", "propertyNames": ref("identifier"), "additionalProperties": value}


def _ladder(rule: type[Section], then: Schema) -> Schema:
    """``when`` and ``then``, ``when`` and ``then`` …, ``else``."""
    otherwise = {"allOf": [ref("Else"), {"properties": {"then": then}}]}
    rung = {"allOf": [ref(rule.__name__), {"required": ["when"], "properties": {"then": then}}]}
    only_else = {"properties": {"else": otherwise}, "additionalProperties": False}
    return _list({"type": "object", "if": {"required": ["else"]}, "then": only_else, "else": rung}, 1)


_JSON_SCHEMA: Final[Schema] = {
    "type": "object",
    "propertyNames": {"anyOf": [{"enum": sorted(KEYWORDS)}, {"pattern": "^x-"}]},
}
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
"""Of a schema that has :data:`~noetl_stream.playbook.workload.KEYWORDS`."""

_IN_FLIGHT: Final = _number_or_template({"type": "integer", "minimum": 1})

PARTS: Final[Mapping[tuple[type[Section], str], Schema]] = {
    (document.Root, "metadata"): ref("Metadata"),
    (document.Root, "keychain"): _or_null(_list(ref("keychain_entry"))),
    (document.Root, "executor"): _section(document.Executor),
    (document.Root, "workload"): {"type": ["object", "null"]},
    (document.Root, "workflow"): _list(ref("Step"), 1),
    (document.Root, "workbook"): {"anyOf": [ref("WorkbookTasks"), _list(ref("ListedEntry")), _NULL]},
    (document.Executor, "spec"): _section(document.ExecutorSpec),
    (document.ExecutorSpec, "workload"): _or_null(ref("workload_schema")),
    (document.ExecutorSpec, "result"): {"anyOf": [{"type": ["object", "array"]}, ref("holds_template")]},
    (document.ExecutorSpec, "timeout"): ref("timeout"),
    (document.ExecutorSpec, "timeout_s"): _or_null(_SECONDS),
    (document.ExecutorSpec, "policy"): _section(document.ExecutorPolicy),
    (document.ExecutorPolicy, "defaults"): _section(document.PolicyDefaults),
    (document.ExecutorPolicy, "failure"): _section(document.PolicyFailure),
    (document.ExecutorPolicy, "results"): _section(document.PolicyResults),
    (document.ExecutorPolicy, "limits"): ref("limits"),
    (document.ExecutorPolicy, "concurrency"): _section(flow_control.Concurrency),
    (document.PolicyDefaults, "timeouts"): ref("timeout"),
    (step.Step, "spec"): _section(step.StepSpec),
    (step.Step, "loop"): ref("Loop"),
    (step.Step, "tool"): {"anyOf": [ref("entry"), ref("tasks")]},
    (step.Step, "next"): ref("Router"),
    (step.StepSpec, "join"): {"anyOf": [{"enum": ["all", "any", None]}, {"type": "integer", "minimum": 1}]},
    (step.StepSpec, "timeout"): ref("timeout"),
    (step.StepSpec, "policy"): _section(step.StepPolicy),
    (step.StepPolicy, "admit"): _section(policy.Admit),
    (step.StepPolicy, "lifecycle"): _section(step.Lifecycle),
    (step.StepPolicy, "failure"): _section(loop.LoopFailure),
    (step.StepPolicy, "limit"): _section(flow_control.KeyLimit),
    (step.StepPolicy, "emit"): _section(step.Emit),
    (flow_control.Concurrency, "key"): _KEY,
    (flow_control.Concurrency, "limit"): _AT_ONCE,
    (flow_control.KeyLimit, "key"): _KEY,
    (flow_control.KeyLimit, "concurrency"): _or_null(_AT_ONCE),
    (flow_control.KeyLimit, "rate"): _section(flow_control.LimitRate),
    (flow_control.LimitRate, "per_s"): _PER_S,
    (flow_control.LimitRate, "burst"): _or_null(_AT_ONCE),
    (step.Lifecycle, "timeout_s"): _or_null(_SECONDS),
    (step.Lifecycle, "deadline_s"): _or_null(_SECONDS),
    (step.Router, "spec"): _section(step.RouterSpec),
    (step.Router, "arcs"): _list(ref("Arc")),
    (step.RouterSpec, "wait"): _section(policy.NextWait),
    (step.Arc, "when"): ref("guard"),
    (step.Arc, "args"): {"type": ["object", "null"]},
    (loop.Loop, "in_"): {"anyOf": [{"type": ["array", "object"]}, ref("expression")]},
    (loop.Loop, "spec"): _section(loop.LoopSpec),
    (loop.Loop, "loop"): _section(loop.Loop),
    (loop.LoopSpec, "max_in_flight"): _IN_FLIGHT,
    (loop.LoopSpec, "timeout"): ref("timeout"),
    (loop.LoopSpec, "policy"): _section(loop.LoopPolicy),
    (loop.LoopPolicy, "max_in_flight"): _IN_FLIGHT,
    (loop.LoopPolicy, "failure"): _section(loop.LoopFailure),
    (loop.LoopFailure, "tolerated"): {
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{loop.PERCENT.pattern}$"}, _NULL]
    },
    (policy.Admit, "rules"): _ladder(policy.Rule, ref("Allow")),
    (policy.Admit, "wait"): _section(policy.AdmitWait),
    (policy.AdmitWait, "timeout_s"): _SECONDS,
    (policy.NextWait, "timeout_s"): _SECONDS,
    (policy.TaskPolicy, "rules"): _ladder(policy.Rule, ref("Then")),
    (policy.TaskPolicy, "limit"): _section(flow_control.KeyLimit),
    (policy.Rule, "when"): ref("guard"),
    (policy.Rule, "then"): {},
    (policy.Else, "then"): {},
    (policy.Then, "delay"): _number_or_template({"type": "number", "minimum": 0}),
    (policy.Then, "set_ctx"): _writes({}),
    (policy.Then, "set_iter"): _writes({}),
    (policy.Then, "set_vars"): _writes({}),
    (policy.Then, "set_shared"): _writes(ref("SharedEntry")),
    (policy.SharedEntry, "value"): {},
    (sugar.ChooseEntry, "name"): ref("name"),
    (sugar.ChooseEntry, "choose"): _ladder(sugar.BranchRule, ref("tasks")),
    (sugar.BranchRule, "when"): ref("guard"),
    (sugar.BranchRule, "then"): {},
    (sugar.WhileEntry, "name"): ref("name"),
    (sugar.WhileEntry, "while_"): ref("Round"),
    (sugar.UntilEntry, "name"): ref("name"),
    (sugar.UntilEntry, "until"): ref("Round"),
    (sugar.Round, "when"): ref("guard"),
    (sugar.Round, "do"): ref("tasks"),
    (task.ResultSpec, "schema_"): {"anyOf": [ref("NamedSchema"), _JSON_SCHEMA]},
    (workbook.WorkbookTasks, "tasks"): {
        "type": ["object", "null"], "propertyNames": ref("name"), "additionalProperties": ref("workbook_task")
    },
    (workbook.ListedEntry, "tool"): ref("workbook_task"),
}  # fmt: skip
"""Schemas of the parts of sections."""

VALUES: Final[Mapping[tuple[type[Section], str], Schema]] = {
    (document.Root, "apiVersion"): {"const": document.API_VERSION},
    (document.Root, "kind"): {"const": "Playbook"},
    (document.Metadata, "name"): {**_TEXT, "maxLength": MAX_PATH_CHARS},
    (document.Metadata, "path"): {**_TEXT, "maxLength": MAX_PATH_CHARS},
    (document.Metadata, "labels"): {
        "type": ["object", "null"], "additionalProperties": {"type": ["string", "number", "boolean", "null"]}
    },
    (document.ExecutorSpec, "pool"): ref("pool"),
    (document.ExecutorSpec, "priority"): {
        "type": ["integer", "null"], "minimum": LOWEST_PRIORITY, "maximum": HIGHEST_PRIORITY
    },
    (step.StepSpec, "pool"): _or_null(ref("pool")),
    (step.Step, "step"): ref("name"),
    (loop.Loop, "iterator"): {"allOf": [ref("name"), {"not": {"enum": sorted(loop.READ_ONLY)}}]},
    (policy.Then, "attempts"): {"type": ["integer", "null"], "minimum": 1},
    (policy.Then, "max_delay"): {"type": ["number", "null"], "minimum": 0},
    (workbook.ListedEntry, "name"): ref("name"),
    **{(layering.TimeoutParts, name): _or_null(_SECONDS) for name in ("total", "connect", "read")},
}  # fmt: skip
"""Values that the parser restricts beyond their type."""


def _only_with(directive: str, options: list[str], needed: list[str]) -> list[Schema]:
    """Requires ``needed`` with a directive, and forbids ``options`` with any other."""
    is_it: Schema = {"properties": {"do": {"const": directive}}, "required": ["do"]}
    others = {"not": {"anyOf": [{"required": [name]} for name in options]}}
    return [{"if": is_it, "then": {"required": needed}, "else": others}]


def _shared_takes(kind: str, operations: list[str]) -> Schema:
    """The type of the value of these operations, unless it is a template."""
    is_one: Schema = {"properties": {"op": {"enum": operations}}, "required": ["op"]}
    value = {"anyOf": [{"type": kind}, {"allOf": [{"type": "string"}, ref("holds_template")]}]}
    return {"if": is_one, "then": {"properties": {"value": value}}}


def _with(name: str, value: Schema) -> Schema:
    """A mapping that has this key, and such a value there."""
    return {"type": "object", "properties": {name: value}, "required": [name]}


RULES: Final[Mapping[type[Section], Schema]] = {
    step.Step: {
        "anyOf": [{"required": ["tool"]}, {"required": ["next"]}],
        "dependentRequired": {"loop": ["tool"]},
        "if": _with("spec", _with("policy", _with("limit", {"type": "object"}))),
        "then": {"required": ["tool"]},
    },
    loop.Loop: {"required": ["in", "iterator"]},
    policy.TaskPolicy: {
        "anyOf": [
            {"required": ["rules"]},
            {**_with("limit", {"type": "object"}), "not": {"required": ["on_unmatched"]}},
        ]
    },
    flow_control.KeyLimit: {"anyOf": [{"required": ["concurrency"]}, {"required": ["rate"]}]},
    policy.Then: {
        "allOf": [
            *_only_with("retry", ["attempts", "backoff", "delay", "max_delay"], ["attempts"]),
            *_only_with("jump", ["to"], ["to"]),
        ]
    },
    policy.SharedEntry: {
        "if": {"properties": {"op": {"const": "count"}}, "required": ["op"]},
        "then": {"not": {"required": ["value"]}},
        "else": {"required": ["value"]},
        "allOf": [
            _shared_takes("number", ["add", "min", "max"]),
            _shared_takes("array", ["extend", "union"]),
            _shared_takes("object", ["merge"]),
        ],
    },
}
"""Rules across several keys of a section."""

LAYERED: Final = (document.ExecutorSpec, step.StepSpec, loop.LoopSpec)
"""Sections that may also hold task knobs, which are checked in the tasks (LANGUAGE §1 *Layering*)."""

_PLAIN: Final = (document.PolicyFailure, document.PolicyResults, policy.Allow, step.Emit, NamedSchema)
"""Sections fully described by their model."""

SECTIONS: Final = tuple(dict.fromkeys([model for model, _ in (*PARTS, *VALUES)] + list(_PLAIN)))


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
    definitions |= {
        "entry": _entry(kinds),
        "tasks": _list({"if": _LABELLED, "then": _labels(kinds), "else": ref("entry")}, 1),
        "workbook_task": {**_by_kind("inputs_", kinds.keys() - {"workbook"}), "not": {"required": ["name"]}},
        "keychain_entry": _by_kind("keychain_", keychain_settings),
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
        "timeout": {"description": "Seconds for one attempt.", "anyOf": [_SECONDS, ref("TimeoutParts")]},
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
    """An entry of a pipeline: a task, or a construct, recognized by its keyword."""
    schema: Schema = _by_kind("task_", kinds)
    for word, model in reversed(sugar.WORDS.items()):
        schema = {"if": {"required": [word]}, "then": ref(model.__name__), "else": schema}
    return {"type": "object", "if": {"required": ["kind"]}, "then": _by_kind("task_", kinds), "else": schema}


_LABELLED: Final[Schema] = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": {"type": "object", "required": ["kind"]},
}
"""A task under its label."""


def _labels(kinds: Kinds) -> Schema:
    return {"propertyNames": ref("name"), "additionalProperties": _by_kind("task_", kinds)}


def _section_schema(model: type[Section]) -> Schema:
    properties = _refused(model.rejected)
    required = []
    for name, field in model.model_fields.items():
        key = field.alias or name
        schema = _value(model, name)
        if any(isinstance(mark, Required) for mark in field.metadata):
            required.append(key)
            schema = {"allOf": [schema, {"not": _NULL}]}
        described = DESCRIPTIONS.get(model.__name__, {}).get(key)
        properties[key] = {"description": described, **schema} if described else schema
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return {**schema, **RULES.get(model, {})}


def _value(model: type[Section], name: str) -> Schema:
    """The schema of a key of a section."""
    field = model.model_fields[name]
    for mark in field.metadata:
        if isinstance(mark, PartMark):
            return PARTS[model, name]
        if isinstance(mark, Reserved):
            return {"description": "Reserved for a later version.", "enum": [None, "", [], {}, *mark.neutral]}
    annotation: Any = field.annotation
    return VALUES.get((model, name)) or TypeAdapter(annotation).json_schema()


def _refused(words: Mapping[str, advice.RejectedKey], known: Collection[str] = ()) -> dict[str, Schema]:
    """Keys of older or misplaced forms, except ``known`` ones.

    Editors that support ``errorMessage`` show what to write instead.
    """
    return {
        word: {"not": {}, "doNotSuggest": True, "errorMessage": f"{rejected.message}: {rejected.hint}"}
        for word, rejected in words.items()
        if word not in known
    }


def _task_schemas(kind: KindSpec) -> dict[str, Schema]:
    """The definitions ``inputs_<kind>``, ``spec_<kind>`` and ``task_<kind>``; the last adds the required inputs."""
    name = kind.kind
    inputs, needed = _properties(kind.inputs, f"{name}_input_", kind.verbatim)
    knobs, knobs_needed = _properties(kind.knobs, f"{name}_knob_", None)
    known = {**knobs, "timeout": ref("timeout")}
    beside = {key: known[target] for key, target in kind.beside.items()}
    own = {**beside, "name": ref("name"), "kind": {"const": name}, "spec": ref(f"spec_{name}")}
    spec = {**_refused(advice.TASK_SPEC, knobs), **knobs, "policy": ref("TaskPolicy"), "timeout": ref("timeout")}
    spec["result"] = _section(task.ResultSpec)
    return {
        **needed,
        **knobs_needed,
        f"inputs_{name}": _mapping(kind.inputs, {**_refused(advice.TASK, inputs), **inputs, **own}),
        f"task_{name}": {
            "allOf": [ref(f"inputs_{name}"), *_needed(kind.inputs), *_together(kind), *_once(kind.beside)]
        },
        f"spec_{name}": {**_mapping(kind.knobs, spec), "type": ["object", "null"]},
    }


def _settings_schema(kind: str, model: type[BaseModel]) -> dict[str, Schema]:
    """The definitions of a keychain entry of this kind."""
    properties, definitions = _properties(model, f"keychain_{kind}_", None)
    entry = _mapping(model, {**properties, "name": ref("identifier"), "kind": {"const": kind}})
    return {**definitions, f"keychain_{kind}": {"allOf": [entry, {"required": ["name"]}, *_needed(model)]}}


def _by_kind(prefix: str, kinds: Collection[str]) -> Schema:
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
        spelling: fields[name]
        if verbatim is None or name in verbatim
        else {"anyOf": [fields[name], ref("holds_template")]}
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


def _once(beside: Mapping[str, str]) -> list[Schema]:
    """A key of ``spec`` is there or beside ``kind``."""
    both = [
        {"required": [key, "spec"], "properties": {"spec": {"type": "object", "required": [target]}}}
        for key, target in beside.items()
    ]
    return [{"not": {"anyOf": both}}] if both else []


def _given(names: Collection[str], fields: Collection[str]) -> Schema:
    """These fields have a value and the others do not."""
    null: Schema = {"type": "null"}
    values = {name: {"not": null} if name in names else null for name in fields}
    return {"required": list(names), "properties": values}
