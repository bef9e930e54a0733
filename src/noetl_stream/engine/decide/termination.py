"""Termination: an execution that fails or is cancelled stops everything it has started before it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.decide import Rules
from noetl_stream.engine.state import Execution, due_ms
from noetl_stream.model import events
from noetl_stream.model.events import ChildOrdered, ExecutionFinished, Fact, StepCancelled, TimerSet, TokenDiscarded
from noetl_stream.model.ids import timer_of
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.playbook.plan import Plan


def fail(state: Execution) -> Sequence[Fact]:
    """Stops the running work of an execution that has failed."""
    return _stop(state, "the execution has failed")


def cancel(state: Execution) -> Sequence[Fact]:
    """Stops the running work of an execution that is being cancelled."""
    return _stop(state, f"the execution is being cancelled: {state.cancelling}")


def end_when_stopped(state: Execution) -> Sequence[Fact]:
    """Ends an execution that is ending, once every command has ended or the grace period is over (LANGUAGE §9)."""
    if state.assignments:
        return ()
    if state.failing is not None:
        return (ExecutionFinished("failed", Outcome("error", error=state.failing), state.discarded),)
    error = ErrorInfo("cancelled", state.cancelling)
    return (ExecutionFinished("cancelled", Outcome("error", error=error), state.discarded),)


def _stop(state: Execution, reason: str) -> Sequence[Fact]:
    facts: list[Fact] = [TokenDiscarded(token_id, reason) for token_id in state.tokens]
    facts += (
        StepCancelled(assignment.step_run_id, assignment.command_id, reason)
        for assignment in (*state.assignments.values(), *state.suspensions.values())
        if not assignment.cancelling
    )
    facts += (ChildOrdered(child_id, "cancel", reason) for child_id in state.children)
    if state.assignments:
        due = due_ms(state.at_ms, state.limits.cancel_grace_s)
        facts.append(TimerSet(timer_of(state.execution_id, "grace"), "grace", due))
    return facts


def _failing(plan: Plan, state: Execution, fact: events.ExecutionFailing) -> Sequence[events.Fact]:
    return fail(state)


def _finished(plan: Plan, state: Execution, fact: events.ExecutionFinished) -> Sequence[events.Fact]:
    return (events.PlaybookProcessed(fact.status),)


RULES: Final[Rules] = {events.ExecutionFailing: _failing, events.ExecutionFinished: _finished}
