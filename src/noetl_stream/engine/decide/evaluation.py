"""The questions that an execution has another process evaluate, by the state in which it asked (PROTOCOL §2 *Template
work*).
"""

from __future__ import annotations

from msgspec.structs import replace

from noetl_stream.engine.choices import RESULT, Choice, Questions, ask, ask_of_workload
from noetl_stream.engine.decide.executions import workload_of
from noetl_stream.engine.decide.quiescence import result_of
from noetl_stream.engine.decide.routing import arcs_of
from noetl_stream.engine.decide.tokens import admission_of
from noetl_stream.engine.state import Execution
from noetl_stream.playbook.plan import Plan


def questions_of(plan: Plan, state: Execution) -> Questions | None:
    """The questions that the execution waits for; ``None`` if no choice is left."""
    asked = state.evaluation
    if asked is None:
        return None
    if state.request is not None:
        schema = plan.workload_schema
        return None if schema is None else ask_of_workload(schema, workload_of(plan, state.request))
    before = replace(state, ctx=asked.ctx, steps=asked.steps)
    choices = {choice_id: _choice_of(plan, before, choice_id) for choice_id in asked.choices}
    return ask({choice_id: choice for choice_id, choice in choices.items() if choice is not None}, state.limits)


def _choice_of(plan: Plan, state: Execution, choice_id: str) -> Choice | None:
    if choice_id == RESULT:
        return None if plan.result is None else result_of(plan, state, plan.result)
    if (waiting := state.tokens.get(choice_id)) is not None:
        policy = plan.steps[waiting.token.step].admit
        return None if policy is None else admission_of(plan, state, waiting.token, policy)
    run = state.runs.get(choice_id)
    return None if run is None else arcs_of(plan, state, run)
