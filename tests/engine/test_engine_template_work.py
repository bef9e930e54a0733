"""PROTOCOL §2 *Template work*: a decision whose templates cost too much waits until another process has made it."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import given, limits
from msgspec.structs import replace

from noetl_stream.engine.advance import Advanced, advance
from noetl_stream.engine.choices import MAX_ANSWER_BYTES, Answers, answer_json, decode_answers
from noetl_stream.engine.decide.quiescence import questions_of
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model.events import (
    CancelRequested,
    CtxPatched,
    EvaluationAwaited,
    EvaluationFailed,
    EvaluationFinished,
    LoopDone,
    NextEvaluated,
    ReferenceAwaited,
    StepScheduled,
    TokenClaimed,
    TokenHeld,
)
from noetl_stream.model.json import codec
from noetl_stream.model.limits import Limits
from noetl_testkit.scenario.scenario import Scenario

HEAVY = "range(20000) | sum > 0"
"""About 40,000 operations, more than the budget of a fact."""

BRANCH = f"""
- step: start
  tool: {{kind: noop}}
  next:
    arcs:
    - {{step: small, when: "{{{{ {HEAVY} and ctx.size == 'small' }}}}"}}
    - {{step: big, when: "{{{{ {HEAVY} and event.result.n > 1 }}}}", args: {{size: "{{{{ ctx.size }}}}"}}}}
- step: small
  tool: {{kind: noop}}
- step: big
  tool: {{kind: noop}}
- step: beside
  tool: {{kind: noop}}
"""
ADMITTED = f"""
- step: start
  tool: {{kind: noop}}
- step: later
  spec: {{policy: {{admit: {{rules: [{{when: "{{{{ {HEAVY} and ctx.go }}}}", then: {{allow: true}}}}]}}}}}}
  tool: {{kind: noop}}
