"""LANGUAGE §7 without joins: which arcs fire when a step run has ended, and what their tokens carry."""

from __future__ import annotations

import pytest
from engine_scenarios import BEST_EFFORT, given, started

from noetl_stream.engine.state import RecordedFact
from noetl_stream.model.events import (
    EvaluatedGuard,
    NextEvaluated,
    StepDone,
    StepStarted,
    TaskProcessed,
    TokenEnqueued,
)
from noetl_stream.model.outcome import Outcome, Payload, Reference
from noetl_testkit.scenario.scenario import Scenario

TARGETS = """
- step: a
  tool: {kind: noop}
- step: b
  tool: {kind: noop}
- step: c
  tool: {kind: noop}
"""


def routed(arcs: str, mode: str = "exclusive", root: str = "", tool: str = "tool: {kind: noop}") -> Scenario:
    """A step with these arcs to ``a``, ``b``, ``c``, started."""
    steps = f"- step: start\n  {tool}\n  next: {{spec: {{mode: {mode}}}, arcs: [{arcs}]}}\n{TARGETS}"
    return started(steps, root)


def arc(step: str, when: str) -> str:
    return f'{{step: {step}, when: "{{{{ {when} }}}}"}}'


def targets(scenario: Scenario) -> list[str]:
    return [fact.token.step for fact in scenario.facts(TokenEnqueued)[1:]]


def test_an_arc_without_guard_is_true() -> None:
    scenario = routed("{step: a}")
    scenario.done("start")
    assert scenario.working == [("a", None)]
    assert scenario.facts(NextEvaluated)[0].guards == [EvaluatedGuard("true", True, 0)]


def test_the_mode_of_arcs_is_exclusive_by_default() -> None:
    scenario = started("- step: start\n  tool: {kind: noop}\n  next: {arcs: [{step: a}, {step: b}]}\n" + TARGETS)
    scenario.done("start")
    assert targets(scenario) == ["a"]


def test_exclusive_stops_at_the_first_match_and_evaluates_no_later_guard() -> None:
    scenario = routed(f"{arc('a', 'false')}, {arc('b', 'true')}, {arc('c', 'ctx.never > 1')}")
    scenario.done("start")
    assert targets(scenario) == ["b"]
    (evaluated,) = scenario.facts(NextEvaluated)
    assert (evaluated.event, evaluated.fired) == ("step.done", [1])
    assert evaluated.guards == [EvaluatedGuard("{{ false }}", False, 0), EvaluatedGuard("{{ true }}", True, 1)]


def test_inclusive_fires_every_match_in_the_order_of_the_file() -> None:
    scenario = routed(f"{arc('c', 'true')}, {arc('b', 'false')}, {{step: a}}", "inclusive")
    scenario.done("start")
    assert targets(scenario) == ["c", "a"]
    assert [one.value for one in scenario.facts(NextEvaluated)[0].guards] == [True, False, True]


def test_inclusive_evaluates_all_guards_before_any_arc_fires() -> None:
    scenario = routed(f"{{step: a}}, {arc('b', 'ctx.never > 1')}", "inclusive")
    scenario.done("start")
    assert targets(scenario) == []
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")


def test_inclusive_renders_all_args_before_any_arc_fires() -> None:
    scenario = routed('{step: a}, {step: b, args: {n: "{{ ctx.never }}"}}', "inclusive")
    scenario.done("start")
    assert targets(scenario) == []
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")


def test_a_guard_that_cannot_be_evaluated_fails_the_execution_in_any_failure_mode() -> None:
    scenario = routed(arc("a", "ctx.never > 1"), root=BEST_EFFORT)
    scenario.done("start")
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    assert "an arc of start" in scenario.error.message
    assert scenario.facts(NextEvaluated)[0].fired == []


def test_a_branch_ends_when_no_arc_fires() -> None:
    scenario = routed(arc("a", "false"))
    scenario.done("start", 5)
    assert (scenario.status, scenario.result) == ("completed", 5)


def test_one_token_an_arc_two_branches_into_one_step_run_it_twice() -> None:
    scenario = routed("{step: a, args: {n: 1}}, {step: a, args: {n: 2}}", "inclusive")
    scenario.done("start")
    assert scenario.working == [("a", None), ("a", None)]
    assert scenario.take("a").command.args == {"n": 1}
    tokens = [fact.token for fact in scenario.facts(TokenEnqueued)[1:]]
    assert tokens[0].token_id != tokens[1].token_id
    assert [token.args for token in tokens] == [{"n": 1}, {"n": 2}]


def test_args_become_the_tokens_args_and_those_of_the_entry_token_are_empty() -> None:
    scenario = routed('{step: a, args: {rows: "{{ start.rows }}", all: "{{ event.result }}"}}')
    assert scenario.take("start").command.args == {}
    scenario.done("start", {"rows": [1, 2]})
    assert scenario.take("a").command.args == {"rows": [1, 2], "all": {"rows": [1, 2]}}


