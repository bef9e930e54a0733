"""``noetl-stream backup`` with embedded stacks: from one home into another, which has its keys."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_program import one_clear_line, only_json
from warm_program import noetl

LARGE = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large, path: tests/backup}
workflow:
  - step: large
    tool: {kind: noop, args: {text: "{{ 'large ' * 20000 }}"}}
"""
LISTED = ("name", "generation", "executions", "objects")


@pytest.mark.verify
def test_a_backup_of_one_home_is_restored_into_another(
    own_home: Path, tmp_path: Path, playbook: Callable[[str], Path]
) -> None:
    ended = noetl("run", playbook(LARGE), "--home", own_home, "-o", "json")
    assert ended.returncode == 0, ended.stderr
    execution_id = only_json(ended)["execution_id"]
    noetl("credential", "set", "shop", "--kind", "http", "--set", "token=hidden", "--home", own_home)
    made = noetl("backup", "create", "backups", "--name", "first", "--home", own_home, cwd=tmp_path)
    assert (made.returncode, made.stdout) == (0, "backups/first\n"), made.stderr
    listed = only_json(noetl("backup", "list", "backups", "-o", "json", cwd=tmp_path))
    assert [[one[key] for key in LISTED] for one in listed] == [["first", 0, 1, 1]]
    again = noetl("backup", "create", "backups", "--name", "first", "--home", own_home, cwd=tmp_path)
    assert "exists already" in one_clear_line(again)

    other = own_home.parent / "other"
    other.mkdir(mode=0o700)
    for key in own_home.glob("*.key"):
        shutil.copy2(key, other)
    restored = noetl("backup", "restore", "backups/first", "--home", other, cwd=tmp_path)
    assert restored.returncode == 0, restored.stderr
    assert restored.stdout.startswith("restored 1 executions, ")
    found = noetl("execution", "result", execution_id, "--home", other, "-o", "json")
    assert only_json(found) == only_json(noetl("execution", "result", execution_id, "--home", own_home, "-o", "json"))
    assert json.loads(noetl("credential", "list", "-o", "json", "--home", other).stdout)[0]["name"] == "shop"

    refused = noetl("backup", "restore", "backups/first", "--home", own_home, cwd=tmp_path)
    assert refused.returncode == 1
    assert "stream EVENTS" in refused.stderr.splitlines()[0]


def test_a_damaged_backup_is_named_and_exits_with_1(tmp_path: Path) -> None:
    missing = noetl("backup", "verify", tmp_path)
    assert missing.returncode == 2
    assert "is not a finished backup" in missing.stderr
