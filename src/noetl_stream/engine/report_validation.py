"""What a worker may report: facts that the fold cannot use are refused before it sees them (PROTOCOL §5 *Poison*)."""

from __future__ import annotations

from noetl_stream.engine.evolve.worker_facts import RULES
from noetl_stream.engine.state import Execution
from noetl_stream.model import events


def malformed(fact: events.Fact) -> str:
    """Why no worker can mean this fact, whatever it runs; ``""`` if one may."""
    rule = RULES.get(type(fact))
    if rule is None:
        return f"{fact.event_name()} cannot be reported by a worker"
    reason = rule.form(fact)
    return f"{fact.event_name()} {reason}" if reason else ""


def misfit(state: Execution, command_id: str, step_run_id: str, fact: events.Fact) -> str:
    """Why ``fact``, well formed, cannot be one of this command, which is owed an end; ``""`` if it can.

    Args:
        step_run_id: What the report says whose command it is.
    """
    assignment = state.assignments[command_id]
    run = state.runs.get(assignment.step_run_id)
    if run is None:
        return ""
    named = getattr(fact, "step_run_id", run.step_run_id)
    if isinstance(fact, events.LoopIterationFailed):
        named = named or run.step_run_id
    if {step_run_id, named} != {run.step_run_id}:
        return f"{fact.event_name()} names another step run than its command's"
    if RULES[type(fact)].fits(fact, assignment, run):
        return ""
    return f"{fact.event_name()} is of no iteration that command {command_id} could be at"
