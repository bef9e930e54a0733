from __future__ import annotations

from textwrap import indent
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import times
from noetl_stream.engine.pipeline import advance_progress, current_task, decide_task, fail_task, share, visit_of
from noetl_stream.model.events import SharedValue, TaskProcessed
from noetl_stream.model.json.codec import payload_of
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload, Reference
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import PolicyPlan, RulePlan, StepPlan, TaskPlan
from noetl_stream.template import (
    ABSENT,
    ReferenceNeeded,
    ResultView,
    Scope,
    compile_guard,
    compile_template,
)
from noetl_stream.template.runtime.scope import outcome_view
from noetl_stream.tools.pipeline import NoopTool

OK = Outcome("ok", payload_of({"page": 7}))
FAILED = Outcome("error", error=ErrorInfo("connection", "it hung up", retryable=True))


def step_of(*policies: str) -> StepPlan:
    """A step of noop tasks ``one``, ``two``, … with these policies (the YAML under ``policy:``; '' for none)."""
    names = ("one", "two", "three")
    tasks = ""
    for name, policy in zip(names, policies, strict=False):
        tasks += f"  - name: {name}\n    kind: noop\n"
        if policy:
            tasks += "    spec:\n      policy:\n" + indent(policy, " " * 8) + "\n"
    text = (
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: tests/t}\n"
        "workload: {limit: 3}\nworkflow:\n- step: start\n  tool:\n" + tasks
    )
    return compile_playbook(text, {"noop": NoopTool.spec}).steps["start"]


def rules(*lines: str) -> str:
    return "rules:\n" + "\n".join(f"- {line}" for line in lines)


def scope_of(step: StepPlan, progress: Progress, outcome: Outcome, loaded: dict[str, Any] | None = None) -> Scope:
    task = current_task(step, progress)
    results: dict[str, Any] = {one.name: ABSENT for one in step.tasks}
    results |= {name: ResultView(value) for name, value in progress.results.items()}
    results[task.name] = ResultView(outcome)
    namespaces = {
        "workload": {"limit": 3},
        "ctx": progress.ctx,
        "iter": progress.iter,
        "vars": progress.vars,
        "results": results,
        "_attempt": progress.attempt,
        "_task": task.name,
        "outcome": outcome_view(outcome, None),
    }
    return Scope(namespaces, loaded or {})


def decide(
    step: StepPlan, outcome: Outcome = OK, progress: Progress | None = None, limits: Limits | None = None
) -> TaskProcessed:
    progress = progress or Progress()
    scope = scope_of(step, progress, outcome)
    return decide_task(step, progress, outcome, scope, seed="command", limits=limits or Limits())


def test_without_policy_a_good_outcome_continues_to_the_next_task() -> None:
    fact = decide(step_of("", ""))
    assert (fact.do, fact.to, fact.rule, fact.unmatched) == ("continue", "two", -1, False)


def test_without_policy_the_pipeline_ends_after_the_last_task() -> None:
    fact = decide(step_of("", ""), progress=Progress(task="two", runs=1))
    assert (fact.do, fact.to, fact.error) == ("continue", None, None)


def test_without_policy_an_error_fails_with_the_tools_own_error_and_the_tasks_name() -> None:
    fact = decide(step_of("", ""), FAILED)
    assert (fact.do, fact.to) == ("fail", None)
    assert fact.error == ErrorInfo("connection", "it hung up", retryable=True, task="one")


def test_the_first_rule_that_matches_decides() -> None:
    first, second = "{when: false, then: {do: fail}}", "{when: true, then: {do: break}}"
    fact = decide(step_of(rules(first, second, "{else: {then: {do: fail}}}")))
    assert (fact.do, fact.rule) == ("break", 1)


def test_else_decides_when_no_rule_matches() -> None:
    fact = decide(step_of(rules("{when: false, then: {do: fail}}", "{else: {then: {do: break}}}")))
    assert (fact.do, fact.rule, fact.unmatched) == ("break", 1, False)


