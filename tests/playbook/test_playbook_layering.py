"""Timeouts and knobs that executor, step and loop set for the tasks inside them (LANGUAGE §1)."""

from __future__ import annotations

from typing import Any

import pytest
from playbook_building import workflow
from playbook_kinds import KINDS, NoInputs, Strict
from pydantic import AliasChoices, Field

from noetl_stream.playbook.compile.compiler import CheckResult, check
from noetl_stream.playbook.kinds.spec import KindSpec, unchecked_kind
from noetl_stream.playbook.model.layering import MAX_LAYERED_VALUES
from noetl_stream.playbook.plan import TaskPlan, Timeouts


class SessionKnobs(Strict):
    session: dict[str, Any] = Field(default_factory=dict)
    hosts: list[str] = Field(default_factory=list)
    retries: int = Field(0, validation_alias=AliasChoices("retries", "tries"))
    pool: str = "small"


WITH_SESSIONS = {**KINDS, "session": KindSpec("session", NoInputs, SessionKnobs), "mine": unchecked_kind("mine")}


def checked(
    executor: str = "{}", step: str = "{}", loop: str = "{}", task: str = "{}", kind: str = "session"
) -> CheckResult:
    """A playbook with these ``spec`` blocks, the innermost of a task of this kind."""
    steps = (
        f"- step: start\n  spec: {step}\n  loop: {{ in: [1], iterator: item, spec: {loop} }}\n"
        f"  tool: {{ kind: {kind}, spec: {task} }}\n"
    )
    return check(workflow(steps, root=f"executor: {{ spec: {executor} }}\n"), WITH_SESSIONS)


def task_of(**specs: str) -> TaskPlan:
    result = checked(**specs)
    assert result.plan is not None, [item.render() for item in result.diagnostics]
    assert result.diagnostics == ()
    return result.plan.steps["start"].tasks[0]


def test_the_inner_scope_wins_over_the_outer_one() -> None:
    scopes = [("executor", 1), ("step", 2), ("loop", 3), ("task", 4)]
    for count in range(1, len(scopes) + 1):
        specs = {scope: f"{{ retries: {number} }}" for scope, number in scopes[:count]}
        assert task_of(**specs).knobs == {"retries": count}


def test_mappings_go_into_each_other_and_lists_replace() -> None:
    task = task_of(
        executor="{ session: { app: etl, limits: { rows: 1, bytes: 2 } }, hosts: [a, b] }",
        step="{ session: { limits: { rows: 3 } } }",
        task="{ session: { user: me, app: [x] }, hosts: [c] }",
    )
    assert task.knobs == {"session": {"app": ["x"], "limits": {"rows": 3, "bytes": 2}, "user": "me"}, "hosts": ["c"]}


def test_a_task_gets_the_knobs_of_its_own_kind_only() -> None:
    assert task_of(executor="{ retries: 1 }").knobs == {"retries": 1}
    result = checked(executor="{ retries: 1 }", kind="noop")
    assert result.plan is not None
    assert result.plan.steps["start"].tasks[0].knobs == {}


@pytest.mark.parametrize("scope", ["executor", "step", "loop"])
def test_a_knob_that_no_task_there_has_is_warned_about(scope: str) -> None:
    [warning] = checked(**{scope: "{ retries: 1 }"}, kind="noop").diagnostics
    where = "this playbook" if scope == "executor" else "this step"
    assert (warning.severity, warning.code) == ("warning", "no_effect")
    assert warning.message == f"`retries` has no effect: no task in {where} uses it"


def test_a_kind_that_is_not_installed_may_have_any_knob() -> None:
    assert checked(step="{ retries: 1 }", kind="mine").diagnostics == ()


@pytest.mark.parametrize("scope", ["executor", "step", "loop", "task"])
def test_a_knob_that_no_installed_kind_has_is_unknown(scope: str) -> None:
    [problem] = checked(**{scope: "{ retrys: 1 }"}).diagnostics
    assert problem.code == "unknown_key"


@pytest.mark.parametrize(("written", "code"), [("many", "invalid_value"), ('"{{ ctx.n }}"', "template_not_rendered")])
@pytest.mark.parametrize("scope", ["executor", "step", "loop", "task"])
def test_an_invalid_value_is_reported_at_its_position(scope: str, written: str, code: str) -> None:
    [problem] = checked(**{scope: f"{{ retries: {written} }}"}).diagnostics
    assert problem.code == code
    assert problem.pointer.startswith("/executor/spec" if scope == "executor" else "/workflow/0/")
    assert problem.pointer.endswith("/spec/retries")


def test_an_invalid_value_that_an_inner_scope_replaces_is_ignored() -> None:
    assert task_of(executor="{ retries: many }", task="{ retries: 2 }").knobs == {"retries": 2}


def test_two_spellings_of_one_knob_conflict_over_scopes_too() -> None:
    [problem] = checked(executor="{ tries: 1 }", task="{ retries: 2 }").diagnostics
    assert problem.code == "conflicting_keys"


def test_the_words_of_a_scope_are_its_own() -> None:
    result = checked(step="{ pool: fetchers }")
    assert result.plan is not None
    step = result.plan.steps["start"]
    assert (step.pool, step.tasks[0].knobs) == ("fetchers", {})
    assert task_of(task="{ pool: large }").knobs == {"pool": "large"}


def test_a_bare_timeout_is_its_total_before_it_is_merged() -> None:
    task = task_of(
        executor="{ timeout: 60, policy: { defaults: { timeouts: { read: 9, connect: 8 } } } }",
        step="{ timeout: { connect: 3 } }",
        loop="{ timeout: 30 }",
        task="{ timeout: { read: 1 } }",
    )
    assert task.timeouts == Timeouts(total=30.0, connect=3.0, read=1.0)


@pytest.mark.parametrize("written", ["1", '"{{ workload.t }}"'])
def test_a_part_that_a_timeout_does_not_have_is_unknown(written: str) -> None:
    [problem] = checked(task=f"{{ timeout: {{ foo: {written} }} }}").diagnostics
    assert problem.code == "unknown_key"


def test_more_values_than_the_limit_are_refused_by_its_name() -> None:
    values = ", ".join(f"k{number}: 1" for number in range(MAX_LAYERED_VALUES))
    [problem] = checked(step=f"{{ session: {{ {values} }} }}").diagnostics
    assert problem.code == "limit_exceeded" and "max_layered_values" in problem.message
    assert checked(task=f"{{ session: {{ {values} }} }}").ok
