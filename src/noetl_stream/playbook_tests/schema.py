"""JSON Schema (draft 2020-12) of test documents: ``noetl-stream playbook schema --form test``.

Keys and descriptions come from the models that the reader uses. Names of steps and tasks of the playbook are checked by
the reader alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from pydantic.fields import FieldInfo

from noetl_stream.model.outcome import ERROR_KINDS
from noetl_stream.playbook.model.document import API_VERSION
from noetl_stream.playbook.model.sections import Required, Section
from noetl_stream.playbook.results.result_schema import DIALECT
from noetl_stream.playbook_tests.reading import REAL_KINDS, STATUSES, VERBS
from noetl_stream.playbook_tests.sections import (
    KIND,
    ActionSection,
    CatalogFileSection,
    ExpectedErrorSection,
    GivenSection,
    PlaybookTestSection,
    StubErrorSection,
    StubSection,
    TestDocumentSection,
    ThenSection,
)

Schema: TypeAlias = dict[str, Any]

_ANY: Final[Schema] = {}
_TEXT: Final[Schema] = {"type": "string"}
_MAPPING: Final[Schema] = {"type": ["object", "null"]}
_STEPS: Final[Schema] = {"type": "array", "items": _TEXT}
_INDEX: Final[Schema] = {"type": "integer", "minimum": 0}
_DURATION: Final[Schema] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,3})?(ms|s|m|h|d)$"},
    ]
}
_ERROR_KIND: Final[Schema] = {"type": "string", "examples": sorted(ERROR_KINDS)}


def _ref(model: type[Section]) -> Schema:
    return {"$ref": f"#/$defs/{model.__name__}"}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_STUBS: Final[Schema] = _or_null(
    {
        "type": "object",
        "additionalProperties": {"anyOf": [_ref(StubSection), {"type": "array", "items": _ref(StubSection)}]},
    }
)
_CALLS: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"anyOf": [_INDEX, {"type": "array", "items": {"type": "object"}}]},
}

VALUES: Final[Mapping[tuple[type[Section], str], Schema]] = {
    (TestDocumentSection, "apiVersion"): {"const": API_VERSION},
    (TestDocumentSection, "kind"): {"const": KIND},
    (TestDocumentSection, "playbook"): _TEXT,
    (TestDocumentSection, "given"): _or_null(_ref(GivenSection)),
    (TestDocumentSection, "tests"): {"type": "array", "items": _ref(PlaybookTestSection), "minItems": 1},
    (GivenSection, "workload"): _MAPPING,
    (GivenSection, "ctx"): _MAPPING,
    (GivenSection, "now"): {"type": "string", "format": "date-time"},
    (GivenSection, "keychain"): _MAPPING,
    (GivenSection, "real"): {"type": "array", "items": {"enum": list(REAL_KINDS)}},
    (GivenSection, "stubs"): _STUBS,
    (GivenSection, "catalog"): _or_null({"type": "object", "additionalProperties": _or_null(_ref(CatalogFileSection))}),
    (CatalogFileSection, "stubs"): _STUBS,
    (StubSection, "result"): _ANY,
    (StubSection, "error"): {"anyOf": [_ERROR_KIND, _ref(StubErrorSection)]},
    (StubSection, "helper"): _MAPPING,
    (StubSection, "attempt"): {"type": "integer", "minimum": 1},
    (StubSection, "iteration"): {"anyOf": [_INDEX, {"type": "array", "items": _INDEX, "minItems": 1}]},
    (StubSection, "call"): {"type": "integer", "minimum": 1},
    (StubSection, "inputs"): _MAPPING,
    (StubSection, "takes"): _DURATION,
    (StubSection, "real"): {"type": "boolean"},
    (StubErrorSection, "kind"): _ERROR_KIND,
    (StubErrorSection, "message"): _TEXT,
    (StubErrorSection, "retryable"): {"type": "boolean"},
    (StubErrorSection, "retry_after_s"): {"type": "number", "minimum": 0},
    (StubErrorSection, "code"): _TEXT,
    (PlaybookTestSection, "name"): _TEXT,
    (PlaybookTestSection, "given"): _or_null(_ref(GivenSection)),
    (PlaybookTestSection, "when"): {"type": "array", "items": _ref(ActionSection)},
    (PlaybookTestSection, "then"): _or_null(_ref(ThenSection)),
    (ActionSection, "after"): _DURATION,
    (ActionSection, "patch"): {"type": "object"},
    (ActionSection, "merge"): {"type": "object"},
    (ActionSection, "signal"): _TEXT,
    (ActionSection, "payload"): _ANY,
    (ActionSection, "inject"): _TEXT,
    (ActionSection, "args"): _MAPPING,
    (ActionSection, "cancel"): _TEXT,
    (ActionSection, "pause"): _TEXT,
    (ActionSection, "resume"): _TEXT,
    (ActionSection, "then"): _or_null(_ref(ThenSection)),
    (ThenSection, "status"): {"enum": list(STATUSES)},
    (ThenSection, "result"): _ANY,
    (ThenSection, "error"): {"anyOf": [_ERROR_KIND, _ref(ExpectedErrorSection), {"type": "null"}]},
    (ThenSection, "ctx"): {"type": "object"},
    (ThenSection, "path"): _STEPS,
    (ThenSection, "never"): _STEPS,
    (ThenSection, "calls"): _CALLS,
    (ThenSection, "waits_for"): _STEPS,
    (ExpectedErrorSection, "kind"): _ERROR_KIND,
    (ExpectedErrorSection, "message"): _TEXT,
    (ExpectedErrorSection, "step"): _TEXT,
}
"""The JSON Schema of the value of each key."""

RULES: Final[Mapping[type[Section], Schema]] = {
    StubSection: {"anyOf": [{"required": [name]} for name in ("result", "error", "real")]},
    ActionSection: {
        "anyOf": [{"required": [name]} for name in (*VERBS, "after", "then")],
        "dependentRequired": {"payload": ["signal"], "args": ["inject"]},
        "not": {
            "anyOf": [{"required": [one, other]} for number, one in enumerate(VERBS) for other in VERBS[number + 1 :]]
        },
    },
}
"""JSON Schema rules across several keys."""


def playbook_test_schema() -> Schema:
    """The JSON Schema of a test document."""
    models = dict.fromkeys(model for model, _ in VALUES)
    definitions = {model.__name__: _section(model) for model in models}
    root = definitions.pop(TestDocumentSection.__name__)
    return {"$schema": DIALECT, "title": "Tests of a NoETL playbook", **root, "$defs": definitions}


def _section(model: type[Section]) -> Schema:
    fields = model.model_fields
    schema: Schema = {
        "type": "object",
        "properties": {name: _with_description(field, VALUES[model, name]) for name, field in fields.items()},
        "additionalProperties": False,
    }
    required = [name for name, field in fields.items() if any(isinstance(mark, Required) for mark in field.metadata)]
    return {**schema, **({"required": required} if required else {}), **RULES.get(model, {})}


def _with_description(field: FieldInfo, schema: Schema) -> Schema:
    return {"description": field.description, **schema} if field.description else schema
