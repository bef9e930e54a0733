"""``playbook check``: every problem of every file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli_program import HEAD, ONE_STEP, only_json
from warm_program import noetl

WRONG = HEAD + "metadata: {name: a, path: b}\nworkflow:\n  - step: start\n    tool: {kind: nooop}\n"
FOREIGN = HEAD + "metadata: {name: a, path: b}\nworkflow:\n  - step: start\n    tool: {kind: snowflake, query: x}\n"

ENDLESS = (
    HEAD
    + """metadata: {name: a, path: b}
workflow:
  - step: start
    next: { arcs: [ { step: again } ] }
  - step: again
    next: { arcs: [ { step: again } ] }
"""
)


def test_a_good_file_is_ok(one_step: Path) -> None:
    found = noetl("playbook", "check", one_step)
    assert (found.returncode, found.stdout, found.stderr) == (0, f"{one_step}: ok\n", "")


def test_all_files_are_checked_even_if_one_is_wrong(playbook: Callable[..., Path], tmp_path: Path) -> None:
    good, wrong, absent = playbook(ONE_STEP, "good.yaml"), playbook(WRONG, "wrong.yaml"), tmp_path / "absent.yaml"
    found = noetl("playbook", "check", absent, wrong, good)
    assert found.returncode == 2
    lines = found.stdout.splitlines()
    assert lines[0] == f"{absent}:1:1: error[file_unreadable]: no such file"
    assert lines[1].startswith(f"{wrong}:6:18: error[")
    assert lines[-1] == f"{good}: ok"


def test_json_gives_one_object_a_file_with_its_diagnostics(playbook: Callable[..., Path]) -> None:
    good, wrong = playbook(ONE_STEP, "good.yaml"), playbook(WRONG, "wrong.yaml")
    first, second = only_json(noetl("playbook", "check", "-o", "json", good, wrong))
    assert first == {"file": str(good), "ok": True, "diagnostics": []}
    assert second["ok"] is False
    assert set(second["diagnostics"][0]) == {
        "severity", "code", "message", "hint", "file", "line", "column", "pointer", "path",
    }  # fmt: skip
    assert second["diagnostics"][0]["line"] == 6


def test_a_proved_finding_shows_its_path_as_text_and_as_json(playbook: Callable[..., Path]) -> None:
    file = playbook(ENDLESS)
    found = noetl("playbook", "check", file)
    assert found.returncode == 0
    assert "  path: start → again; again and again: again → again\n" in found.stdout
    [checked] = only_json(noetl("playbook", "check", "-o", "json", file))
    assert [firing["repeats"] for firing in checked["diagnostics"][0]["path"]] == [False, True]


@pytest.mark.parametrize(
    ("form", "begins"), [("mermaid", "flowchart TD"), ("dot", "digraph playbook {"), ("svg", "<svg "), ("json", "{")]
)
def test_a_playbook_is_drawn_in_each_form(playbook: Callable[..., Path], form: str, begins: str) -> None:
    found = noetl("playbook", "graph", playbook(ENDLESS), "-o", form)
    assert found.returncode == 0 and found.stdout.startswith(begins)
    assert "again" in found.stdout


def test_kinds_that_are_installed_elsewhere_can_be_accepted(playbook: Callable[..., Path]) -> None:
    file = playbook(FOREIGN)
    assert noetl("playbook", "check", file).returncode == 2
    assert noetl("playbook", "check", "--kinds", "snowflake", file).returncode == 0


def test_a_kind_that_is_switched_off_here_is_a_warning(playbook: Callable[..., Path]) -> None:
    found = noetl("playbook", "check", playbook(ONE_STEP), NOETL_KINDS_OFF="python,shell")
    assert found.returncode == 0
    assert "warning[kind_off]: the operator has switched off tasks of kind `python`" in found.stdout


def test_strictly_every_warning_is_an_error(playbook: Callable[..., Path]) -> None:
    file = playbook(
        HEAD + "metadata: {name: a, path: b}\nworkload: {a: '{{ b }}'}\nworkflow: [{step: s, tool: {kind: noop}}]\n"
    )
    lax, strict = noetl("playbook", "check", file), noetl("playbook", "check", "--strict", file)
    assert (lax.returncode, strict.returncode) == (0, 2)
    assert lax.stdout.replace("warning[", "error[").removesuffix(f"{file}: ok\n") == strict.stdout
    (found,) = only_json(noetl("playbook", "check", "--strict", "-o", "json", file))
    assert (found["ok"], [one["severity"] for one in found["diagnostics"]]) == (False, ["error"])


def test_no_file_at_all_is_a_usage_error() -> None:
    assert noetl("playbook", "check").returncode == 2
