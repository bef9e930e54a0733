"""A playbook of 910 bytes, whose guards sorted by 901 keys each, once held the server's loop for 46 seconds.

Here it is counted what such guards cost the loop, and where they are evaluated; how other executions go on meanwhile is
tested in ``tests/server/test_server_template_work.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from noetl_stream.adapters.evaluation.pool import EvaluationPool
from noetl_stream.engine.advance import Advanced, advance
from noetl_stream.engine.choices import decode_answers
from noetl_stream.engine.decide.quiescence import questions_of
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model.events import EvaluationAwaited, EvaluationFinished, NextEvaluated
from noetl_stream.model.json import codec
from noetl_stream.template import ExpressionError, Scope, compile_guard, holds
from noetl_stream.template.runtime.meter import Budget, OverBudget
from noetl_testkit.scenario.scenario import Scenario

GUARD = "{{ event.result.rows | sort(attribute='a' ~ ',a'*900) == [] }}"
ARCS = "\n".join(f'    - {{step: end, when: "{GUARD}"}}' for _ in range(8))
EXPLOIT = f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: slow, path: team/a/slow}}
workflow:
- step: start
  tool: {{kind: noop}}
  next:
    arcs:
{ARCS}
- step: end
  tool: {{kind: noop}}
"""


def ended_step(rows: int) -> Scenario:
    """The exploit, after the end of its first step with this many rows, which its guards have yet to sort."""
    scenario = Scenario(EXPLOIT)
    scenario.evaluates = False
    scenario.start()
    scenario.done("start", {"rows": [{"a": 1}] * rows})
    return scenario


def resolved(scenario: Scenario, state: Execution, answers: bytes) -> Advanced:
    answered = decode_answers(answers)
    assert state.evaluation is not None
    fact = EvaluationFinished(state.evaluation.position, answered.chosen, answered.reference)
    return advance(scenario.plan, state, RecordedFact(fact), scenario.execution_id)


async def test_the_exploit_costs_the_loop_no_more_than_a_budget_and_runs_in_another_process() -> None:
    scenario = ended_step(rows=100)
    assert len(scenario.facts(EvaluationAwaited)) == 1 and scenario.facts(NextEvaluated) == []
    state = scenario.execution
    evaluator = EvaluationPool()
    try:
        answers = await evaluator.evaluate(codec.encode(questions_of(scenario.plan, state)))
    finally:
        await evaluator.close()
    advanced = resolved(scenario, state, answers)
    (routed,) = [fact for fact in advanced.journal if isinstance(fact, NextEvaluated)]
    assert [guard.value for guard in routed.guards] == [False] * 8


def test_no_fact_of_the_exploit_spends_more_than_its_budget() -> None:
    scenario = ended_step(rows=100)
    state: Execution | None = None
    for recorded in scenario.inputs:
        state = advance(scenario.plan, state, recorded, scenario.execution_id).state
        assert state is not None and state.budget.spent <= scenario.plan.limits.max_inline_operations


def test_above_the_limit_of_a_rendering_its_guards_fail() -> None:
    scenario = ended_step(rows=1_000)
    scenario.evaluate()
    assert (scenario.status, scenario.error.kind) == ("failed", "expression_error")
    assert "limits.max_template_operations" in scenario.error.message


@pytest.mark.parametrize(
    "guard",
    [
        GUARD.replace("event.result.rows", "ctx.rows"),
        "{{ ctx.rows | groupby('a' ~ '.a' * 900) == [] }}",
        "{{ ctx.rows | map(attribute='a' ~ '.a' * 900) | list == [] }}",
        "{{ ctx.text.startswith([ctx.text[1:]] * 1000) }}",
        "{{ ('%' ~ ctx.zeros) % 1 == '' }}",
        "{{ ctx.text | urlencode == '' }}",
        "{{ (ctx.rows * 9) | tojson(indent=2) == '' }}",
        "{{ ctx.part in ctx.alike }}",
        "{{ [] | sort(attribute='a,' * 10000) == [] }}",
        "{{ ctx.alike.find(ctx.part) > 0 }}",
    ],
)
def test_work_of_such_guards_is_counted_before_it_is_done(guard: str) -> None:
    ctx: dict[str, Any] = {"rows": [{"a": 1}] * 500, "text": "x" * 1_000_000, "zeros": "0" * 4_000_000}
    ctx |= {"alike": "a" * 60_000, "part": "a" * 58_000 + "ba"}  # found, at worst, by 120 million comparisons
    compiled = compile_guard(guard, namespaces=frozenset({"ctx"}), bindings={})
    budget = Budget(10_000)
    with pytest.raises(OverBudget):
        holds(compiled, Scope({"ctx": ctx}, budget=budget))


def test_a_placeholder_is_found_in_one_pass() -> None:
    """The pattern tried nine numbers at each of four million zeros."""
    text = "%" + "0" * 4_000_000
    compiled = compile_guard("{{ ctx.text % 1 == '' }}", namespaces=frozenset({"ctx"}), bindings={})
    with pytest.raises(ExpressionError, match="does not start a placeholder"):
        holds(compiled, Scope({"ctx": {"text": text}}))
