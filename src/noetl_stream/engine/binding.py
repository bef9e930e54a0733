"""Which run of a command the fold listens to, and which of its events it takes next (PROTOCOL §3)."""

from __future__ import annotations

from typing import Literal

import msgspec

from noetl_stream.engine.orders import go_on
from noetl_stream.engine.state import Assignment, Execution, Occurrence
from noetl_stream.model.ids import RunId
from noetl_stream.model.messages import ClaimAnswer, Drop

Standing = Literal["next", "had", "gap", "stale", "unknown"]


def standing(state: Execution, run: RunId, number: int, *, claim: bool) -> Standing:
    """How the event ``number`` of ``run`` stands to the state.

    ``next``: the fold takes it. ``had``: a repetition. ``gap``: events before it are missing. ``stale``: the command is
    bound to another run. ``unknown``: no such command is owed (ended, cancelled or never issued).
    """
    assignment = state.assignments.get(run.command_id)
    if assignment is None:
        return "unknown"
    if assignment.run == run:
        expected = assignment.next_number
        return "next" if number == expected else "had" if number < expected else "gap"
    if assignment.run is not None and not (claim and run.rank > assignment.run.rank):
        return "stale"
    return "next" if number == 0 else "gap"


def bind(assignment: Assignment, occurrence: Occurrence) -> Assignment:
    """The assignment after it has taken this event of ``occurrence.run`` (whose standing is ``next``)."""
    return msgspec.structs.replace(assignment, run=occurrence.run, next_number=occurrence.number + 1)


def answer_claim(state: Execution | None, run: RunId) -> ClaimAnswer:
    """What a worker that claimed is told, by the state after its claim was folded (PROTOCOL §3 *Claim*)."""
    if state is None:
        return Drop("unknown execution")
    if state.ended:
        return Drop(f"the execution is {state.status}")
    assignment = state.assignments.get(run.command_id)
    if assignment is None:
        return Drop("the step run has ended")
    if assignment.run != run:
        return Drop("another worker has it")
    return go_on(state, assignment)
