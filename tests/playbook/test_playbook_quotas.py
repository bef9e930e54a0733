"""Quotas of an execution: what ``check`` accepts and refuses (LANGUAGE §14 *Quotas*)."""

from __future__ import annotations

import pytest
from playbook_building import checked, codes, workflow

from noetl_stream.model.events import Quotas
from noetl_stream.playbook.compile.view import compiled_view


def playbook(quotas: str) -> str:
    root = f"executor: {{ spec: {{ policy: {{ quotas: {{ {quotas} }} }} }} }}\n"
    return workflow("- { step: start, tool: { kind: noop } }", root)


def test_quotas_are_read_and_shown_in_the_compiled_view() -> None:
    plan = checked(playbook("step_runs: 5, task_seconds: 1.5, on_exceeded: suspend")).require_plan()
    assert plan.quotas == Quotas(step_runs=5, task_seconds=1.5, on_exceeded="suspend")
    assert compiled_view(plan)["quotas"] == {"step_runs": 5, "task_seconds": 1.5, "on_exceeded": "suspend"}
    assert plan.newer, "no server of version 0.3 may meet them"


REFUSED = [
    ("on_exceeded: warn", "missing_key", "quotas: { task_seconds: 600, on_exceeded: fail }"),
    ("step_runs: 0", "invalid_value", None),
    ("task_runs: 1.5", "wrong_type", "write a number such as 5"),
    ('bytes: "{{ workload.bytes }}"', "wrong_type", "write a constant: only `key` takes a template"),
    ("task_seconds: -1", "invalid_value", "remove it for no timeout"),
    ("step_runs: 5, on_exceeded: stop", "invalid_value", "write one of `fail`, `warn`, `suspend`"),
    ("step_runs: 5, steps: 5", "unknown_key", "did you mean `step_runs`?"),
]


@pytest.mark.parametrize(("quotas", "code", "hint"), REFUSED)
def test_a_mistake_in_quotas_gets_its_diagnostic_and_a_hint(quotas: str, code: str, hint: str | None) -> None:
    [problem] = checked(playbook(quotas)).diagnostics
    assert (problem.code, problem.hint) == (code, hint)


def test_quotas_of_a_step_stay_reserved() -> None:
    step = "- { step: start, tool: { kind: noop }, spec: { policy: { quotas: { step_runs: 1 } } } }"
    assert codes(workflow(step)) == ["reserved"]
