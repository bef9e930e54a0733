"""What a worker may report: facts that the fold cannot use are refused before it sees them (PROTOCOL §5 *Poison*)."""

from __future__ import annotations

from noetl_stream.engine.evolve.worker_facts import RULES
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model import events


def malformed(fact: events.Fact) -> str:
    """Why no worker can mean this fact, whatever it runs; ``""`` if one may."""
    rule = RULES.get(type(fact))
    if rule is None:
        return f"{fact.event_name()} cannot be reported by a worker"
    reason = rule.form(fact)
    return f"{fact.event_name()} {reason}" if reason else ""


def misfit(state: Execution, recorded: RecordedFact) -> str:
    """Why a well-formed fact cannot belong to the command of its run, which is owed an end; ``""`` if it can."""
    fact, run_id = recorded.fact, recorded.run
    assert run_id is not None
    assignment = state.assignments[run_id.command_id]
    run = state.runs.get(assignment.step_run_id)
    if run is None:
        return ""
    named = getattr(fact, "step_run_id", run.step_run_id)
    if isinstance(fact, events.LoopIterationFailed):
        named = named or run.step_run_id
    if {recorded.step_run_id or run.step_run_id, named} != {run.step_run_id}:
        return f"{fact.event_name()} names another step run than its command's"
    rule = RULES.get(type(fact))
    if rule is None:
        return malformed(fact)
    if rule.fits(fact, assignment, run):
        return ""
    return f"{fact.event_name()} is of no iteration that command {run_id.command_id} could be at"