def test_an_unmatched_outcome_continues_by_default_with_a_notice() -> None:
    fact = decide(step_of(rules("{when: false, then: {do: fail}}"), ""), FAILED)
    assert (fact.do, fact.to, fact.rule, fact.unmatched) == ("continue", "two", -1, True)


def test_an_unmatched_error_fails_with_its_own_error_if_the_policy_asks_for_it() -> None:
    fact = decide(step_of("on_unmatched: fail\n" + rules("{when: false, then: {do: fail}}")), FAILED)
    assert (fact.do, fact.unmatched) == ("fail", True)
    assert fact.error is not None and fact.error.kind == "connection"


def test_an_unmatched_success_fails_with_policy_fail_if_the_policy_asks_for_it() -> None:
    fact = decide(step_of("on_unmatched: fail\n" + rules("{when: false, then: {do: break}}")))
    assert fact.error is not None and fact.error.kind == "policy_fail"


def test_fail_after_a_good_outcome_is_the_policys_own_error() -> None:
    fact = decide(step_of(rules("{when: true, then: {do: fail}}"), ""))
    assert (fact.do, fact.to) == ("fail", None)
    assert fact.error is not None and (fact.error.kind, fact.error.task) == ("policy_fail", "one")


def test_fail_after_an_error_keeps_that_error() -> None:
    fact = decide(step_of(rules("{when: true, then: {do: fail}}"), ""), FAILED)
    assert fact.error is not None and fact.error.kind == "connection"


def test_break_ends_the_pipeline_well_before_its_last_task() -> None:
    fact = decide(step_of(rules("{when: true, then: {do: break}}"), ""))
    assert (fact.do, fact.to, fact.error) == ("break", None, None)


def test_jump_names_its_target() -> None:
    step = step_of("", rules("{when: true, then: {do: jump, to: one}}"))
    fact = decide(step, progress=Progress(task="two", runs=1))
    assert (fact.do, fact.to) == ("jump", "one")


RETRY = "{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 3, delay: 2, backoff: fixed}}"


def test_retry_runs_the_same_task_again_after_its_delay() -> None:
    fact = decide(step_of(rules(RETRY), ""), FAILED)
    assert (fact.do, fact.to, fact.rule) == ("retry", "one", 0)
    assert 2.0 <= fact.delay_s <= 2.2


def test_a_retry_delay_defaults_to_a_second() -> None:
    fact = decide(step_of(rules("{when: true, then: {do: retry, attempts: 2}}")))
    assert 1.0 <= fact.delay_s <= 1.1


def test_a_retry_delay_may_be_a_template() -> None:
    fact = decide(step_of(rules('{when: true, then: {do: retry, attempts: 2, delay: "{{ workload.limit * 2 }}"}}')))
    assert 6.0 <= fact.delay_s <= 6.6


def test_a_retry_waits_as_long_as_the_other_side_asked() -> None:
    patient = msgspec.structs.replace(FAILED, error=ErrorInfo("http_status", "slow down", retry_after_s=30.0))
    assert decide(step_of(rules(RETRY)), patient).delay_s == 30.0


@pytest.mark.parametrize("delay", ["'soon'", "-1", "true"])
def test_a_delay_that_is_not_a_number_of_seconds_fails_the_task(delay: str) -> None:
    fact = decide(step_of(rules(f'{{when: true, then: {{do: retry, attempts: 2, delay: "{{{{ {delay} }}}}"}}}}')))
    assert fact.do == "fail"
    assert fact.error is not None and fact.error.kind == "expression_error"


def test_attempts_count_the_first_run_too() -> None:
    step = step_of(rules(RETRY))
    assert decide(step, FAILED, Progress(attempt=2, task="one", runs=1)).do == "retry"
    assert decide(step, FAILED, Progress(attempt=3, task="one", runs=2)).do == "fail"


