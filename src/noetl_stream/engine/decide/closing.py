"""Decisions at the end of an execution: compensations and ``finally`` run before it ends (LANGUAGE §9 *Undoing*)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.decide import Rules
from noetl_stream.engine.evolve.closing import compensations_of
from noetl_stream.engine.state import Compensable, Execution, due_ms
from noetl_stream.model import events
from noetl_stream.model.events import Fact, Token, TokenEnqueued
from noetl_stream.model.ids import derive, timer_of, undoing_of
from noetl_stream.model.outcome import NOT_UNDONE, ErrorInfo, Outcome
from noetl_stream.model.status import EndStatus
from noetl_stream.playbook.plan import CompensationPlan, Plan, UndoneEnd, compensation_of

TOOK_TOO_LONG: Final = "undoing took longer than executor.spec.policy.compensation.timeout_s"


def end(plan: Plan, state: Execution, status: EndStatus, outcome: Outcome) -> Sequence[Fact]:
    """Ends the execution, or begins its compensations and ``finally``."""
    closing = state.undoing.closing
    if closing is not None:
        return (finished(state, closing.status, closing.outcome),)
    if plan.compensation is None and plan.finally_step is None:
        return (finished(state, status, outcome),)
    undoes = will_undo(plan, state, status, outcome.error)
    never_began = state.status == "pending" or state.is_queued
    if never_began or state.undoing.at_once or not (undoes or plan.finally_step):
        return (finished(state, status, outcome),)
    return close(plan, state, events.ExecutionClosing(status, outcome, undoes))


def close(plan: Plan, state: Execution, closing: events.ExecutionClosing) -> Sequence[Fact]:
    """Begins the compensations, or else ``finally``."""
    if not closing.undoes or plan.compensation is None:
        return (closing,)
    due = due_ms(state.at_ms, plan.compensation.timeout_s)
    return (closing, events.TimerSet(timer_of(state.execution_id, "compensation"), "compensation", due))


def will_undo(plan: Plan, state: Execution, status: EndStatus, error: ErrorInfo | None) -> bool:
    """Whether an execution with this end undoes its work, and has work to undo."""
    if plan.compensation is None or state.undoing.at_once or not _is_undone_at(plan.compensation, status, error):
        return False
    begun = any(run.started_ms and plan.undoes.get(run.step) for run in state.runs.values())
    return bool(state.compensable or state.children or begun)


def _is_undone_at(compensation: CompensationPlan, status: EndStatus, error: ErrorInfo | None) -> bool:
    if status == "completed":
        return False
    ended: UndoneEnd = "timeout" if status == "failed" and error is not None and error.kind == "timeout" else status
    return ended in compensation.on


def go_on(plan: Plan, state: Execution) -> Sequence[Fact]:
    """The next step run to undo, the step of ``finally``, or the end of a closing execution in which nothing runs."""
    closing = state.closing
    assert closing is not None
    if closing.undoes and not closing.timed_out and not closing.finally_begun:
        if state.children:
            return ()
        for step_run_id, one in reversed(state.compensable.items()):
            if facts := _undo(plan, state, step_run_id, one):
                return facts
    if plan.finally_step is not None and not closing.finally_begun and not _only_undoes(state):
        return (TokenEnqueued(Token(derive(state.execution_id, "finally"), plan.finally_step, "finally")),)
    return (finished(state, closing.status, closing.outcome),)


def _undo(plan: Plan, state: Execution, step_run_id: str, one: Compensable) -> Sequence[Fact]:
    if one.undone or one.begun or one.reason:
        return ()
    if plan.undoes.get(one.step):
        token_id, step = derive(state.execution_id, "compensation", step_run_id), compensation_of(one.step)
        return (TokenEnqueued(Token(token_id, step, "compensation", one.args, one.step, step_run_id)),)
    if one.called:
        call = one.called[-1]
        return (events.ChildRequested(step_run_id, "", undoing_of(call.execution_id), call),)
    return ()


def _only_undoes(state: Execution) -> bool:
    """Whether the execution only undoes another one, which has already run ``finally``."""
    return state.closing is not None and state.closing.undoes and state.closing.status == "completed"


def finished(state: Execution, status: EndStatus, outcome: Outcome, why: str = "") -> Fact:
    """The end of the execution, with its discarded tokens, tolerated failures, warnings and compensations.

    Args:
        why: The reason why nothing is undone, although something could be.
    """
    tolerated, warnings = list(state.tolerated.values()), list(state.warnings.values())
    closing = state.undoing.closing
    if closing is None and not why and not state.undoing.at_once:
        return events.ExecutionFinished(status, outcome, state.discarded, tolerated, warnings)
    listed: Sequence[events.Compensation] = ()
    if closing is None or closing.undoes or why or state.undoing.at_once:
        listed = compensations_of(state, why or _why_not(state))
    if listed and _only_undoes(state) and (left := [one for one in listed if not one.undone]):
        status = "failed"
        names = ", ".join(dict.fromkeys(one.step for one in left))
        outcome = Outcome("error", error=ErrorInfo(NOT_UNDONE, f"not undone: {names}; {left[0].reason}"))
    return events.ExecutionFinished(status, outcome, state.discarded, tolerated, warnings, list(listed))


def _why_not(state: Execution) -> str:
    if state.closing is not None and state.closing.timed_out:
        return TOOK_TOO_LONG
    if state.cancelling:
        return f"it was cancelled at once: {state.cancelling}"
    return f"the execution failed: {state.failing.message}" if state.failing is not None else "it was not reached"


def _on_finished(plan: Plan, state: Execution, fact: events.ExecutionFinished) -> Sequence[Fact]:
    return (events.PlaybookProcessed(fact.status),)


RULES: Final[Rules] = {events.ExecutionFinished: _on_finished}
