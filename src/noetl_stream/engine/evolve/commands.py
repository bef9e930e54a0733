"""How commands change the state: issued, reissued, cancelled; and their run lease (PROTOCOL §2, §3).

The run lease says which run of a command the fold accepts, and which of its events comes next.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules, with_assignment, with_run
from noetl_stream.engine.evolve.loops import ordered
from noetl_stream.engine.evolve.step_runs import drop_assignment
from noetl_stream.engine.state import Assignment, Execution, RecordedFact
from noetl_stream.model import events
from noetl_stream.model.ids import RunId


def _scheduled(state: Execution, fact: events.StepScheduled) -> Execution:
    present = state.assignments.get(fact.command_id)
    if present is not None:
        if fact.issue <= present.issue:
            return state
        return with_assignment(state, replace(present, issue=fact.issue))
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended or state.ending:
        return state
    after = ordered(run, fact)
    if after is None:
        return state
    if after is not run:
        state = with_run(state, after)
    assignment = Assignment(fact.command_id, fact.step_run_id, fact.path, fact.issue, paging=fact.paging)
    return with_assignment(state, assignment)


def _cancelled(state: Execution, fact: events.StepCancelled) -> Execution:
    assignment = state.assignments.get(fact.command_id)
    if assignment is None:
        suspended = state.suspensions.get(fact.command_id)
        return state if suspended is None else drop_assignment(state, suspended)
    if assignment.cancelling:
        return state
    if assignment.run is not None:
        return with_assignment(state, replace(assignment, cancelling=fact.reason))
    return drop_assignment(state, assignment)


Classification = Literal["next", "duplicate", "gap", "stale", "unknown"]


def classify(state: Execution | None, recorded: RecordedFact) -> Classification:
    """How a worker's event relates to the state; ``evolve`` takes only ``next``."""
    if state is None or state.ended or recorded.run is None:
        return "unknown"
    return classify_report(state, recorded.run, recorded.number, claim=type(recorded.fact) is events.StepClaimed)


def classify_report(state: Execution, run: RunId, number: int, *, claim: bool) -> Classification:
    """How event ``number`` of ``run`` relates to the state.

    ``next``: the fold takes it. ``duplicate``: already taken. ``gap``: earlier events are missing. ``stale``: the
    command is bound to another run. ``unknown``: the command is not owed (ended, cancelled or never issued).
    """
    assignment = state.assignments.get(run.command_id)
    if assignment is None:
        return "unknown"
    if assignment.run == run:
        expected = assignment.next_number
        return "next" if number == expected else "duplicate" if number < expected else "gap"
    if assignment.run is not None and not (claim and run.rank > assignment.run.rank):
        return "stale"
    return "next" if number == 0 else "gap"


def bind(assignment: Assignment, recorded: RecordedFact) -> Assignment:
    """The assignment after taking this event of ``recorded.run`` (classified as ``next``)."""
    return replace(assignment, run=recorded.run, next_number=recorded.number + 1)


RULES: Final[Rules] = {events.StepScheduled: _scheduled, events.StepCancelled: _cancelled}
