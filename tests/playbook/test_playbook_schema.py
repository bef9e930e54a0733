"""``noetl-stream playbook schema``: it accepts what the parser accepts, except for what only the parser can see."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from playbook_building import pipeline
from playbook_kinds import KINDS
from pydantic import BaseModel, ConfigDict
from referencing import Resource
from referencing.jsonschema import DRAFT202012

from effort import times
from noetl_stream.model.limits import Limits
from noetl_stream.playbook import schema as schema_module
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.kinds.spec import Kinds, KindSpec
from noetl_stream.playbook.model.catalog_document import CatalogRoot, SchemaRoot
from noetl_stream.playbook.model.document import KeychainEntry
from noetl_stream.playbook.model.sections import PartMark, Placeholders, Section, keys_of
from noetl_stream.playbook.schedule.file_arrivals import FilesSection
from noetl_stream.playbook.schedule.schedule_document import ScheduleRoot, ScheduleSpec, ScheduleWindow
from noetl_stream.playbook.schema import SECTIONS, playbook_schema
from noetl_stream.playbook.trigger import trigger_document as triggers
from noetl_stream.playbook.yaml.source import read_source
from noetl_stream.tools.registry import kinds_of, load_tools

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
GOOD = sorted([*(HERE / "accepted").glob("*.yaml"), *(HERE / "compiled").glob("*.yaml")])
BROKEN = sorted((HERE / "broken").glob("*.yaml"))
INSTALLED = kinds_of(load_tools())
SCHEMA = Draft202012Validator(playbook_schema(KINDS))
INSTALLED_SCHEMA = Draft202012Validator(playbook_schema(INSTALLED))
ANNOTATIONS = {"$schema", "$defs", "title", "description", "default", "examples", "then", "else"}
OF_EDITORS = {"doNotSuggest", "errorMessage"}
KEYWORDS = {*Draft202012Validator.VALIDATORS, *ANNOTATIONS, *OF_EDITORS}
"""A validator would ignore any other keyword."""

ONLY_THE_CHECKER_SEES = {
    # what templates read, and how they are written
    *(
        "unbound_name",
        "unknown_name",
        "namespace_not_here",
        "foreign_helper",
        "impossible_comparison",
        "keychain_whole",
    ),
    *("template_syntax", "template_too_long", "statement_not_allowed", "unknown_filter", "unknown_test"),
    *("guard_not_expression", "template_not_rendered"),
    # relations between places
    *("unknown_step", "unknown_task", "unknown_entry", "duplicate_name", "conflicting_keys", "read_only"),
    *("set_ctx_in_parallel_loop", "set_vars_in_parallel_loop", "workbook_entry", "reserved_name", "limit_exceeded"),
    "invalid_default",
    # the place of `else`
    *("else_not_last", "else_twice"),
}
ALSO_NOT_SEEN = {
    "workbook_problems": "arguments of a call to its entry",
    "metadata_path_of_dots": "the parts of a path",
}
"""Files with other problems that a schema cannot express."""


def document_of(text: bytes) -> Any:
    """The YAML as plain JSON; ``None`` if it is invalid."""
    problems = Problems("file")
    source = read_source(text, problems)
    return None if source is None or problems.has_errors else source.root.plain()


def errors_of(text: bytes | str) -> set[str]:
    return {item.code for item in check(text, KINDS).diagnostics if item.severity == "error"}


def test_the_schema_accepts_what_the_parser_accepts() -> None:
    refused = [path.name for path in GOOD if not SCHEMA.is_valid(document_of(path.read_bytes()))]
    assert not refused, refused


EXAMPLES = sorted(path for path in (REPOSITORY / "playbooks").rglob("*.yaml") if "." not in path.stem)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_schema_of_the_installed_kinds_accepts_the_playbooks_that_run_here(path: Path) -> None:
    text = path.read_bytes()
    assert INSTALLED_SCHEMA.is_valid(document_of(text)) is check(text, INSTALLED).ok


def test_the_schema_refuses_exactly_the_playbooks_with_a_broken_structure() -> None:
    wrong = []
    for path in BROKEN:
        text = path.read_bytes()
        if (document := document_of(text)) is not None:
            codes, accepted = errors_of(text), SCHEMA.is_valid(document)
            to_see = set() if path.stem in ALSO_NOT_SEEN else codes - ONLY_THE_CHECKER_SEES
            if to_see if accepted else not codes:
                wrong.append(f"{path.name}: {sorted(codes)}, accepted: {accepted}")
    assert not wrong, "\n".join(wrong)


REPLACEMENTS: list[Any] = [None, 7, -1, 1.5, True, "text", "", [], {}, "{{ workload.x }}", ["a"], {"zz": 1}]
MUTANTS = times(20)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all parts of a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from places(part, (*path, key))


def mutant(document: Any, random: Random) -> Any:
    """The document with one part replaced or removed, or with an extra key."""
    changed = copy.deepcopy(document)
    path = random.choice(list(places(changed)))
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    choice = random.random()
    if choice < 0.15 and isinstance(parent, dict):
        del parent[path[-1]]
    elif choice < 0.3 and isinstance(parent[path[-1]], dict):
        parent[path[-1]]["unheard_of"] = 1
    else:
        parent[path[-1]] = random.choice(REPLACEMENTS)
    return changed


@pytest.mark.parametrize("path", [path for path in GOOD if path.stem != "workbook"], ids=lambda path: path.stem)
def test_the_schema_and_the_parser_agree_on_any_change_to_a_valid_file(path: Path) -> None:
    document = document_of(path.read_bytes())
    random = Random(path.stem)
    for _ in range(MUTANTS):
        changed = mutant(document, random)
        text = json.dumps(changed)
        codes = errors_of(text)
        if SCHEMA.is_valid(changed):
            assert codes <= ONLY_THE_CHECKER_SEES, text
        else:
            assert codes, text


def test_every_key_of_the_language_is_described_for_editors() -> None:
    schema = playbook_schema(KINDS)
    for model in SECTIONS:
        section = schema if model.__name__ == "Root" else schema["$defs"][model.__name__]
        undescribed = [key for key in keys_of(model) if not section["properties"][key].get("description")]
        assert undescribed == [], model.__name__


def test_every_section_and_part_of_the_language_is_in_the_schema() -> None:
    def below(model: type[Section]) -> Iterator[type[Section]]:
        for one in model.__subclasses__():
            if one.__module__.startswith("noetl_stream.playbook."):
                yield one
                yield from below(one)

    others = {
        Placeholders,
        KeychainEntry,
        SchemaRoot,
        CatalogRoot,
        ScheduleRoot,
        ScheduleSpec,
        ScheduleWindow,
        FilesSection,
    }
    models = set(below(Section)) - others
    models = {model for model in models if not model.__module__.startswith(triggers.__package__ or "")}
    assert models == set(SECTIONS)
    without_schema = [
        (model, name)
        for model in models
        for name, field in model.model_fields.items()
        if any(isinstance(mark, PartMark) for mark in field.metadata) and field.json_schema_extra is None
    ]
    assert without_schema == []


def test_the_words_of_older_dialects_carry_the_form_to_write() -> None:
    step = playbook_schema(KINDS)["$defs"]["Step"]["properties"]["when"]
    assert step["not"] == {} and "{ step: <this step>, when: <guard> }" in step["errorMessage"]


def test_a_template_is_valid_only_where_it_is_rendered() -> None:
    def document(url: Any, headers: Any, follow: Any) -> Any:
        tool = {"kind": "http", "url": url, "headers": headers, "spec": {"follow_redirects": follow}}
        return {
            "apiVersion": "noetl.io/v2",
            "kind": "Playbook",
            "metadata": {"name": "a", "path": "a"},
            "workflow": [{"step": "start", "tool": tool}],
        }

    assert SCHEMA.is_valid(document("{{ workload.url }}", {"x": "{{ workload.x }}"}, True))
    assert SCHEMA.is_valid(document("/a", "{{ workload.headers }}", True))
    assert not SCHEMA.is_valid(document("/a", {"x": 1}, True))
    assert not SCHEMA.is_valid(document("/a", {}, "{{ workload.follow }}"))


def test_a_called_path_has_no_version() -> None:
    def fits(path: str) -> bool:
        return SCHEMA.is_valid(document_of(pipeline(f"- {{ kind: playbook, path: '{path}' }}").encode()))

    assert fits("library/child") and fits("{{ workload.path }}") and not fits("library/child@2")


def test_the_limits_are_the_operators() -> None:
    limits = playbook_schema(KINDS, Limits(max_step_runs=7))["$defs"]["limits"]["properties"]
    assert limits["max_step_runs"] == {"type": "integer", "minimum": 1, "maximum": 7}
    assert limits["inline_delay_s"]["type"] == "number"


def test_a_kind_whose_model_has_no_schema_takes_any_values() -> None:
    class Odd(BaseModel):
        model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
        thing: Random

    reader = Draft202012Validator(playbook_schema({"odd": KindSpec("odd", Odd, Odd)}))
    document = document_of((HERE / "accepted" / "streaming_pagination.yaml").read_bytes())
    document["workflow"] = [{"step": "start", "tool": {"kind": "odd", "thing": [1], "spec": {"thing": {}}}}]
    assert reader.is_valid(document)
    document["workflow"][0]["tool"]["other"] = 1
    assert not reader.is_valid(document)


def inside(resource: Resource[Any]) -> Iterator[Any]:
    """A schema and all its subschemas."""
    yield resource.contents
    for one in resource.subresources():
        yield from inside(one)


@pytest.mark.parametrize("kinds", [KINDS, INSTALLED], ids=["of tests", "installed"])
def test_the_schema_is_one_of_the_draft_it_names_with_no_keyword_beyond_it(kinds: Kinds) -> None:
    schema = playbook_schema(kinds)
    assert schema["$schema"] == schema_module.DIALECT
    Draft202012Validator.check_schema(schema)
    used = {key for part in inside(DRAFT202012.create_resource(schema)) if isinstance(part, dict) for key in part}
    assert {"$ref", "if", "errorMessage"} <= used <= KEYWORDS


@pytest.mark.parametrize("kinds", [KINDS, INSTALLED], ids=["of tests", "installed"])
def test_every_reference_of_the_schema_leads_to_a_definition_and_every_definition_is_used(kinds: Kinds) -> None:
    schema = playbook_schema(kinds)
    text = json.dumps(schema)
    assert set(re.findall(r'"\$ref": "([^"]*)"', text)) == {f"#/$defs/{name}" for name in schema["$defs"]}


def test_the_schema_is_the_same_each_time() -> None:
    assert json.dumps(playbook_schema(INSTALLED)) == json.dumps(playbook_schema(INSTALLED))


def test_a_modeline_is_a_comment_to_the_parser() -> None:
    text = (HERE / "accepted" / "everything.yaml").read_text(encoding="utf-8")
    assert check(f"# yaml-language-server: $schema=playbook.schema.json\n{text}", KINDS).ok
