"""What a state owes whatever fact led to it: the same decisions as those from facts, found again after a halt.

While an execution is paused, or looks into a reference, facts are folded and nothing is decided (PROTOCOL §2). What has
not been decided stands in the state: tokens nobody has looked at, step runs not begun or not routed, suspensions.
"""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.engine.decide.admission import admit
from noetl_stream.engine.decide.joins import arrive, fire_if_enough, refusal_of
from noetl_stream.engine.decide.loops import open_loop
from noetl_stream.engine.decide.routing import route
from noetl_stream.engine.decide.suspension import follow
from noetl_stream.engine.decide.timers import due_ms
from noetl_stream.engine.ids import command_of, step_run_of, timer_of
from noetl_stream.engine.state import Execution, StepRun, WaitingToken
from noetl_stream.model.events import (
    ExecutionFailing,
    Fact,
    StepDone,
    StepFailed,
    StepScheduled,
    TimerSet,
    Token,
    TokenClaimed,
)
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import Plan


def pending_decisions(plan: Plan, state: Execution) -> Sequence[Fact]:
    """The first decisions this state owes; nothing if all have been taken."""
    if state.ending or state.ended or state.halted:
        return ()
    if facts := on_ctx(state):
        return facts
    begun = {assignment.step_run_id for assignment in (*state.assignments.values(), *state.suspensions.values())}
    for run in state.runs.values():
        if run.ended:
            return route(plan, state, run)
        if run.loop is None and run.step_run_id not in begun:
            return begin(plan, state, run)
    for waiting in state.tokens.values():
        if not (waiting.held or waiting.joining) and (facts := enter(plan, state, waiting.token)):
            return facts
    joined = {waiting.token.step for waiting in state.tokens.values() if waiting.joining}
    for step in joined:
        if facts := fire_if_enough(plan, state, step):
            return facts
    for suspended in state.suspensions.values():
        if facts := follow(state, suspended):
            return facts
    return ()


def enter(plan: Plan, state: Execution, token: Token) -> Sequence[Fact]:
    """A token has come to its step: it joins others there, or asks to be let in; its deadline runs from here."""
    step = plan.steps[token.step]
    facts: Sequence[Fact]
    if step.join is not None and not _is_past_the_join(token):
        facts = (arrive(plan, state, token),)
    else:
        waiting = state.tokens.get(token.token_id)
        facts = _ask_to_enter(plan, state, waiting) if waiting is not None else ()
    timer_id = timer_of(token.token_id, "deadline")
    if step.deadline_s is None or timer_id in state.timers:
        return facts
    due = due_ms(state.at_ms, step.deadline_s)
    return (TimerSet(timer_id, "deadline", due, token.token_id), *facts)


def _ask_to_enter(plan: Plan, state: Execution, waiting: WaitingToken) -> Sequence[Fact]:
    token = waiting.token
    refused = refusal_of(plan, state, token) if _is_past_the_join(token) else None
    if refused is None:
        return admit(plan, state, waiting)
    return (TokenClaimed(token.token_id, step_run_of(state.execution_id, token.token_id), refused=refused),)


def _is_past_the_join(token: Token) -> bool:
    """What a join has merged; and the token of a rerun, which stands where a step run has been."""
    return token.cause in ("join", "rerun")


def begin(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """A step run has its token: its loop opens, its command is ordered, or it is done (a step without tool)."""
    if run.refused is not None:
        return (StepFailed(run.step_run_id, run.refused),)
    step = plan.steps[run.step]
    if step.loop is not None:
        return open_loop(plan, state, run, step.loop)
    if not step.tasks:
        return (StepDone(run.step_run_id),)
    return (StepScheduled(run.step_run_id, command_of(run.step_run_id)),)


def watch(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """The timer of ``lifecycle.timeout_s``, from the first start of the step run on."""
    timeout_s = plan.steps[run.step].timeout_s
    timer_id = timer_of(run.step_run_id, "step") if timeout_s is not None and run.started_ms else ""
    if timeout_s is None or not timer_id or timer_id in state.timers:
        return ()
    return (TimerSet(timer_id, "step", due_ms(run.started_ms, timeout_s), run.step_run_id),)


def on_ctx(state: Execution) -> Sequence[Fact]:
    """What a change of ``ctx`` leads to: a word on keys it overwrote; the end, if it became too large or went wrong."""
    if state.ending:
        return ()
    if state.broken is not None and not state.halted:
        return (ExecutionFailing(state.broken),)
    if state.ctx_bytes > state.limits.max_ctx_bytes and not state.halted:
        text = f"ctx has {state.ctx_bytes} bytes; limits.max_ctx_bytes is {state.limits.max_ctx_bytes}"
        return (ExecutionFailing(ErrorInfo("limit_exceeded", text)),)
    return () if state.overwrote is None else (state.overwrote,)