def test_attempts_may_be_a_template_over_what_the_inputs_read() -> None:
    step = step_of(rules('{when: true, then: {do: retry, attempts: "{{ workload.limit }}"}}'))
    assert [decide(step, FAILED, Progress(attempt=n, task="one", runs=n)).do for n in (1, 2, 3)] == [
        "retry",
        "retry",
        "fail",
    ]


@pytest.mark.parametrize("attempts", ["'many'", "0", "2.5", "true", "none", "workload.none"])
def test_attempts_that_are_no_whole_number_fail_the_task(attempts: str) -> None:
    fact = decide(step_of(rules(f'{{when: true, then: {{do: retry, attempts: "{{{{ {attempts} }}}}"}}}}')), FAILED)
    assert fact.do == "fail"
    assert fact.error is not None and fact.error.kind == "expression_error"


def test_an_exhausted_retry_does_not_fall_through_to_else() -> None:
    step = step_of(rules(RETRY, "{else: {then: {do: continue}}}"), "")
    fact = decide(step, FAILED, Progress(attempt=3, task="one", runs=2))
    assert (fact.do, fact.to, fact.rule) == ("fail", None, 0)
    assert fact.error is not None and (fact.error.kind, fact.error.task) == ("retries_exhausted", "one")
    assert "3 attempts" in fact.error.message and "it hung up" in fact.error.message


def test_an_exhausted_retry_does_not_fall_through_to_the_default() -> None:
    fact = decide(step_of(rules(RETRY), ""), FAILED, Progress(attempt=3, task="one", runs=2))
    assert fact.error is not None and fact.error.kind == "retries_exhausted"
    assert not fact.unmatched


def test_after_an_exhausted_retry_a_later_rule_with_when_decides() -> None:
    later = "{when: \"{{ outcome.error.kind == 'connection' }}\", then: {do: break, set_ctx: {lost: true}}}"
    fact = decide(step_of(rules(RETRY, later)), FAILED, Progress(attempt=3, task="one", runs=2))
    assert (fact.do, fact.rule, fact.set_ctx) == ("break", 1, {"lost": True})


def test_a_retry_that_is_the_else_rule_is_exhausted_like_any_other() -> None:
    step = step_of(rules("{when: false, then: {do: break}}", "{else: {then: {do: retry, attempts: 2}}}"), "")
    assert decide(step, FAILED).do == "retry"
    fact = decide(step, FAILED, Progress(attempt=2, task="one", runs=1))
    assert fact.error is not None and fact.error.kind == "retries_exhausted"


def test_a_guard_that_cannot_be_evaluated_fails_the_task_and_no_rule_applies() -> None:
    step = step_of(rules('{when: "{{ workload.missing }}", then: {do: break}}', "{else: {then: {do: continue}}}"), "")
    fact = decide(step)
    assert (fact.do, fact.rule, fact.to, fact.set_ctx) == ("fail", -1, None, {})
    assert fact.error is not None and fact.error.kind == "expression_error"
    assert "workload.missing" in fact.error.message


def test_a_guard_that_cannot_be_evaluated_does_not_hide_the_error_of_the_task() -> None:
    fact = decide(step_of(rules('{when: "{{ outcome.result.page > 1 }}", then: {do: break}}')), FAILED)
    assert fact.error is not None and fact.error.kind == "expression_error"
    assert "connection: it hung up" in fact.error.message


def test_a_patch_that_cannot_be_evaluated_fails_the_task_and_applies_none_of_its_rule() -> None:
    patches = 'set_ctx: {good: 1, bad: "{{ workload.missing }}"}'
    fact = decide(step_of(rules(f"{{when: true, then: {{do: continue, {patches}}}}}"), ""))
    assert (fact.do, fact.set_ctx) == ("fail", {})
    assert fact.error is not None and fact.error.kind == "expression_error"


