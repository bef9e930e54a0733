"""How commands change the state: issued, reissued, cancelled (PROTOCOL §2, §3)."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.engine.evolve import Rules
from noetl_stream.engine.evolve.loops import ordered
from noetl_stream.engine.evolve.step_runs import drop_assignment, with_run
from noetl_stream.engine.state import Assignment, Execution
from noetl_stream.model import events

replace = msgspec.structs.replace


def _scheduled(state: Execution, fact: events.StepScheduled) -> Execution:
    present = state.assignments.get(fact.command_id)
    if present is not None:
        if fact.issue <= present.issue:
            return state
        assignment = replace(present, issue=fact.issue)
        return replace(state, assignments={**state.assignments, fact.command_id: assignment})
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended or state.ending:
        return state
    after = ordered(run, fact)
    if after is None:
        return state
    if after is not run:
        state = with_run(state, after)
    assignment = Assignment(fact.command_id, fact.step_run_id, fact.path, fact.issue, paging=fact.paging)
    return replace(state, assignments={**state.assignments, fact.command_id: assignment})


def _cancelled(state: Execution, fact: events.StepCancelled) -> Execution:
    assignment = state.assignments.get(fact.command_id)
    if assignment is None:
        suspended = state.suspensions.get(fact.command_id)
        return state if suspended is None else drop_assignment(state, suspended)
    if assignment.cancelling:
        return state
    if assignment.run is not None:
        cancelling = replace(assignment, cancelling=fact.reason)
        return replace(state, assignments={**state.assignments, fact.command_id: cancelling})
    return drop_assignment(state, assignment)


RULES: Final[Rules] = {events.StepScheduled: _scheduled, events.StepCancelled: _cancelled}
