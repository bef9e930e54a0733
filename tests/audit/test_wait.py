"""Playbooks written from the sources alone: approval by arc, and a failure that ends its branch alone (LANGUAGE §7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_program import only_json
from noetl_stream.playbook.compile.compiler import check
from noetl_testkit.scenario.scenario import Scenario, installed_kinds
from warm_program import noetl

AUDIT = Path(__file__).parent
WAIT = "spec: { wait: { timeout_s: 600 } }"


def text_of(name: str) -> str:
    return (AUDIT / f"{name}.yaml").read_text()


def waiting(name: str) -> str:
    """The playbook with the wait that its author was not told of."""
    block = text_of(name).replace("      arcs:\n", f"      {WAIT}\n      arcs:\n")
    return block.replace("next: { arcs", f"next: {{ {WAIT}, arcs")


def warnings_of(text: str) -> list[tuple[str, int]]:
    return [(one.code, one.line) for one in check(text, installed_kinds()).diagnostics if one.severity == "warning"]


@pytest.mark.parametrize(
    ("name", "line"),
    [("c04a_rs_s83_approval_as_written", 10), ("x2_approval_arc_default", 7), ("m01_undefined_ctx_in_admit", 8)],
)
def test_a_key_that_nothing_sets_is_warned_about_unless_a_wait_is_there(name: str, line: int) -> None:
    assert warnings_of(text_of(name)) == [("never_set", line)]
    if name != "m01_undefined_ctx_in_admit":
        assert warnings_of(waiting(name)) == []


@pytest.mark.parametrize("name", ["c04a_rs_s83_approval_as_written", "x2_approval_arc_default"])
def test_an_arc_that_reads_the_approval_rests_until_it_is_given(name: str) -> None:
    scenario = Scenario(waiting(name))
    scenario.start()
    scenario.done("ask")
    assert (scenario.status, scenario.execution.shown_status) == ("running", "waiting")
    scenario.patch(approved=True)
    assert scenario.working == [("pay", None)]


def test_a_misspelt_key_is_found_in_spite_of_another_error() -> None:
    [warning] = [one for one in check(text_of("c76_default_hint"), installed_kinds()).diagnostics if one.line == 9]
    assert (warning.code, warning.hint) == ("never_set", "did you mean `ctx.approved`?")


def test_a_step_in_best_effort_ends_its_branch_and_the_sibling_goes_on() -> None:
    text = text_of("c27_step_failure_best_effort")
    assert warnings_of(text) == []
    scenario = Scenario(text)
    scenario.start()
    scenario.failed("fragile", "http_status")
    scenario.done("solid")
    scenario.done("end")
    assert (scenario.status, scenario.result) == ("completed", {"reached": True})


@pytest.mark.xdist_group("stack")
def test_an_approval_by_arc_is_explained_patched_and_completed(shared_home: Path, tmp_path: Path) -> None:
    playbook = tmp_path / "approval.yaml"
    text = waiting("c04a_rs_s83_approval_as_written")
    playbook.write_text(text.replace("    tool: { kind: noop }\n    next", "    next"))  # it rests as soon as it starts
    home = ("--home", shared_home)
    begun = only_json(noetl("execution", "start", playbook, "-o", "json", *home))["execution_id"]
    (found,) = only_json(noetl("execution", "get", begun, "-o", "json", *home))["waits"]
    assert (found["step"], found["for"], found["waiting_on"]["ctx"]) == ("ask", "next", ["approved"])
    (guard,) = found["waiting_on"]["guards"]
    assert (guard["holds"], guard["missing"], guard["to"]) == (None, ["ctx.approved"], "pay")
    (why,) = only_json(noetl("execution", "why", begun, "-o", "json", *home))["reasons"]
    [answers] = why["waiting_on"].pop("expects")
    assert (why["kind"], why["waiting_on"]) == ("next", found["waiting_on"])
    assert answers["key"] == "approved" and {"value": True, "moves": True, "to": ["pay"]} in answers["values"]
    assert noetl("execution", "patch", begun, "--set", "approved=true", *home).returncode == 0
    ended = only_json(noetl("execution", "wait", begun, "--timeout", "60", "-o", "json", *home))
    assert (ended["status"], ended["result"], ended["waits"]) == ("completed", {"paid": True}, [])