def test_patches_are_all_rendered_against_the_state_before_the_rule() -> None:
    others = 'set_iter: {seen: "{{ ctx.new }}"}, set_vars: {v: "{{ one.page }}"}'
    patches = f'set_ctx: {{old: "{{{{ ctx.new }}}}", new: 2}}, {others}'
    step = step_of(rules(f"{{when: true, then: {{do: continue, {patches}}}}}"))
    fact = decide(step, progress=Progress(ctx={"new": 1}))
    assert fact.set_ctx == {"old": 1, "new": 2}
    assert fact.set_iter == {"seen": 1}
    assert fact.set_vars == {"v": 7}


def test_patches_apply_with_every_directive() -> None:
    fact = decide(step_of(rules("{when: true, then: {do: fail, set_ctx: {reason: 'x'}}}")))
    assert (fact.do, fact.set_ctx) == ("fail", {"reason": "x"})


def shares(shared: str) -> StepPlan:
    return step_of(rules(f"{{when: true, then: {{do: continue, set_shared: {shared}}}}}"), "")


def test_contributions_of_a_rule_are_rendered_and_recorded_with_their_operation() -> None:
    fact = decide(shares('{total: {op: add, value: "{{ one.page }}"}, seen: {op: count}}'))
    assert (fact.do, fact.to) == ("continue", "two")
    assert fact.set_shared == {"total": SharedValue("add", 7), "seen": SharedValue("count")}
    assert fact.set_ctx == {}


@pytest.mark.parametrize("path", [(), (3,)])
@pytest.mark.parametrize(
    ("op", "value"),
    [("add", "'text'"), ("min", "[]"), ("max", "true"), ("extend", "1"), ("union", "none"), ("merge", "1")],
)
def test_a_value_that_an_operation_has_no_use_for_fails_the_task(op: str, value: Any, path: tuple[int, ...]) -> None:
    step = shares(f'{{total: {{op: {op}, value: "{{{{ {value} }}}}"}}}}')
    progress = Progress()
    fact = decide_task(step, progress, OK, scope_of(step, progress, OK), seed="c", limits=Limits(), path=path)
    assert (fact.do, fact.to, fact.set_shared) == ("fail", None, {})
    assert fact.error is not None and fact.error.kind == "expression_error"
    assert f"{op} takes" in fact.error.message


def test_a_key_an_operation_cannot_continue_from_fails_the_task_outside_loops() -> None:
    step, progress = shares("{total: {op: add, value: 1}}"), Progress(ctx={"total": "text"})
    fact = decide(step, progress=progress)
    assert fact.do == "fail"
    assert fact.error is not None and "ctx.total is text" in fact.error.message
    scope = scope_of(step, progress, OK)
    inside = decide_task(step, progress, OK, scope, seed="c", limits=Limits(), path=(3,))
    assert inside.set_shared == {"total": SharedValue("add", 1)}


def test_contributions_outside_loops_start_from_the_present_value() -> None:
    shared = {"total": SharedValue("add", 2), "names": SharedValue("append", "x"), "seen": SharedValue("count")}
    assert share({"total": 5, "other": 1}, shared) == {"total": 7, "names": ["x"], "seen": 1}


def test_contributions_count_towards_the_limit_of_patches() -> None:
    fact = decide(shares("{found: {op: append, value: 'xxxxxxxxxxxxxxxxxxxx'}}"), limits=Limits(max_ctx_bytes=16))
    assert (fact.do, fact.set_shared) == ("fail", {})
    assert fact.error is not None and fact.error.kind == "limit_exceeded"


def test_patches_over_the_limit_fail_the_task_and_are_not_applied() -> None:
    step = step_of(rules("{when: true, then: {do: continue, set_ctx: {text: 'xxxxxxxxxxxxxxxxxxxx'}}}"))
    fact = decide(step, limits=Limits(max_ctx_bytes=16))
    assert (fact.do, fact.set_ctx) == ("fail", {})
    assert fact.error is not None and fact.error.kind == "limit_exceeded"
    assert "limits.max_ctx_bytes" in fact.error.message


