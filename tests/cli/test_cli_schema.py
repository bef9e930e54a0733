"""``playbook schema``: the JSON Schema on stdout or in a file."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path

from jsonschema import Draft202012Validator

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.source import read_source
from warm_program import noetl

EXAMPLES = Path(__file__).resolve().parents[2] / "playbooks"


def test_the_schema_is_printed_as_one_json_document() -> None:
    schema = json.loads(noetl("playbook", "schema").stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert {"metadata", "workflow", "workbook", "keychain"} <= set(schema["properties"])
    assert {"task_http", "task_python", "task_wait"} <= set(schema["$defs"])


def test_the_schema_goes_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "playbook.schema.json"
    found = noetl("playbook", "schema", "-o", file)
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    assert json.loads(file.read_text(encoding="utf-8")) == json.loads(noetl("playbook", "schema").stdout)


def test_kinds_that_are_installed_elsewhere_can_be_allowed() -> None:
    assert "task_snowflake" in json.loads(noetl("playbook", "schema", "--kinds", "snowflake").stdout)["$defs"]


ENTRY = {
    "type": "object",
    "required": ["name", "description", "url"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "description": {"type": "string", "minLength": 1},
        "url": {"type": "string", "pattern": "^https://.*[.]json$"},
        "fileMatch": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 1},
    },
}
"""What JSON Schema Store asks of an entry of its catalog."""


def test_the_entry_of_the_catalog_is_for_playbooks_and_names_the_schema_of_the_store() -> None:
    entry = json.loads(noetl("playbook", "schema", "--form", "entry").stdout)
    assert [*Draft202012Validator(ENTRY).iter_errors(entry)] == []
    assert any(fnmatch("load.noetl.yaml", pattern) for pattern in entry["fileMatch"])
    assert not any(fnmatch("compose.yaml", pattern) for pattern in entry["fileMatch"])
    stored = json.loads(noetl("playbook", "schema", "--form", "store").stdout)
    assert stored.pop("$id") == entry["url"]
    assert stored == json.loads(noetl("playbook", "schema").stdout)


def test_the_schema_of_the_store_accepts_the_examples() -> None:
    stored = json.loads(noetl("playbook", "schema", "--form", "store").stdout)
    Draft202012Validator.check_schema(stored)
    validator = Draft202012Validator(stored)
    playbooks = [file for file in sorted(EXAMPLES.glob("[a-m]*.yaml")) if "." not in file.stem]
    assert playbooks
    for file in playbooks:
        source = read_source(file.read_text(), Problems(file.name))
        assert source is not None and [*validator.iter_errors(source.root.plain())] == [], file.name


def test_a_file_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    found = noetl("playbook", "schema", "-o", tmp_path / "nowhere" / "schema.json")
    assert found.returncode == 2
    assert (
        found.stderr == f"noetl-stream: {tmp_path}/nowhere/schema.json: cannot be written: No such file or directory\n"
    )
