"""The run lease: which run of a command the fold accepts, and which of its events comes next (PROTOCOL §3)."""

from __future__ import annotations

from typing import Literal

import msgspec

from noetl_stream.engine.effects.commands import build_continuation
from noetl_stream.engine.state import Assignment, Execution, RecordedFact
from noetl_stream.model.events import StepClaimed
from noetl_stream.model.ids import RunId
from noetl_stream.model.messages import ClaimAnswer, Drop

Classification = Literal["next", "duplicate", "gap", "stale", "unknown"]


def classify(state: Execution | None, recorded: RecordedFact) -> Classification:
    """How a worker's event relates to the state; ``evolve`` takes only ``next``."""
    if state is None or state.ended or recorded.run is None:
        return "unknown"
    return classify_report(state, recorded.run, recorded.number, claim=type(recorded.fact) is StepClaimed)


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
    return msgspec.structs.replace(assignment, run=recorded.run, next_number=recorded.number + 1)


def answer_claim(state: Execution | None, run: RunId) -> ClaimAnswer:
    """The answer to a claim, by the state after the claim was folded (PROTOCOL §3 *Claim*)."""
    if state is None:
        return Drop("unknown execution")
    if state.ended:
        return Drop(f"the execution is {state.status}")
    assignment = state.assignments.get(run.command_id)
    if assignment is None:
        return Drop("the step run has ended")
    if assignment.run != run:
        return Drop("another worker has it")
    return build_continuation(state, assignment)
