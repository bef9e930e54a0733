"""The keys of a test document, and their JSON Schema (draft 2020-12): ``noetl-stream playbook schema --form test``.

Names of steps and tasks of the playbook are checked only by the reader.
"""

from __future__ import annotations

from itertools import combinations
from typing import Annotated, ClassVar, Final, Literal, get_args

from pydantic import Field
from pydantic.fields import FieldInfo

from noetl_stream.model.outcome import ERROR_KINDS
from noetl_stream.playbook.model.document import API_VERSION
from noetl_stream.playbook.model.sections import (
    ANYTHING,
    MAPPING,
    NULL,
    Part,
    Required,
    Schema,
    Section,
    described,
    or_null,
    ref,
)
from noetl_stream.playbook.results.result_schema import DIALECT
from noetl_stream.playbook.vocabulary.hints import VALUE, RejectedKey

KIND: Final = "PlaybookTest"
STATUSES: Final = ("completed", "failed", "cancelled", "waiting", "paused")
REAL_KINDS: Final = ("duckdb", "python")
"""Kinds that may really run in a test: their code reaches neither another machine nor a file."""

Verb = Literal["patch", "merge", "signal", "inject", "cancel", "pause", "resume", "nothing"]
VERBS: Final[tuple[Verb, ...]] = tuple(verb for verb in get_args(Verb) if verb != "nothing")

_TEXT: Final[Schema] = {"type": "string"}
_STEPS: Final[Schema] = {"type": "array", "items": _TEXT}
_INDEX: Final[Schema] = {"type": "integer", "minimum": 0}
_DURATION: Final[Schema] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,3})?(ms|s|m|h|d)$"},
    ]
}
_ERROR_KIND: Final[Schema] = {"type": "string", "examples": sorted(ERROR_KINDS)}
_STUBS: Final[Schema] = or_null(
    {
        "type": "object",
        "additionalProperties": {"anyOf": [ref("StubSection"), {"type": "array", "items": ref("StubSection")}]},
    }
)
_CALLS: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"anyOf": [_INDEX, {"type": "array", "items": {"type": "object"}}]},
}


class TestDocumentSection(Section):
    title = "a test document"

    apiVersion: Annotated[str | None, Required("apiVersion: noetl.io/v2")] = described("", {"const": API_VERSION})  # noqa: N815 - the key's name
    kind: Annotated[str | None, Required(f"kind: {KIND}")] = described("", {"const": KIND})
    playbook: str | None = described(
        "The file of the playbook, from the folder of this one. Default: `NAME.yaml` for `NAME.test.yaml`.", _TEXT
    )
    given: Part = described("What every test of the document is given.", or_null(ref("GivenSection")))
    tests: Annotated[Part, Required("tests: [ { name: …, then: { result: … } } ]")] = described(
        "The tests. Each runs alone.", {"type": "array", "items": ref("PlaybookTestSection"), "minItems": 1}
    )


class GivenSection(Section):
    title = "`given`"

    workload: Part = described("Merged over the playbook's own `workload`.", MAPPING)
    ctx: Part = described("`ctx` when it starts.", MAPPING)
    now: str | None = described(
        "When it starts, with an offset or `Z`. Default: 2025-06-15T15:06:40Z.",
        {"type": "string", "format": "date-time"},
    )
    due: str | None = described(
        "The time of the occurrence that it is for, `execution.due`, with an offset or `Z`. Default: none.",
        {"type": "string", "format": "date-time"},
    )
    keychain: Part = described(
        "Values of secrets, by name. One that is not given reads as the text `<keychain.NAME>`.", MAPPING
    )
    real: Part = described(
        "Kinds whose tasks run when no stub stands for them: `python`, `duckdb`.",
        {"type": "array", "items": {"enum": list(REAL_KINDS)}},
    )
    stubs: Part = described(
        "What stands for tasks: one stub or a list of them, by `STEP.TASK`, or `STEP` if it has one.", _STUBS
    )
    catalog: Part = described(
        "Files of the playbooks that it calls and of the schemas that it names, with their `stubs`.",
        or_null({"type": "object", "additionalProperties": or_null(ref("CatalogFileSection"))}),
    )


class CatalogFileSection(Section):
    title = "a file of the catalog"

    stubs: Part = described("As `given.stubs`, for the tasks of this playbook.", _STUBS)


class StubSection(Section):
    title = "a stub"
    example = "{ result: { … } } or { error: timeout }"
    schema_rules: ClassVar[Schema] = {"anyOf": [{"required": [name]} for name in ("result", "error", "real")]}

    result: Part = described(
        "The task's result. Of `http`: `status` (200), `headers` and `data`; a status from 400 on is an "
        "error. Of `postgres` and `duckdb`: `rows`. `{ file: orders.csv }` is a reference to that file, seen from this "
        "document, `{ table: orders.csv }` to a table with its rows.",
        ANYTHING,
    )
    error: Part = described(
        "The task fails: a kind of error, or a mapping with `kind`.", {"anyOf": [_ERROR_KIND, ref("StubErrorSection")]}
    )
    helper: Part = described("What `outcome.http`, `.pg` or `.py` holds.", MAPPING)
    attempt: Annotated[int, Field(ge=1)] | None = described(
        "Only for this attempt, from 1.", {"type": "integer", "minimum": 1}
    )
    iteration: Part = described(
        "Only in this iteration, from 0; in inner loops a list, the outermost first.",
        {"anyOf": [_INDEX, {"type": "array", "items": _INDEX, "minItems": 1}]},
    )
    call: Annotated[int, Field(ge=1)] | None = described(
        "Only for this call of the task in the whole test, from 1.", {"type": "integer", "minimum": 1}
    )
    inputs: Part = described("Only if these inputs have these values.", MAPPING)
    takes: Part = described("How long the call takes in simulated time: `30s`, `5m`, or seconds.", _DURATION)
    real: bool | None = described("The task runs: kinds `python` and `duckdb`.", {"type": "boolean"})


