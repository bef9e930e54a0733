"""``playbook check``: every problem of every file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cli_program import HEAD, ONE_STEP, only_json
from warm_program import noetl

WRONG = HEAD + "metadata: {name: a, path: b}\nworkflow:\n  - step: start\n    tool: {kind: nooop}\n"
FOREIGN = HEAD + "metadata: {name: a, path: b}\nworkflow:\n  - step: start\n    tool: {kind: snowflake, query: x}\n"


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
        "severity", "code", "message", "hint", "file", "line", "column", "pointer",
    }  # fmt: skip
    assert second["diagnostics"][0]["line"] == 6


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
