"""Tokens: they join, are admitted, and are consumed by a step run (LANGUAGE §4, §7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noetl_stream.engine.decide import NOTHING, Rules
from noetl_stream.engine.decide.admission import admit
from noetl_stream.engine.decide.joins import arrive, fire_if_enough, refusal_of
from noetl_stream.engine.decide.loops import open_loop
from noetl_stream.engine.state import Execution, StepRun, WaitingToken, due_ms
from noetl_stream.model import events
from noetl_stream.model.events import Fact, StepDone, StepFailed, StepScheduled, TimerSet, Token, TokenClaimed
from noetl_stream.model.ids import command_of, step_run_of, timer_of
from noetl_stream.playbook.plan import Plan


def enter(plan: Plan, state: Execution, token: Token) -> Sequence[Fact]:
    """Handles a token that has reached its step: it joins, or asks for admission; its deadline starts here."""
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
    """Whether a join has merged the token, or a rerun has put it where a step run was."""
    return token.cause in ("join", "rerun")


def begin(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """Begins a step run: its loop opens, its command is issued, or it is done (a step without tasks)."""
    if run.refused is not None:
        return (StepFailed(run.step_run_id, run.refused),)
    step = plan.steps[run.step]
    if step.loop is not None:
        return open_loop(plan, state, run, step.loop)
    if not step.tasks:
        return (StepDone(run.step_run_id),)
    return (StepScheduled(run.step_run_id, command_of(run.step_run_id)),)


def _enqueued(plan: Plan, state: Execution, fact: events.TokenEnqueued) -> Sequence[events.Fact]:
    if state.ending:
        return (events.TokenDiscarded(fact.token.token_id, "the execution is ending"),)
    beside = fire_if_enough(plan, state, fact.token.step) if fact.joined else NOTHING
    return (*enter(plan, state, fact.token), *beside)


def _joined(plan: Plan, state: Execution, fact: events.TokenJoined) -> Sequence[events.Fact]:
    waiting = state.tokens.get(fact.token_id)
    return NOTHING if waiting is None or state.ending else fire_if_enough(plan, state, waiting.token.step)


def _claimed(plan: Plan, state: Execution, fact: events.TokenClaimed) -> Sequence[events.Fact]:
    return begin(plan, state, state.runs[fact.step_run_id])


RULES: Final[Rules] = {
    events.TokenEnqueued: _enqueued,
    events.TokenJoined: _joined,
    events.TokenClaimed: _claimed,
}
