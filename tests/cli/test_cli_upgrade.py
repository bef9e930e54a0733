"""``playbook upgrade``: what it prints, writes and refuses, and how it ends."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from cli_program import HEAD, ONE_STEP, only_json
from warm_program import noetl

OLDER = HEAD + "metadata: {name: a, path: b}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n    next: end\n"
OLDER += "  - step: end  # of it\n    tool: {kind: noop}\n"
PRESENT = OLDER.replace("    next: end\n", "    next:\n      arcs:\n        - {step: end}\n")
UNCERTAIN = HEAD + "metadata: {name: a, path: b}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n    sink: here\n"


def test_the_playbook_goes_to_stdout_and_the_notes_to_stderr(playbook: Callable[..., Path]) -> None:
    file = playbook(OLDER)
    found = noetl("playbook", "upgrade", file)
    assert (found.returncode, found.stdout) == (0, PRESENT)
    lines = found.stderr.splitlines()
    assert f"{file}:7: changed[next_shape]: `next` is a router with `arcs`" in lines
    assert lines[-1] == f"{file}: upgraded, 1 assumed"
    assert file.read_text() == OLDER


def test_write_changes_only_the_files_that_need_it(playbook: Callable[..., Path]) -> None:
    older, present = playbook(OLDER, "older.yaml"), playbook(ONE_STEP, "present.yaml")
    older.chmod(0o640)
    os.utime(present, ns=(1, 1))
    found = noetl("playbook", "upgrade", "--write", older, present)
    assert (found.returncode, found.stdout) == (0, "")
    assert (older.read_text(), older.stat().st_mode & 0o777) == (PRESENT, 0o640)
    assert (present.read_text(), present.stat().st_mtime_ns) == (ONE_STEP, 1)
    assert found.stderr.splitlines()[-1] == f"{present}: unchanged"
    assert sorted(path.name for path in older.parent.iterdir() if path.name.startswith(".")) == []


def test_diff_and_check_rewrite_nothing(playbook: Callable[..., Path]) -> None:
    file = playbook(OLDER)
    shown = noetl("playbook", "upgrade", "--diff", file)
    assert shown.returncode == 0
    assert "-    next: end\n+    next:\n" in shown.stdout
    assert noetl("playbook", "upgrade", "--check", file).returncode == 1
    assert file.read_text() == OLDER
    file.write_text(PRESENT)
    assert noetl("playbook", "upgrade", "--check", file).returncode == 0


def test_open_decisions_are_shown_in_the_file_and_in_the_exit_code(playbook: Callable[..., Path]) -> None:
    file = playbook(UNCERTAIN)
    found = noetl("playbook", "upgrade", "--write", file)
    assert found.returncode == 1
    message = "write a task that stores the data: kind, auth, command, params"
    assert f"{file}:7: decide[step_sink]: {message}" in found.stderr
    assert f"    # upgrade: {message}\n    sink: here\n" in file.read_text()
    assert found.stderr.splitlines()[-1] == f"{file}: upgraded, 1 to decide, does not pass `playbook check`"
    assert noetl("playbook", "upgrade", file).returncode == 1, "the comment is still there"


def test_json_has_an_object_for_each_file(playbook: Callable[..., Path], tmp_path: Path) -> None:
    older, absent = playbook(OLDER), tmp_path / "absent.yaml"
    found = noetl("playbook", "upgrade", "-o", "json", older, absent)
    assert found.returncode == 2
    first, second = only_json(found)
    assert {key: first[key] for key in ("file", "changed", "ok", "text", "error")} == {
        "file": str(older), "changed": True, "ok": True, "text": PRESENT, "error": None,
    }  # fmt: skip
    assert [note["kind"] for note in first["notes"]] == ["assumed", "changed"]
    assert (second["text"], second["error"]) == (None, f"{absent}: no such file")


def test_a_file_without_a_playbook_is_refused_with_the_reason(playbook: Callable[..., Path], tmp_path: Path) -> None:
    refused = {
        playbook("a: [1\n", "open.yaml"): "error[yaml_syntax]",
        playbook("a: 1\n", "other.yaml"): "error[missing_key]: this is not a playbook: it has no `workflow`",
        playbook("# " + "x" * 600_000, "huge.yaml"): "error[yaml_limit]",
        playbook("", "empty.yaml"): "error[yaml_empty]",
        tmp_path: "is a folder",
    }
    found = noetl("playbook", "upgrade", "--check", *refused)
    assert found.returncode == 2
    for file, reason in refused.items():
        assert [line for line in found.stderr.splitlines() if line.startswith(f"{file}:") and reason in line], file


def test_options_that_do_not_go_together_are_refused(playbook: Callable[..., Path]) -> None:
    one, two = playbook(OLDER, "one.yaml"), playbook(OLDER, "two.yaml")
    assert "several files need --write, --diff or --check" in noetl("playbook", "upgrade", one, two).stderr
    assert "--write cannot be combined with" in noetl("playbook", "upgrade", "--write", "--diff", one).stderr
    assert one.read_text() == two.read_text() == OLDER


def test_check_names_the_command_once(playbook: Callable[..., Path]) -> None:
    file = playbook(OLDER.replace("{kind: noop}\n    next", "{kind: noop, eval: []}\n    next"))
    found = noetl("playbook", "check", file)
    assert found.stdout.count("`noetl-stream playbook upgrade` rewrites older forms") == 1


def test_check_does_not_name_the_command_for_what_it_leaves_to_the_author(playbook: Callable[..., Path]) -> None:
    file = playbook(
        """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: m, path: m/m }
workflow:
  - step: start
    tool: { kind: noop, next: { arcs: [ { step: last } ] } }
  - { step: last, tool: { kind: noop } }
"""
    )
    found = noetl("playbook", "check", file)
    assert "a task has no `next`" in found.stdout
    assert "playbook upgrade" not in found.stdout
