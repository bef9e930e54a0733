"""Playbooks written from the sources alone: loops over large results, and loops that tolerate failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from audit_api import AuditApi, audit_api

from cli_program import only_json
from noetl_stream.model.events import Fact, LoopPagedOut
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_testkit.scenario.scenario import Scenario
from warm_program import noetl

AUDIT = Path(__file__).parent

TOLERANT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: tolerant, path: audit/tolerant }
workflow:
  - step: fetch
    spec: { policy: { failure: { mode: best_effort } } }
    loop: { in: "{{ range(20) | list }}", iterator: n, spec: { mode: parallel } }
    tool: { kind: python, args: { n: "{{ n }}" }, code: "result = 1 // (n // 4)" }
"""


@pytest.fixture
def api() -> Iterator[AuditApi]:
    with audit_api() as api:
        yield api


def rows(kb: int) -> dict[str, Any]:
    """What the API answers to `/big`, as the result of the request."""
    return {"status": 200, "headers": {}, "data": {"rows": [{"i": i, "text": "x" * 1000} for i in range(kb)]}}


@pytest.mark.parametrize(("name", "kb"), [("c23_large_results", 300), ("c74_big_loop_items", 3_500)])
def test_the_journal_holds_no_list_of_rows(name: str, kb: int) -> None:
    scenario = Scenario((AUDIT / f"{name}.yaml").read_text())
    scenario.objects.takes = lambda data: len(data) > DEFAULT_LIMITS.max_inline_bytes
    scenario.start()
    scenario.done("start", rows(kb))
    if scenario.execution.awaited is not None:  # for the args of an arc
        scenario.look_into()
    scenario.done("each")
    (paged,) = scenario.facts(LoopPagedOut)
    assert paged.count == kb and len(codec.encode(paged)) < 5_000
    scenario.done("each", index=7)
    assert not any(b"x" * 1000 in codec.encode(fact) for fact in scenario.facts(Fact))


@pytest.mark.xdist_group("stack")
def test_c23_runs_over_its_rows(shared_home: Path, api: AuditApi, tmp_path: Path) -> None:
    run = noetl("run", api.playbook(AUDIT / "c23_large_results.yaml", tmp_path), "-o", "json", "--home", shared_home)
    ended = only_json(run)
    assert (ended["status"], ended["result"]) == ("completed", {"c": 300, "last": 299})
    events = only_json(noetl("execution", "events", ended["execution_id"], "-o", "json", "--home", shared_home))
    (paged,) = [event for event in events if event["name"] == "loop.paged_out"]
    assert paged["data"]["count"] == 300
    assert not [event for event in events if event["name"] == "loop.paged" or "x" * 1000 in str(event["data"])]


@pytest.mark.xdist_group("stack")
def test_tolerated_failures_are_shown_wherever_the_end_is_shown(shared_home: Path, tmp_path: Path) -> None:
    playbook = tmp_path / "tolerant.yaml"
    playbook.write_text(TOLERANT)
    text = "4 of 20 iterations of fetch failed"
    run = noetl("run", playbook, "--home", shared_home)
    assert run.returncode == 0 and f"completed, {text}, in " in run.stderr.splitlines()[-1]
    at = (run.stderr.rpartition("(")[2].strip(") \n"), "--home", shared_home)
    assert f"completed, {text}" in noetl("execution", "get", *at).stdout
    got = only_json(noetl("execution", "get", *at, "-o", "json"))
    assert got["warnings"] == [{"kind": "tolerated", "message": text, "step": "fetch"}]
    why = noetl("execution", "why", *at).stdout
    assert f"The execution completed, {text}." in why and "ZeroDivisionError" in why
