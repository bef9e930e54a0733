"""Schedules that look for files that arrive (LANGUAGE §15 *Schedule*)."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from noetl_stream.playbook.compile.compiler import CheckResult, check, check_document
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.sections import keys_of
from noetl_stream.playbook.schedule.file_arrivals import FilesSection
from noetl_stream.playbook.schedule.schedule_document import ScheduleDocument, schedule_schema
from noetl_stream.playbook.yaml.source import read_source
from noetl_stream.tools.registry import kinds_of, load_tools

KINDS = kinds_of(load_tools())
FILES = 'list: s3://orders/in, marker: s3://orders/state.json, pattern: "*.csv", auth: bucket'
LOOK = f"""apiVersion: noetl.io/v2
kind: Schedule
metadata: {{ name: orders, path: shop/orders_arrived }}
spec:
  playbook: shop/load_order
  every: 1m
  files: {{ {FILES} }}
  workload: {{ path: "{{{{ file.path }}}}" }}
"""


def read(text: str) -> ScheduleDocument:
    found = check_document(text, KINDS)
    assert found.schedule is not None and found.diagnostics == (), found.diagnostics
    return found.schedule


def found_in(text: str) -> CheckResult:
    return check_document(text, KINDS, file="s.yaml")


def test_the_generated_playbook_passes_the_check_and_calls_that_of_the_user() -> None:
    schedule = read(LOOK)
    assert (schedule.call.path, schedule.terms.playbook) == ("shop/load_order", "shop/orders_arrived/files")
    assert (schedule.terms.workload, schedule.terms.overlap) == ({}, "allow")
    assert schedule.terms.calls == "shop/load_order"
    assert schedule.arrivals_text is not None
    checked = check(schedule.arrivals_text, KINDS, proves=True)
    assert checked.ok and checked.diagnostics == ()
    assert [(one.path, one.version) for one in checked.calls] == [("shop/load_order", None)]
    assert [one.path for one in found_in(LOOK).calls] == ["shop/load_order"]


def test_the_generated_playbook_has_every_setting_of_the_schedule() -> None:
    more = "late_s: 60, limit: 7, marker_auth: own, max_in_flight: 3"
    text = LOOK.replace("load_order", "load_order\n  version: '2'").replace("auth: bucket", f"auth: bucket, {more}")
    made = json.loads(read(text).arrivals_text or "")
    arrived, mark, each = made["workflow"]
    about = {"pattern": "*.csv", "limit": 7, "late_s": 60, "auth": "bucket", "marker_auth": "own"}
    assert arrived["tool"] == {"kind": "files", "list": "s3://orders/in", "arrived": "s3://orders/state.json", **about}
    assert mark["tool"]["auth"] == "own"
    assert each["loop"]["spec"]["max_in_flight"] == 3
    called = {"path": "shop/load_order", "version": "2", "args": {"path": "{{ file.path }}"}}
    assert each["tool"] == {"kind": "playbook", **called}


def test_without_a_workload_the_file_is_passed_on() -> None:
    made = json.loads(read(LOOK.partition("  workload")[0]).arrivals_text or "")
    assert made["workflow"][-1]["tool"]["args"] == {"file": "{{ file }}"}


@pytest.mark.parametrize(
    ("old", "new", "place", "code", "words"),
    [
        ("file.path", "file.pth", (8, 25), "unknown_name", "did you mean `path`?"),
        ("file.path", "schedule.due", (8, 25), "unbound_name", "`schedule` is not defined"),
        ("pattern:", "patern:", (7, 66), "unknown_key", "did you mean `pattern`?"),
        ("list: s3://orders/in, ", "", (7, 10), "missing_key", "list: s3://bucket/folder"),
        ("s3://orders/in", "ftp://orders", (7, 10), "invalid_value", "must begin with s3://"),
        ("s3://orders/in", "'{{ x }}'", (7, 10), "template_not_rendered", "`files` is not rendered"),
        ("auth: bucket", "limit: 0", (7, 10), "invalid_value", "greater than or equal to 1"),
        ("every: 1m", "every: 1m\n  overlap: cancel", (7, 12), "conflicting_keys", "`overlap: cancel` beside `files`"),
        ("every: 1m", "every: 1m\n  key: x", (7, 3), "conflicting_keys", "`key` beside `files`"),
        ("shop/orders_arrived", "a" * 510, (7, 10), "invalid_value", "is too long for `files`"),
    ],
)
def test_a_mistake_is_named_with_its_place(old: str, new: str, place: tuple[int, int], code: str, words: str) -> None:
    text = LOOK.replace(old, new)
    assert text != LOOK
    found = [one for one in found_in(text).diagnostics if one.code == code]
    assert [(one.line, one.column) for one in found] == [place], found_in(text).diagnostics
    assert words in found[0].render()


def test_a_missing_kind_is_reported_by_the_check() -> None:
    [found] = check_document(LOOK, {}).diagnostics
    assert (found.code, found.hint) == ("unknown_kind", "install the plugin `noetl-stream-files`")


def test_a_trigger_on_files_is_refused_with_the_schedule_to_write() -> None:
    text = (
        LOOK.replace("Schedule", "Trigger")
        .replace("  every: 1m\n  files: {", "  on: { files: {")
        .replace("bucket }", "bucket } }")
    )
    [found] = [one for one in found_in(text).diagnostics if one.code == "unknown_key"]
    assert found.line == 6
    assert "kind: Schedule" in (found.hint or "")


def test_the_json_schema_describes_every_key() -> None:
    schema = schedule_schema()
    source = read_source(LOOK, Problems("file"))
    assert source is not None
    assert list(Draft202012Validator(schema).iter_errors(source.root.plain())) == []
    files = schema["properties"]["spec"]["properties"]["files"]["anyOf"][0]
    assert list(files["properties"]) == keys_of(FilesSection)
    assert all(key["description"] for key in files["properties"].values())
