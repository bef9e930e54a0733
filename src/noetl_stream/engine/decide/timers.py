"""Timers: waits that are over, missed deadlines and timeouts (LANGUAGE §4, §5, §8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.decide import NOTHING, Rules
from noetl_stream.engine.decide.suspension import resume_or_wait
from noetl_stream.engine.state import Execution, StepRun, due_ms
from noetl_stream.model import events
from noetl_stream.model.events import Fact, TimerSet
from noetl_stream.model.ids import step_run_of, timer_of
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import Plan


def watch(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """The timer of ``lifecycle.timeout_s``, counted from the first start of the step run."""
    timeout_s = plan.steps[run.step].timeout_s
    timer_id = timer_of(run.step_run_id, "step") if timeout_s is not None and run.started_ms else ""
    if timeout_s is None or not timer_id or timer_id in state.timers:
        return ()
    return (TimerSet(timer_id, "step", due_ms(run.started_ms, timeout_s), run.step_run_id),)


def _timer_fired(plan: Plan, state: Execution, fact: events.TimerFired) -> Sequence[events.Fact]:
    if state.ending:
        return NOTHING
    if fact.purpose == "wait":
        suspended = state.suspensions.get(fact.subject)
        return NOTHING if suspended is None else resume_or_wait(state, suspended)
    if fact.purpose == "execution":
        text = f"the execution exceeded executor.spec.timeout_s ({plan.timeout_s:g} s)"
        return (events.ExecutionFailing(ErrorInfo("timeout", text)),)
    if fact.purpose == "admission":
        return _admission_over(plan, state, fact.subject)
    if fact.purpose == "deadline":
        return _deadline_over(plan, state, fact.subject)
    run = state.runs.get(fact.subject)
    if run is None or run.ended:
        return NOTHING
    text = f"step {run.step} exceeded lifecycle.timeout_s ({plan.steps[run.step].timeout_s:g} s)"
    return _time_out(state, run.step_run_id, text)


def _admission_over(plan: Plan, state: Execution, token_id: str) -> Sequence[events.Fact]:
    waiting = state.tokens.get(token_id)
    if waiting is None:
        return NOTHING
    step = waiting.token.step
    policy = plan.steps[step].admit
    if policy is None or policy.wait_s is None:
        return NOTHING
    text = f"step {step} did not admit its token within admit.wait.timeout_s ({policy.wait_s:g} s)"
    if policy.on_timeout == "discard":
        return (events.TokenDiscarded(token_id, text),)
    return (_refused(state, token_id, ErrorInfo("admission_timeout", text)),)


def _deadline_over(plan: Plan, state: Execution, token_id: str) -> Sequence[events.Fact]:
    waiting = state.tokens.get(token_id)
    step_run_id = step_run_of(state.execution_id, token_id)
    run = state.runs.get(step_run_id)
    step = waiting.token.step if waiting is not None else run.step if run is not None else ""
    if not step or (run is not None and run.ended):
        return NOTHING
    text = f"step {step} was not done within lifecycle.deadline_s ({plan.steps[step].deadline_s:g} s)"
    if waiting is not None:
        return (_refused(state, token_id, ErrorInfo("timeout", text)),)
    return _time_out(state, step_run_id, text)


def _refused(state: Execution, token_id: str, error: ErrorInfo) -> events.Fact:
    return events.TokenClaimed(token_id, step_run_of(state.execution_id, token_id), refused=error)


def _time_out(state: Execution, step_run_id: str, text: str) -> Sequence[events.Fact]:
    cancelled = [
        events.StepCancelled(step_run_id, assignment.command_id, text)
        for assignment in (*state.assignments.values(), *state.suspensions.values())
        if assignment.step_run_id == step_run_id
    ]
    return (*cancelled, events.StepFailed(step_run_id, ErrorInfo("timeout", text)))


RULES: Final[Rules] = {events.TimerFired: _timer_fired}
