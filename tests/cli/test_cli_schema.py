"""``playbook schema``: the JSON Schema on stdout or in a file."""

from __future__ import annotations

import json
from pathlib import Path

from warm_program import noetl


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


def test_a_file_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    found = noetl("playbook", "schema", "-o", tmp_path / "nowhere" / "schema.json")
    assert found.returncode == 2
    assert (
        found.stderr == f"noetl-stream: {tmp_path}/nowhere/schema.json: cannot be written: No such file or directory\n"
    )