"""


def parking(steps: str, root: str = "", **request: Any) -> Scenario:
    """A scenario whose templates are evaluated when the test says so."""
    scenario = given(steps, root)
    scenario.evaluates = False
    scenario.start(**request)
    return scenario


def decided(scenario: Scenario) -> list[str]:
    """The names of its decisions, without those that wait."""
    waits = {"evaluation.awaited", "reference.awaited"}
    names = zip(scenario.journal, scenario.names, strict=True)
    return [name for entry, name in names if entry.decided and name not in waits]


def test_arcs_that_cost_too_much_park_the_execution_until_they_are_evaluated() -> None:
    scenario = parking(BRANCH, ctx={"size": "big"})
    scenario.done("start", {"n": 2})
    (awaited,) = scenario.facts(EvaluationAwaited)
    assert scenario.execution.evaluation is not None
    assert list(scenario.execution.evaluation.choices) == awaited.choices
    assert (scenario.execution.looks_into, scenario.working) == ("evaluation", [])
    scenario.evaluate()
    assert scenario.working == [("big", None)]
    assert scenario.take("big").command.args == {"size": "big"}
    (routed,) = scenario.facts(NextEvaluated)
    assert [(guard.rule, guard.value) for guard in routed.guards] == [(0, False), (1, True)]


def test_a_parked_evaluation_leads_to_the_decision_of_a_large_budget() -> None:
    parked = parking(BRANCH, ctx={"size": "big"})
    at_once = Scenario(replace(parked.plan, limits=Limits(max_inline_operations=10**9)))
    at_once.start(ctx={"size": "big"})
    for scenario in (parked, at_once):
        scenario.done("start", {"n": 2})
    parked.evaluate()
    assert at_once.facts(EvaluationAwaited) == []
    assert decided(at_once) == decided(parked)


def test_facts_behind_a_reference_are_folded_and_decided_afterwards() -> None:
    scenario = parking(BRANCH, ctx={"size": "big"})
    scenario.inject("beside")
    scenario.done("start", {"n": 2})
    scenario.done("beside")
    scenario.patch(size="huge")
    assert scenario.facts(NextEvaluated) == []
    scenario.evaluate()
    assert len(scenario.facts(NextEvaluated)) == 2


def test_arcs_are_chosen_by_the_ctx_at_the_end_of_the_step() -> None:
    """All guards and ``args`` read one state, although ``ctx`` changes while they are evaluated."""
    scenario = parking(BRANCH, ctx={"size": "big"})
    scenario.done("start", {"n": 2})
    scenario.patch(size="small")
    scenario.evaluate()
    assert scenario.working == [("big", None)]
    assert scenario.take("big").command.args == {"size": "big"}


def test_a_journal_with_evaluations_replays_to_the_same_state_and_decisions() -> None:
    scenario = parking(BRANCH, ctx={"size": "big"})
    scenario.done("start", {"n": 2})
    scenario.take_over()
    scenario.evaluate()
    scenario.done("big")
    assert scenario.status == "completed"
    assert scenario.replayed() == scenario.state
    assert scenario.decided_again() == scenario.journal


def test_an_answer_to_another_question_changes_nothing() -> None:
    scenario = parking(BRANCH, ctx={"size": "big"})
    assert not scenario.feed(RecordedFact(EvaluationFinished(7))).taken
    scenario.done("start", {"n": 2})
    asked = scenario.execution.evaluation
    assert asked is not None
    assert not scenario.feed(RecordedFact(EvaluationFinished(asked.position + 1))).taken
    assert not scenario.feed(RecordedFact(EvaluationFailed(asked.position + 1, "another"))).taken
    scenario.evaluate()
    assert not scenario.feed(RecordedFact(EvaluationFinished(asked.position))).taken


def test_work_that_had_to_be_ended_fails_the_execution() -> None:
    scenario = parking(BRANCH, ctx={"size": "big"})
    scenario.done("start", {"n": 2})
    asked = scenario.execution.evaluation
    assert asked is not None
    scenario.feed(RecordedFact(EvaluationFailed(asked.position, "the templates of one decision took too long")))
    assert (scenario.status, scenario.error.kind) == ("failed", "limit_exceeded")
    assert scenario.error.message == "the templates of one decision took too long"


def test_a_cancel_does_not_wait_for_a_reference() -> None:
    scenario = parking(BRANCH, ctx={"size": "big"})
    scenario.done("start", {"n": 2})
    scenario.ask(CancelRequested)
    assert scenario.status == "cancelled"


def test_above_the_hard_limit_the_guard_fails() -> None:
    steps = BRANCH.replace("range(20000) | sum", "([range(100000)] * 1000) | map('sum') | sum")
    scenario = given(steps)
    scenario.start(ctx={"size": "big"})
    scenario.done("start", {"n": 2})
    assert len(scenario.facts(EvaluationAwaited)) == 1
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    assert "limits.max_template_operations (1,000,000)" in scenario.error.message


def test_a_playbook_may_lower_the_budget() -> None:
    scenario = parking(BRANCH.replace(HEAVY, "true"), limits(max_inline_operations=1), ctx={"size": "small"})
    scenario.done("start", {"n": 2})
    assert len(scenario.facts(EvaluationAwaited)) == 1


@pytest.mark.parametrize("go", [True, False])
def test_admission_is_evaluated_elsewhere(go: bool) -> None:
    scenario = parking(ADMITTED, ctx={"go": go})
    scenario.inject("later")
    assert len(scenario.facts(EvaluationAwaited)) == 1 and scenario.working == [("start", None)]
    scenario.evaluate()
    assert scenario.working == ([("start", None), ("later", None)] if go else [("start", None)])
    (guarded,) = [scenario.facts(TokenClaimed)[-1]] if go else scenario.facts(TokenHeld)
    assert [(guard.rule, guard.value) for guard in guarded.guards] == [(0, go)]


def test_held_tokens_are_retried_together_after_each_change() -> None:
    scenario = parking(ADMITTED, ctx={"go": False})
    for _ in range(3):
        scenario.inject("later")
        scenario.evaluate()
    assert scenario.held == ["later"] * 3
    scenario.patch(go=False, other=1)
    assert len(scenario.facts(EvaluationAwaited)[-1].choices) == 3
    scenario.evaluate()
    assert scenario.held == ["later"] * 3 and scenario.execution.evaluation is None
    scenario.patch(go=True)
    scenario.evaluate()
    assert scenario.held == [] and len(scenario.working) == 4


def test_a_refusal_is_asked_again_if_ctx_has_changed_meanwhile() -> None:
    scenario = parking(ADMITTED, ctx={"go": False})
    scenario.inject("later")
    scenario.patch(go=True)
    scenario.evaluate()
    assert scenario.execution.evaluation is not None
    scenario.evaluate()
    assert ("later", None) in scenario.working


def test_many_cheap_guards_share_the_budget_of_their_fact() -> None:
    scenario = parking(ADMITTED.replace(HEAVY, "range(1000) | sum > 0"), ctx={"go": False})
    for _ in range(20):
        scenario.inject("later")
    assert scenario.facts(EvaluationAwaited) == []
    scenario.patch(go=True)
    (awaited,) = scenario.facts(EvaluationAwaited)
    assert 1 < len(awaited.choices) < 20
    scenario.evaluate()
    assert scenario.held == []


def test_the_facts_of_a_report_share_a_budget() -> None:
    scenario = parking(ADMITTED.replace(HEAVY, "range(3000) | sum > 0"), ctx={"go": False})
    scenario.inject("later")
    parked = []
    for shares in (False, True):
        state = scenario.execution
        for number in range(3):
            patch = RecordedFact(CtxPatched(f"patch-{number}", patch={"n": number}))
            sharing = shares and number > 0
            state = advanced_state(advance(scenario.plan, state, patch, scenario.execution_id, shares_budget=sharing))
        parked.append(state.evaluation is not None)
    assert parked == [False, True]


def advanced_state(advanced: Advanced) -> Execution:
    assert advanced.state is not None
    return advanced.state


def test_the_result_of_an_execution_is_rendered_elsewhere() -> None:
    result = f'executor: {{spec: {{result: {{all: "{{{{ {HEAVY} }}}}", n: "{{{{ start.n }}}}"}}}}}}\n'
    scenario = parking("- step: start\n  tool: {kind: noop}\n", result)
    scenario.done("start", {"n": 2})
    assert scenario.status == "running"
    scenario.evaluate()
    assert (scenario.status, scenario.result) == ("completed", {"all": True, "n": 2})


def test_a_worker_pages_out_a_loop_that_is_too_expensive_to_evaluate() -> None:
    scenario = parking(f"""
        - step: start
          loop: {{in: "{{{{ [1, 2] if {HEAVY} else [] }}}}", iterator: item}}
          tool: {{kind: noop}}
        """)
    (scheduled,) = scenario.facts(StepScheduled)
    assert scheduled.paging and scenario.facts(EvaluationAwaited) == []
    scenario.done("start")
    assert not scenario.owed("start").paging
    scenario.done("start")
    assert scenario.facts(LoopDone)[0].count == 2 and scenario.status == "completed"


def test_an_evaluation_may_first_need_a_result_by_reference() -> None:
    scenario = parking(BRANCH.replace(f"{HEAVY} and", f"{HEAVY} and 1 in event.result.rows and"), ctx={"size": "big"})
    scenario.objects.takes = lambda data: True
    scenario.done("start", {"n": 2, "rows": [1]})
    assert scenario.execution.evaluation is not None
    scenario.evaluate()
    assert scenario.execution.evaluation is None and scenario.execution.awaited is not None
    scenario.look_into()
    scenario.evaluate()
    assert scenario.working == [("big", None)] and scenario.facts(ReferenceAwaited) == []
    assert scenario.decided_again() == scenario.journal


def test_a_value_too_large_for_the_journal_fails_the_execution() -> None:
    large = "{{ ['x' * 300000] * 8 if " + HEAVY + " else [] }}"
    scenario = given(
        f'- step: start\n  tool: {{kind: noop}}\n  next: {{arcs: [{{step: end, args: {{a: "{large}"}}}}]}}\n'
        "- step: end\n  tool: {kind: noop}\n"
    )
    scenario.start()
    scenario.done("start")
    assert scenario.status == "failed" and f"may render {MAX_ANSWER_BYTES}" in scenario.error.message


def test_questions_hold_only_the_values_that_their_templates_read() -> None:
    scenario = parking(BRANCH, ctx={"size": "big", "secret": "s3cret"}, workload={"secret": "s3cret"})
    scenario.done("start", {"n": 2})
    questions = questions_of(scenario.plan, scenario.execution)
    body = codec.encode(questions)
    assert b"s3cret" not in body
    assert decode_answers(answer_json(body)) != Answers()
