"""Every broken playbook gets exactly the diagnostics in its header: code, line and column (LANGUAGE §1 to §7).

A header line is ``# expect: code line:column`` for an error, ``# warn: …`` for a warning. To add a case, add a file;
cases that no text file can hold are in ``broken_generated.py``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from broken_generated import GENERATED, Broken
from playbook_kinds import KINDS

from noetl_stream.playbook.compile.compiler import check
from noetl_testkit.simulation.roles import check_once

FOLDER = Path(__file__).with_name("broken")
FILES = sorted(FOLDER.glob("*.yaml"))
EXPECTATION = re.compile(r"^# (expect|warn): (\w+) (\d+):(\d+)$", re.MULTILINE)


def expected_of(text: str) -> list[tuple[int, int, str, str]]:
    severities = {"expect": "error", "warn": "warning"}
    found = EXPECTATION.findall(text)
    return sorted((int(line), int(column), severities[word], code) for word, code, line, column in found)


def test_a_broken_playbook_gets_exactly_its_diagnostics() -> None:
    wrong = []
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        checked = check_once(text, KINDS, file=path.name)
        found = sorted((item.line, item.column, item.severity, item.code) for item in checked.diagnostics)
        if found != expected_of(text) or checked.ok:
            wrong.append(f"{path.name}: {found}, ok: {checked.ok}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("broken", GENERATED, ids=lambda broken: broken.name)
def test_a_text_that_no_file_can_hold_is_refused_at_its_place(broken: Broken) -> None:
    checked = check(broken.text, KINDS)
    assert [(item.code, item.line, item.column) for item in checked.diagnostics] == broken.expected
    assert broken.limit in "".join(item.message for item in checked.diagnostics)
    assert not checked.ok


POINTED = {
    *("legacy_syntax", "step_when", "root_vars", "next_shape", "policy_shape", "label_keyed_task", "misplaced_key"),
    *("control_outside_policy", "else_without_then", "else_not_last", "set_ctx_in_parallel_loop", "unbound_name"),
    *("set_vars_in_parallel_loop", "unknown_step", "unknown_task", "unknown_kind", "duplicate_name", "reserved"),
    *("namespace_not_here", "impossible_comparison"),
}
"""Codes whose diagnostics all have a hint."""


def test_every_error_about_an_older_form_shows_the_form_to_write() -> None:
    silent = [
        f"{path.name}: {item.render()}"
        for path in FILES
        for item in check_once(path.read_text(encoding="utf-8"), KINDS, file=path.name).diagnostics
        if item.code in POINTED and not item.hint
    ]
    assert not silent, "\n".join(silent)


def test_there_are_enough_broken_playbooks() -> None:
    assert len(FILES) + len(GENERATED) >= 150


MOST_BYTES = 200 * 1024 * 1024


@pytest.mark.verify
@pytest.mark.skipif(sys.platform == "win32", reason="needs processes that fork")
def test_no_broken_playbook_costs_much_or_ends_in_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).with_name("broken_in_children.py")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    costs = [line.split() for line in ended.stdout.splitlines()]
    assert len(costs) == len(FILES) + len(GENERATED)
    assert [name for name, _, _, code in costs if code != "0"] == []
    assert [name for name, _, peak_bytes, _ in costs if int(peak_bytes) > MOST_BYTES] == []
    slowest, largest = max(costs, key=lambda cost: float(cost[1])), max(costs, key=lambda cost: int(cost[2]))
    with capsys.disabled():
        share = int(largest[2]) / MOST_BYTES
        print(
            f" {len(costs)} files: slowest {slowest[1]} s ({slowest[0]}), largest {share:.0%} of 200 MiB ({largest[0]})"
        )


def test_diagnostics_are_in_file_order() -> None:
    diagnostics = check((FOLDER / "executor_problems.yaml").read_text(encoding="utf-8"), KINDS).diagnostics
    places = [(item.line, item.column) for item in diagnostics]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("file", "code", "hint"),
    [
        ("root_unknown_key", "unknown_key", "did you mean `workload`?"),
        ("metadata_problems", "unknown_key", "did you mean `labels`?"),
        ("executor_problems", "unknown_key", "did you mean `max_task_runs`?"),
        ("executor_problems", "unknown_step", "did you mean `start`?"),
        ("step_unknown_key", "unknown_key", "did you mean `tool`?"),
        ("misspelt_keys_are_read_on", "unknown_key", "did you mean `kind`?"),
        ("task_inputs", "unknown_key", "did you mean `params`?"),
        ("task_kinds", "unknown_kind", "did you mean `http`?"),
        ("task_kinds", "unknown_kind", "use `files`, of the plugin noetl-stream-files"),
        ("rules_directives", "unknown_task", "did you mean `second`?"),
        ("rules_directives", "invalid_value", "did you mean `continue`?"),
        ("next_problems", "unknown_step", "did you mean `start`?"),
        ("template_reads_unknown", "unknown_task", "did you mean `first`?"),
        (
            "next_is_text",
            "next_shape",
            "write next: { arcs: [ { step: start } ] }",
        ),
        (
            "next_is_a_list",
            "next_shape",
            "write next: { arcs: [ { step: start, … } ] }",
        ),
        ("loop_problems", "wrong_type", 'write in: "{{ workload.items }}"'),
        ("yaml_unquoted_template", "yaml_key", 'write url: "{{ workload.url }}"'),
        ("yaml_key_not_text", "yaml_key", 'quote it: "1"'),
    ],
)
def test_the_hint_says_what_was_probably_meant(file: str, code: str, hint: str) -> None:
    text = (FOLDER / f"{file}.yaml").read_text(encoding="utf-8")
    hints = [item.hint for item in check(text, KINDS).diagnostics if item.code == code]
    assert hint in hints


def test_set_ctx_in_a_parallel_loop_names_set_shared() -> None:
    text = (FOLDER / "writes_in_parallel_loop.yaml").read_text(encoding="utf-8")
    [problem] = [item for item in check(text, KINDS).diagnostics if item.code == "set_ctx_in_parallel_loop"]
    assert problem.hint and "set_shared: { total: { op: add, value: 1 } }" in problem.hint


def test_a_task_name_in_an_arc_is_explained() -> None:
    text = (FOLDER / "template_wrong_namespace_in_arc.yaml").read_text(encoding="utf-8")
    [problem] = [item for item in check(text, KINDS).diagnostics if item.code == "unbound_name"]
    assert problem.hint and "steps.start.results.fetch" in problem.hint