def test_a_pipeline_that_jumps_for_ever_ends_at_the_limit_of_task_runs() -> None:
    step = step_of(rules("{when: true, then: {do: jump, to: one, set_iter: {n: 1}}}"))
    fact = decide(step, progress=Progress(task="one", runs=9), limits=Limits(max_task_runs=10))
    assert (fact.do, fact.to, fact.delay_s) == ("fail", None, 0.0)
    assert fact.error is not None and fact.error.kind == "limit_exceeded"
    assert "limits.max_task_runs" in fact.error.message
    assert fact.set_iter == {"n": 1}


def test_a_retry_over_the_limit_of_task_runs_owes_no_delay() -> None:
    fact = decide(step_of(rules(RETRY)), FAILED, Progress(task="one", runs=9), limits=Limits(max_task_runs=10))
    assert (fact.do, fact.to, fact.delay_s) == ("fail", None, 0.0)


def test_the_last_task_may_be_the_last_run_the_limit_allows() -> None:
    fact = decide(step_of(""), limits=Limits(max_task_runs=1))
    assert (fact.do, fact.error) == ("continue", None)


def test_a_result_kept_by_reference_is_asked_for_and_then_read() -> None:
    reference = Reference("nats", "some/key", 100)
    large = Outcome("ok", Payload(reference=reference))
    step = step_of(rules('{when: "{{ outcome.result.page > 6 }}", then: {do: break}}'))
    progress = Progress()
    with pytest.raises(ReferenceNeeded) as needed:
        decide_task(step, progress, large, scope_of(step, progress, large), seed="c", limits=Limits())
    assert needed.value.reference == reference
    scope = scope_of(step, progress, large, {"some/key": {"page": 7}})
    assert decide_task(step, progress, large, scope, seed="c", limits=Limits()).do == "break"


def test_the_fact_carries_attempt_path_and_outcome() -> None:
    step = step_of("")
    progress = Progress(task="one", attempt=2, runs=1)
    fact = decide_task(step, progress, OK, scope_of(step, progress, OK), seed="c", limits=Limits(), path=(4,))
    assert (fact.task, fact.attempt, fact.path, fact.outcome) == ("one", 2, (4,), OK)


def test_a_task_whose_policy_cannot_be_read_fails_with_why_it_cannot() -> None:
    step, lost = step_of(""), ErrorInfo("result_lost", "some/key is lost", task="one")
    fact = fail_task(step.tasks[0], Progress(attempt=2), OK, lost, (1,))
    assert (fact.do, fact.to, fact.attempt, fact.path) == ("fail", None, 2, (1,))
    assert fact.error == lost


def test_progress_starts_at_the_first_task() -> None:
    assert current_task(step_of("", ""), Progress()).name == "one"


def test_progress_after_continue_is_at_the_next_task_with_a_fresh_attempt_count() -> None:
    fact = TaskProcessed("one", 3, OK, "continue", to="two", set_vars={"a": 1}, set_iter={"b": 2}, set_ctx={"c": 3})
    after = advance_progress(Progress(task="one", attempt=3, runs=2, vars={"z": 0}), fact)
    assert (after.task, after.attempt, after.runs, after.previous) == ("two", 1, 3, "one")
    assert (after.vars, after.iter, after.ctx) == ({"z": 0, "a": 1}, {"b": 2}, {"c": 3})
    assert after.results == {"one": OK}


def test_progress_after_retry_is_at_the_same_task_and_owes_the_delay() -> None:
    after = advance_progress(Progress(), TaskProcessed("one", 1, FAILED, "retry", to="one", delay_s=2.5))
    assert (after.task, after.attempt, after.delay_s, after.runs) == ("one", 2, 2.5, 1)


