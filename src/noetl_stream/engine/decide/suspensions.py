"""Decisions about suspensions and timers: resumed commands, missed deadlines and timeouts.

Source: LANGUAGE §4, §5, §8; PROTOCOL §3 *Segments*.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from noetl_stream.engine.decide import Rules
from noetl_stream.engine.decide.closing import TOOK_TOO_LONG
from noetl_stream.engine.decide.slots import ask_for_task
from noetl_stream.engine.decide.tokens import begin, claim
from noetl_stream.engine.scope import expression_failure
from noetl_stream.engine.state import LATEST_MS, Assignment, Execution, StepRun, changed_entries, due_ms
from noetl_stream.model import events
from noetl_stream.model.events import Fact, TimerSet, Wait
from noetl_stream.model.ids import command_of, step_run_of, timer_of
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import Budget, ExpressionError, OverBudget, Scope, Template, render_number


def resume_or_wait(plan: Plan, state: Execution, suspended: Assignment) -> Sequence[Fact]:
    """Resumes a suspended command if one of its waits is answered; otherwise sets timers and requests children and
    slots.
    """
    step_run_id, command_id = suspended.step_run_id, suspended.command_id
    if suspended.answers or suspended.paused or not suspended.waits:
        path = suspended.path
        following = command_of(step_run_id, path, suspended.segment + 1)
        resumed = events.StepResumed(step_run_id, command_id, following, path)
        return (resumed, events.StepScheduled(step_run_id, following, path))
    facts: list[Fact] = []
    for wait in suspended.waits.values():
        if wait.key is not None:
            if wait.slot_id not in state.slots:
                facts.append(ask_for_task(plan, state, suspended, wait))
            continue
        due, child = _wait_due_ms(wait), wait.child
        timer_id = timer_of(command_id, "wait", wait.path)
        if due is not None and timer_id not in state.timers:
            facts.append(TimerSet(timer_id, "wait", due, command_id, wait.path))
        if child is not None and child.execution_id not in state.children:
            facts.append(events.ChildRequested(step_run_id, command_id, child.execution_id, child, wait.path))
    return facts


def _wait_due_ms(wait: Wait) -> int | None:
    if wait.until_ms is not None:
        return max(0, min(wait.until_ms, LATEST_MS))
    waits_s = next((each for each in (wait.delay_s, wait.for_s, wait.timeout_s) if each is not None), None)
    return None if waits_s is None else due_ms(wait.since_ms, waits_s)


def cancel_unawaited(state: Execution, settled: Execution) -> Sequence[Fact]:
    """Cancels children no longer awaited since the ``settled`` state: the wait timed out, or its step failed."""
    if not state.children:
        return ()
    begun = state.children.keys() - settled.children.keys()
    unawaited = (begun | _awaited_children(state, settled)) - _awaited_children(settled, state)
    if state.closing is not None:  # nothing awaits the children that undo calls of a step run
        unawaited -= {child_id for child_id, run_id in state.children.items() if run_id in state.compensable}
    children = filter(unawaited.__contains__, state.children)
    return [events.ChildOrdered(child_id, "cancel", "its parent no longer waits for it") for child_id in children]


def _awaited_children(other: Execution, state: Execution) -> set[str]:
    """The children that commands of ``state`` wait for, as far as those commands differ from the ``other`` state."""
    commands = changed_entries(other.assignments, state.assignments) + changed_entries(
        other.suspensions, state.suspensions
    )
    waits = (wait for _, command in commands for wait in command.waits.values())
    return {wait.child.execution_id for wait in waits if wait.child is not None}


def watch(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """The timer of ``lifecycle.timeout_s``, counted from the first start of the step run."""
    template = plan.steps[run.step].timeout_s
    if template is None or not run.started_ms:
        return ()
    timer_id = timer_of(run.step_run_id, "step")
    if timer_id in state.timers:
        return ()
    try:
        timeout_s = _timeout_s(plan, template, state, run)
    except ExpressionError as error:
        return _fail(state, run.step_run_id, expression_failure("lifecycle.timeout_s", error))
    return (TimerSet(timer_id, "step", due_ms(run.started_ms, timeout_s), run.step_run_id),)


def _timeout_s(plan: Plan, template: Template, state: Execution, run: StepRun) -> float:
    """The timeout of a step run, the same at every evaluation.

    Raises:
        ExpressionError: it is not a number of seconds.
    """
    names = {
        "workload": state.workload,
        "ctx": run.ctx,
        "args": run.token.args,
        "execution_id": state.execution_id,
        "execution": state.execution,
    }
    if plan.steps[run.step].sets_token:
        names["token"] = run.token_seen
    try:
        found = render_number(template, Scope(names, {}, state.limits, Budget(state.limits.max_inline_operations)))
    except OverBudget:
        raise ExpressionError("it costs more than a decision may spend: make it plainer") from None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < inf:
        raise ExpressionError(f"it is {found!r:.60}, not a number of seconds above 0")
    return found


def _on_step_suspended(plan: Plan, state: Execution, fact: events.StepSuspended) -> Sequence[Fact]:
    latest = next(reversed(state.suspensions.values()), None)
    return () if latest is None or state.ending else resume_or_wait(plan, state, latest)


def _wait_answered(plan: Plan, state: Execution, fact: Fact) -> Sequence[Fact]:
    """Resumes the command whose wait was answered."""
    answered = next((suspended for suspended in state.suspensions.values() if suspended.answers), None)
    return () if answered is None or state.ending else resume_or_wait(plan, state, answered)


def _retries_begin(plan: Plan, state: Execution, fact: events.RetryNowRequested) -> Sequence[Fact]:
    """Resumes every command with an answered wait."""
    answered = [suspended for suspended in state.suspensions.values() if suspended.answers and not state.ending]
    return [one for suspended in answered for one in resume_or_wait(plan, state, suspended)]


def _slot_granted(plan: Plan, state: Execution, fact: events.SlotGranted) -> Sequence[Fact]:
    """Begins the step run that has its slot, or resumes the command of a task; an execution continues as from a
    halt.
    """
    if fact.slot_id and not (fact.slot_id in state.slots and state.slots[fact.slot_id].partition):
        return _wait_answered(plan, state, fact)
    run = state.runs.get(fact.step_run_id)
    return () if run is None or state.ending else begin(plan, state, run)


def _timer_fired(plan: Plan, state: Execution, fact: events.TimerFired) -> Sequence[Fact]:
    if state.ending:
        return ()
    if fact.purpose == "wait":
        suspended = state.suspensions.get(fact.subject)
        return () if suspended is None else resume_or_wait(plan, state, suspended)
    if fact.purpose == "execution":
        text = f"the execution exceeded executor.spec.timeout_s ({plan.timeout_s:g} s)"
        return (events.ExecutionFailing(ErrorInfo("timeout", text)),)
    if fact.purpose == "compensation":
        return _undoing_over(state)
    if fact.purpose == "admission":
        return _admission_over(plan, state, fact.subject)
    if fact.purpose == "next":
        return (events.NextTimedOut(fact.subject),) if fact.subject in state.resting else ()
    if fact.purpose == "deadline":
        return _deadline_over(plan, state, fact.subject)
    run = state.runs.get(fact.subject)
    if run is None or run.ended:
        return ()
    template = plan.steps[run.step].timeout_s
    assert template is not None
    text = f"step {run.step} exceeded lifecycle.timeout_s ({_timeout_s(plan, template, state, run):g} s)"
    return _fail(state, run.step_run_id, ErrorInfo("timeout", text))


def _undoing_over(state: Execution) -> Sequence[Fact]:
    """Stops the compensations after their timeout."""
    facts: list[Fact] = [  # a compensation takes no second cancel
        events.ChildOrdered(child_id, "cancel", TOOK_TOO_LONG, now=True) for child_id in state.children
    ]
    for step_run_id in state.runs:
        facts += _fail(state, step_run_id, ErrorInfo("timeout", TOOK_TOO_LONG))
    return facts


def _admission_over(plan: Plan, state: Execution, token_id: str) -> Sequence[Fact]:
    waiting = state.tokens.get(token_id)
    policy = plan.steps[waiting.token.step].admit if waiting is not None else None
    wait = policy.wait if policy is not None else None
    if waiting is None or wait is None:
        return ()
    text = f"step {waiting.token.step} did not admit its token within admit.wait.timeout_s ({wait.timeout_s:g} s)"
    if wait.on_timeout == "discard":
        return (events.TokenDiscarded(token_id, text),)
    return (claim(state, token_id, refused=ErrorInfo("admission_timeout", text)),)


def _deadline_over(plan: Plan, state: Execution, token_id: str) -> Sequence[Fact]:
    waiting = state.tokens.get(token_id)
    step_run_id = step_run_of(state.execution_id, token_id)
    run = state.runs.get(step_run_id)
    step = waiting.token.step if waiting is not None else run.step if run is not None else ""
    if not step or (run is not None and run.ended):
        return ()
    text = f"step {step} was not done within lifecycle.deadline_s ({plan.steps[step].deadline_s:g} s)"
    if waiting is not None:
        return (claim(state, token_id, refused=ErrorInfo("timeout", text)),)
    return _fail(state, step_run_id, ErrorInfo("timeout", text))


def _fail(state: Execution, step_run_id: str, error: ErrorInfo) -> Sequence[Fact]:
    cancelled = [
        events.StepCancelled(step_run_id, assignment.command_id, error.message)
        for assignment in state.commands
        if assignment.step_run_id == step_run_id
    ]
    return (*cancelled, events.StepFailed(step_run_id, error))


RULES: Final[Rules] = {
    events.StepSuspended: _on_step_suspended,
    events.SignalReceived: _wait_answered,
    events.RetryNowRequested: _retries_begin,
    events.ChildFinished: _wait_answered,
    events.SlotGranted: _slot_granted,
    events.TimerFired: _timer_fired,
}
