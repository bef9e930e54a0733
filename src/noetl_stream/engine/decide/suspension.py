"""Suspensions: their timers and children, and how they resume (LANGUAGE §8, PROTOCOL §3 *Segments*)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.decide import NOTHING, Rules
from noetl_stream.engine.state import LATEST_MS, Assignment, Execution, due_ms
from noetl_stream.model import events
from noetl_stream.model.events import (
    ChildOrdered,
    ChildRequested,
    Fact,
    StepResumed,
    StepScheduled,
    TimerSet,
    Wait,
)
from noetl_stream.model.ids import command_of, timer_of
from noetl_stream.playbook.plan import Plan


def resume_or_wait(state: Execution, suspended: Assignment) -> Sequence[Fact]:
    """Resumes a suspended command if something it waits for has arrived; otherwise sets timers, starts children."""
    if suspended.answers or suspended.paused or not suspended.waits:
        return _resume(suspended)
    facts: list[Fact] = []
    for wait in suspended.waits.values():
        due = _due(wait)
        timer_id = timer_of(suspended.command_id, "wait", wait.path)
        if due is not None and timer_id not in state.timers:
            facts.append(TimerSet(timer_id, "wait", due, suspended.command_id, wait.path))
        if wait.child is not None and wait.child.execution_id not in state.children:
            child = wait.child
            facts.append(
                ChildRequested(suspended.step_run_id, suspended.command_id, child.execution_id, child, wait.path)
            )
    return facts


def cancel_unawaited(state: Execution) -> Sequence[Fact]:
    """Cancels children that nothing waits for any more: the wait has timed out, or its step has failed."""
    if not state.children:
        return ()
    awaited = {
        wait.child.execution_id
        for assignment in (*state.suspensions.values(), *state.assignments.values())
        for wait in assignment.waits.values()
        if wait.child is not None
    }
    return tuple(
        ChildOrdered(child_id, "cancel", "its parent no longer waits for it")
        for child_id in state.children
        if child_id not in awaited
    )


def _resume(suspended: Assignment) -> Sequence[Fact]:
    step_run_id, path = suspended.step_run_id, suspended.path
    command_id = command_of(step_run_id, path, suspended.segment + 1)
    resumed = StepResumed(step_run_id, suspended.command_id, command_id, path)
    return (resumed, StepScheduled(step_run_id, command_id, path))


def _due(wait: Wait) -> int | None:
    if wait.until_ms is not None:
        return max(0, min(wait.until_ms, LATEST_MS))
    waits_s = next((each for each in (wait.delay_s, wait.for_s, wait.timeout_s) if each is not None), None)
    return None if waits_s is None else due_ms(wait.since_ms, waits_s)


def _suspended(plan: Plan, state: Execution, fact: events.StepSuspended) -> Sequence[events.Fact]:
    latest = next(reversed(state.suspensions.values()), None)
    return NOTHING if latest is None or state.ending else resume_or_wait(state, latest)


def _wait_answered(
    plan: Plan, state: Execution, fact: events.SignalReceived | events.ChildFinished
) -> Sequence[events.Fact]:
    """Resumes the command whose wait was answered."""
    answered = next((suspended for suspended in state.suspensions.values() if suspended.answers), None)
    return NOTHING if answered is None or state.ending else resume_or_wait(state, answered)


RULES: Final[Rules] = {
    events.StepSuspended: _suspended,
    events.SignalReceived: _wait_answered,
    events.ChildFinished: _wait_answered,
}
