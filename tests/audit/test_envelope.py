"""Playbooks written from the sources alone: what a run says of itself, and the hints of its errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from audit_api import AuditApi, audit_api

from cli_program import only_json
from noetl_testkit.scenario.scenario import Scenario
from warm_program import noetl

AUDIT = Path(__file__).parent
WAIT_OR_DEFAULT = "| default(…)`, or let a guard wait for it with `next.spec.wait` or `admit.wait`"
C65 = AUDIT / "c65_admit_else_deny_args.yaml"


@pytest.fixture
def api() -> Iterator[AuditApi]:
    with audit_api() as api:
        yield api


def scenario_of(name: str) -> Scenario:
    scenario = Scenario((AUDIT / f"{name}.yaml").read_text())
    scenario.start()
    return scenario


@pytest.mark.xdist_group("stack")
def test_c65_names_the_discarded_token_wherever_its_end_is_shown(shared_home: Path) -> None:
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


def test_m01_says_how_a_guard_may_wait_for_a_key() -> None:
    error = scenario_of("m01_undefined_ctx_in_admit").error
    assert error.kind == "expression_error"
    assert f"nothing has set it: write `ctx.approved {WAIT_OR_DEFAULT}" in error.message


def test_m06_says_which_keys_the_result_has() -> None:
    scenario = scenario_of("m06_outcome_data")
    page = {"data": [], "paging": {"hasMore": False}}
    scenario.done("start", {"status": 200, "headers": {}, "data": page})
    assert scenario.error.kind == "expression_error"
    text = "it has `status`, `headers`, `data`; did you mean `outcome.result.data.paging`?"
    assert text in scenario.error.message


def test_c20_an_arc_without_a_guard_does_not_handle_a_failure() -> None:
    scenario = scenario_of("c20_arc_without_when_after_failure")
    scenario.failed("start", "http_status", "500")
    assert (scenario.status, scenario.error.kind) == ("failed", "http_status")