def test_progress_after_a_jump_restarts_the_attempt_count() -> None:
    after = advance_progress(Progress(task="two", attempt=4), TaskProcessed("two", 4, OK, "jump", to="one"))
    assert (after.task, after.attempt) == ("one", 1)


def test_progress_after_the_end_has_no_next_task() -> None:
    assert advance_progress(Progress(), TaskProcessed("one", 1, OK, "break")).task is None


def test_progress_does_not_change_the_value_it_came_from() -> None:
    before = Progress(ctx={"a": 1})
    advance_progress(before, TaskProcessed("one", 1, OK, "continue", set_ctx={"a": 2}))
    assert before.ctx == {"a": 1}


def test_all_attempts_of_a_visit_share_its_number_and_the_next_visit_has_another() -> None:
    retry = TaskProcessed("one", 1, FAILED, "retry", to="one")
    first = Progress()
    again = advance_progress(first, retry)
    back = advance_progress(again, TaskProcessed("one", 2, OK, "jump", to="one"))
    assert visit_of(first) == visit_of(again)
    assert visit_of(back) > visit_of(again)


def _rule(do: str, to: str, attempts: int, guard: str | None) -> RulePlan:
    compiled = None if guard is None else guard_of(guard)
    delay = compile_template(0, namespaces=frozenset(), bindings={})
    most = compile_template(attempts, namespaces=frozenset(), bindings={})
    return RulePlan(compiled, do, 1, most, "none", delay, to=to)  # type: ignore[arg-type]


def guard_of(text: str) -> Any:
    return compile_guard(text, namespaces=frozenset({"outcome", "_attempt"}), bindings={})


GUARDS = ("{{ true }}", "{{ outcome.status == 'error' }}", "{{ outcome.status == 'ok' }}", "{{ _attempt > 1 }}")
NAMES = ("one", "two", "three")

one_rule = st.builds(
    _rule,
    st.sampled_from(["continue", "retry", "jump", "break", "fail"]),
    st.sampled_from(NAMES),
    st.integers(1, 4),
    st.sampled_from([*GUARDS, None]),
)
policies = st.none() | st.builds(
    PolicyPlan, st.lists(one_rule, max_size=3).map(tuple), st.sampled_from(["continue", "fail"])
)


@settings(max_examples=times(60), deadline=None)
@given(st.tuples(policies, policies, policies), st.lists(st.booleans(), min_size=1, max_size=20), st.integers(1, 60))
def test_every_pipeline_ends_within_the_limit_of_task_runs(
    drawn: tuple[PolicyPlan | None, ...], outcomes: list[bool], most: int
) -> None:
    inputs = compile_template({}, namespaces=frozenset(), bindings={})
    tasks = tuple(TaskPlan(n, "noop", inputs, 1, policy=policy) for n, policy in zip(NAMES, drawn, strict=True))
    step, progress, limits = StepPlan("start", "default", 1, tasks=tasks), Progress(), Limits(max_task_runs=most)
    for turn in range(most):
        outcome = OK if outcomes[turn % len(outcomes)] else FAILED
        scope = scope_of(step, progress, outcome)
        fact = decide_task(step, progress, outcome, scope, seed="c", limits=limits)
        assert (fact.error is not None) == (fact.do == "fail")
        progress = advance_progress(progress, fact)
        assert progress.runs == turn + 1
        if fact.to is None:
            return
    raise AssertionError("the pipeline ran more tasks than it may")


@pytest.mark.parametrize(("do", "kept"), [("retry", {"row": 3}), ("continue", None)])
def test_details_of_a_heartbeat_stay_for_the_next_attempt_alone(do: Any, kept: Any) -> None:
    before = Progress(details={"row": 3})
    after = advance_progress(before, TaskProcessed("one", 1, FAILED, do, to="one" if do == "retry" else "two"))
    assert after.details == kept