def test_a_token_says_where_it_came_from() -> None:
    scenario = routed("{step: a}")
    scenario.done("start")
    first, second = (fact.token for fact in scenario.facts(TokenEnqueued))
    assert (first.cause, first.from_step, first.from_step_run_id) == ("start", None, None)
    assert (second.cause, second.from_step) == ("arc", "start")
    assert second.from_step_run_id == scenario.facts(NextEvaluated)[0].step_run_id


@pytest.mark.parametrize(
    "guard",
    [
        "event.name == 'step.done'",
        "event.step == 'start'",
        "event.status == 'success'",
        "event.result.n == 3",
        "event.error is none",
        "event.loop is none",
        "ctx.seen == 3",
        "vars.kept == 4",
        "workload.wanted == 5",
        "args == {}",
        "start.n == 3 and steps.start.data.n == 3",
        "start.outcome.status == 'ok'",
        "start.results.first.x == 1",
        "a is none",
    ],
)
def test_an_arc_after_a_good_end_reads(guard: str) -> None:
    tool = """tool:
  - {name: first, kind: noop}
  - name: last
    kind: noop
    spec:
      policy:
        rules:
        - else: {then: {do: continue, set_ctx: {seen: "{{ outcome.result.n }}"}, set_vars: {kept: 4}}}
"""
    scenario = routed(arc("a", guard), root="workload: {wanted: 5}\n", tool=tool)
    run = scenario.take("start")
    run.answer({"x": 1})
    run.answer({"n": 3})
    assert targets(scenario) == ["a"]


@pytest.mark.parametrize(
    "guard",
    [
        "event.name == 'step.failed'",
        "event.status == 'error'",
        "event.error.kind == 'connection' and event.error.message == 'it hung up'",
        "event.name in ['step.done', 'step.failed']",
        "event.error is not none and event.result is none",
        "event.error is not none and start is none",
    ],
)
def test_an_arc_after_a_failure_reads(guard: str) -> None:
    scenario = routed(arc("a", guard))
    scenario.failed("start", "connection", "it hung up")
    assert targets(scenario) == ["a"]
    assert scenario.status == "running"


@pytest.mark.parametrize("guard", [None, "true", "ctx == {}", "event.step == 'start'"])
def test_after_a_failure_only_arcs_that_read_the_events_name_status_or_error_are_candidates(guard: str | None) -> None:
    scenario = routed(arc("a", guard) if guard else "{step: a}")
    scenario.failed("start")
    assert (scenario.status, targets(scenario)) == ("failed", [])
    assert scenario.facts(NextEvaluated)[0].guards == []


def test_after_a_failure_fired_arcs_are_named_by_their_place_among_all() -> None:
    scenario = routed(f"{{step: a}}, {arc('b', 'event.error is not none')}")
    scenario.failed("start")
    assert scenario.facts(NextEvaluated)[0].fired == [1]
    assert targets(scenario) == ["b"]


def test_an_arc_for_failures_does_not_fire_after_success() -> None:
    scenario = routed(f"{arc('a', 'event.status == ' + repr('error'))}, {{step: b}}")
    scenario.done("start")
    assert targets(scenario) == ["b"]


def test_a_step_without_tool_is_done_by_the_server_and_no_worker_is_asked() -> None:
    scenario = given("- step: start\n  next: {arcs: [{step: a}]}\n" + TARGETS)
    scenario.start()
    assert scenario.names[4:8] == ["token.claimed", "step.done", "next.evaluated", "token.enqueued"]
    assert scenario.working == [("a", None)]


def test_arcs_see_ctx_as_it_is_now_not_as_the_step_saw_it() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: slow}, {step: quick}]}
        - step: slow
          tool: {kind: noop}
          next: {arcs: [{step: seen, when: "{{ ctx.mark == 1 }}"}]}
        - step: quick
          tool:
            kind: noop
            spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {mark: 1}}}}]}}
        - step: seen
          tool: {kind: noop}
        """
    )
    slow = scenario.take("slow")
    scenario.done("quick")
    assert slow.command.ctx == {}
    slow.finish()
    assert scenario.working == [("seen", None)]


def test_a_guard_over_a_result_too_large_for_the_server_says_to_return_the_small_value() -> None:
    scenario = routed(arc("a", "start.rows | length > 0"))
    run = scenario.take("start")
    key = f"{run.command.execution_id}/b/c"
    large = Outcome("ok", Payload(reference=Reference("nats", key, 5_000_000)))
    facts = [StepStarted("w"), TaskProcessed("start", 1, large, "continue"), StepDone(run.command.step_run_id)]
    for number, fact in enumerate(facts):
        scenario.feed(RecordedFact(fact, run.run, number))
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    assert "5000000 bytes" in scenario.error.message and "return the small value from a task" in scenario.error.message