class StubErrorSection(Section):
    title = "`error`"
    example = "error: { kind: http_status, message: gone }"

    kind: Annotated[str | None, Required("kind: timeout")] = described("Kind of the error.", _ERROR_KIND)
    message: str | None = described("Its message.", _TEXT)
    retryable: bool | None = described("Default: true for `timeout` and `connection`.", {"type": "boolean"})
    retry_after_s: Annotated[float, Field(ge=0)] | None = described(
        "No retry is sooner than this.", {"type": "number", "minimum": 0}
    )
    code: str | None = described("`outcome.error.code`.", _TEXT)


class PlaybookTestSection(Section):
    title = "a test"
    rejected: ClassVar = {
        **dict.fromkeys(
            ("expect", "expected", "expects", "assert", "asserts", "should"),
            RejectedKey("a test says what it expects in `then`", f"write then: {VALUE}", "unknown_key", ("then",)),
        ),
        **dict.fromkeys(
            ("input", "inputs", "setup"),
            RejectedKey("a test says what it is given in `given`", "write given: { workload: { … } }", "unknown_key"),
        ),
    }
    example = "{ name: pays at once, given: { … }, then: { result: … } }"

    name: Annotated[str | None, Required("name: a large refund waits")] = described("What it shows.", _TEXT)
    given: Part = described("What this test is given, over what all are.", or_null(ref("GivenSection")))
    when: Part = described("What happens meanwhile, in order.", {"type": "array", "items": ref("ActionSection")})
    then: Part = described("What must be true at the end. Default: it completed.", or_null(ref("ThenSection")))


class ActionSection(Section):
    title = "an entry of `when`"
    example = "{ after: 1h, patch: { approved: true } }"
    schema_rules: ClassVar[Schema] = {
        "anyOf": [{"required": [name]} for name in (*VERBS, "after", "then")],
        "dependentRequired": {"payload": ["signal"], "args": ["inject"]},
        "not": {"anyOf": [{"required": list(pair)} for pair in combinations(VERBS, 2)]},
    }

    after: Part = described(
        "How much time passes first, from the entry before or the start. Without it the entry waits until "
        "the execution waits for somebody.",
        _DURATION,
    )
    patch: Part = described("Keys of `ctx` that somebody sets.", {"type": "object"})
    merge: Part = described("A merge patch of `ctx`: null deletes.", {"type": "object"})
    signal: str | None = described("The name of a signal that somebody sends.", _TEXT)
    payload: Part = described("The payload of the signal.", ANYTHING)
    inject: str | None = described("The step that somebody enqueues a token at.", _TEXT)
    args: Part = described("The `args` of that token.", MAPPING)
    cancel: str | None = described("Somebody cancels it, for this reason.", _TEXT)
    pause: str | None = described("Somebody pauses it, for this reason.", _TEXT)
    resume: str | None = described("Somebody resumes it, for this reason.", _TEXT)
    then: Part = described("What must be true after it, before more time passes.", or_null(ref("ThenSection")))


class ThenSection(Section):
    title = "`then`"

    status: str | None = described(
        "`completed` (the default), `failed` (the default with `error`), `cancelled`, `waiting`, `paused`.",
        {"enum": list(STATUSES)},
    )
    result: Part = described("The whole result.", ANYTHING)
    error: Part = described(
        "A kind of error, or a mapping with `kind` and a part of its `message`.",
        {"anyOf": [_ERROR_KIND, ref("ExpectedErrorSection"), NULL]},
    )
    ctx: Part = described("These keys of `ctx`, each whole; null also if it is not there.", {"type": "object"})
    path: Part = described("The steps that ran, in the order in which they began.", _STEPS)
    never: Part = described("Steps that did not run.", _STEPS)
    calls: Part = described(
        "By task: how often it was called, or for each call the inputs to compare, each whole.", _CALLS
    )
    waits_for: Part = described("The steps at which it waits.", _STEPS)


class ExpectedErrorSection(Section):
    title = "`error`"

    kind: str | None = described("Its kind.", _ERROR_KIND)
    message: str | None = described("A part of its message.", _TEXT)
    step: str | None = described("The step that failed.", _TEXT)


SECTIONS: Final[tuple[type[Section], ...]] = (
    *(TestDocumentSection, GivenSection, CatalogFileSection, StubSection, StubErrorSection),
    *(PlaybookTestSection, ActionSection, ThenSection, ExpectedErrorSection),
)
"""The sections in the order of their definitions."""


def playbook_test_schema() -> Schema:
    """The JSON Schema of a test document."""
    definitions = {model.__name__: _section(model) for model in SECTIONS}
    root = definitions.pop(TestDocumentSection.__name__)
    return {"$schema": DIALECT, "title": "Tests of a NoETL playbook", **root, "$defs": definitions}


def _section(model: type[Section]) -> Schema:
    fields = model.model_fields
    schema: Schema = {
        "type": "object",
        "properties": {name: _value(field) for name, field in fields.items()},
        "additionalProperties": False,
    }
    required = [name for name, field in fields.items() if any(isinstance(mark, Required) for mark in field.metadata)]
    return {**schema, **({"required": required} if required else {}), **model.schema_rules}


def _value(field: FieldInfo) -> Schema:
    assert isinstance(field.json_schema_extra, dict)
    return {**({"description": field.description} if field.description else {}), **field.json_schema_extra}
