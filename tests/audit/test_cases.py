"""Playbooks that once ended otherwise than the language says, run by a stack; older ones are upgraded first."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

HERE = Path(__file__).parent


def case(name: str) -> Path:
    return next(HERE.glob(f"{name}_*.yaml"))


def ended(file: Path, home: Path) -> dict[str, Any]:
    """How a run ends, as its document has it."""
    found: dict[str, Any] = json.loads(noetl("run", "-o", "json", file, NOETL_HOME=str(home)).stdout)
    return found


@pytest.mark.parametrize(("name", "result"), [("f01", {"v": "kept"}), ("f02", {"status": "done", "job": "j1"})])
def test_a_retry_reads_what_the_task_before_it_has_returned(name: str, result: Any, shared_home: Path) -> None:
    found = ended(case(name), shared_home)
    assert (found["status"], found["result"]) == ("completed", result)


def test_a_tolerated_failure_of_a_step_is_reported(shared_home: Path) -> None:
    found = ended(case("f03"), shared_home)
    assert (found["status"], [one["kind"] for one in found["warnings"]]) == ("completed", ["tolerated"])


@pytest.mark.parametrize(
    ("name", "status", "result", "said"),
    [
        ("u01", "completed", "skipped", ""),
        ("u02", "failed", None, "not allowed"),
        ("u04", "completed", {"ctx_b": 2, "page": 1}, ""),
        ("u05", "failed", None, "too many users"),
        ("u08", "completed", {"got": 3}, ""),
    ],
)
def test_an_upgraded_case_ends_as_it_did(
    name: str, status: str, result: Any, said: str, shared_home: Path, tmp_path: Path
) -> None:
    file = Path(shutil.copy(case(name), tmp_path))
    upgraded = noetl("playbook", "upgrade", "--write", file)
    assert upgraded.returncode == 0 and said in upgraded.stderr
    found = ended(file, shared_home)
    assert (found["status"], found["result"]) == (status, result), file.read_text()


def test_a_parameter_may_have_the_name_of_an_iterator(tmp_path: Path) -> None:
    file = Path(shutil.copy(case("u06"), tmp_path))
    noetl("playbook", "upgrade", "--write", file)
    checked = noetl("playbook", "check", file)
    assert checked.returncode == 0, checked.stdout
