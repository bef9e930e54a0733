"""Playbooks written from the sources alone: what a run says of itself, and the hints of its errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from audit_api import AuditApi, audit_api

from cli_program import only_json
from warm_program import noetl

AUDIT = Path(__file__).parent
C65 = AUDIT / "c65_admit_else_deny_args.yaml"


@pytest.fixture
def api() -> Iterator[AuditApi]:
    with audit_api() as api:
        yield api


@pytest.mark.xdist_group("stack")
def test_c65_names_the_discarded_token_wherever_its_end_is_said(shared_home: Path) -> None:
    run = noetl("run", C65, "-o", "json", "--home", shared_home)
    assert (run.returncode, run.stderr) == (0, "")
    ended: dict[str, Any] = only_json(run)
    (token,) = ended["discarded"]
    assert (token["step"], token["reason"]) == ("work", "nothing left can change its admission")
    assert (ended["status"], ended["warnings"]) == ("completed", [])
    at = (ended["execution_id"], "--home", shared_home)
    got = only_json(noetl("execution", "get", *at, "-o", "json"))
    assert (got["discarded"], got["discarded_tokens"], got["warnings"]) == ([token], 1, [])
    line = "token for work discarded: nothing left can change its admission"
    assert line in noetl("execution", "get", *at).stdout.splitlines()


@pytest.mark.xdist_group("stack")
def test_execution_start_warns_of_an_undeclared_key(shared_home: Path) -> None:
    begun = noetl("execution", "start", C65, "--set", "limits=3", "--wait", "-o", "json", "--home", shared_home)
    text = "`workload.limits` is not declared by the playbook; did you mean `workload.limit`?"
    assert (begun.returncode, begun.stderr.splitlines()) == (0, [f"warning: {text}"])
    assert only_json(begun)["warnings"] == [{"kind": "undeclared_workload", "message": text, "step": None}]


@pytest.mark.xdist_group("stack")
def test_c31_retries_after_the_seconds_of_a_header(shared_home: Path, api: AuditApi, tmp_path: Path) -> None:
    playbook = api.playbook(AUDIT / "c31_delay_from_retry_after.yaml", tmp_path)
    ended = only_json(noetl("run", playbook, "-o", "json", "--home", shared_home))
    assert (ended["status"], ended["error"]) == ("completed", None)
    assert (ended["result"]["status"], len(api.asked)) == (200, 2)
