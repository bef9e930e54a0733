"""Straight paths: the decisions after the plainest inputs, without asking after each fact what else might follow.

An execution starts and its first token is admitted at once; its only token is passed on, or reaches the end. The
general path of :mod:`.advance` leads to the same decisions and the same state (tested).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.decide.quiescence import finish
from noetl_stream.engine.evolve.dispatch import evolve_decision
from noetl_stream.engine.evolve.tokens import enter_step
from noetl_stream.engine.state import Execution
from noetl_stream.model.events import (
    ExecutionFinished,
    ExecutionStarted,
    Fact,
    NextEvaluated,
    PlaybookProcessed,
    StepScheduled,
    TokenClaimed,
    TokenEnqueued,
)
from noetl_stream.model.events.composite import TokenPassed
from noetl_stream.model.ids import command_of, step_run_of
from noetl_stream.playbook.plan import Plan

Settled = tuple[Execution, Sequence[Fact]]
"""A state from which nothing more follows, and the decisions on the way there."""

_MOST_DECISIONS: Final = 5


def decide_straight(plan: Plan, state: Execution, follows: Sequence[Fact]) -> Settled | None:
    """Decides the straight path from ``follows``, the first decisions in ``state``; ``None`` if only the general path
    can.
    """
    if state.tokens or state.resting or state.suspensions or state.children or state.slots:
        return None
    if len(follows) == 3 and type(follows[1]) is ExecutionStarted:
        return _start(plan, state, *follows)
    if len(follows) != 1 or len(state.runs) != 1 or state.limits.max_decisions_per_fact <= _MOST_DECISIONS:
        return None
    (fact,) = follows
    if type(fact) is TokenPassed:
        is_watched = plan.steps[fact.step].timeout_s is not None
        return None if is_watched else (evolve_decision(state, fact), follows)
    return _end(plan, state, fact) if type(fact) is NextEvaluated else None


def _start(plan: Plan, state: Execution, evaluated: Fact, started: Fact, enqueued: Fact) -> Settled | None:
    """Starts the execution: the first token is admitted at once, and its step is owed to a worker."""
    if type(enqueued) is not TokenEnqueued or enqueued.token.cause != "start":
        return None
    token, limits = enqueued.token, plan.limits
    is_open = plan.steps[token.step].admits_at_once and limits.max_step_runs > 0
    if not is_open or limits.max_decisions_per_fact <= _MOST_DECISIONS:
        return None
    state = evolve_decision(evolve_decision(state, evaluated), started)
    step_run_id = step_run_of(state.execution_id, token.token_id)
    claimed = TokenClaimed(token.token_id, step_run_id)
    scheduled = StepScheduled(step_run_id, command_of(step_run_id))
    after = enter_step(state, token, {}, claimed_at=state.position + 2)
    return replace(after, position=state.position + 3), (evaluated, started, enqueued, claimed, scheduled)


def _end(plan: Plan, state: Execution, evaluated: NextEvaluated) -> Settled | None:
    """Ends the execution: its only token has reached the end of a playbook whose result needs no template."""
    if evaluated.fired or plan.result is not None:
        return None
    state = evolve_decision(state, evaluated)
    finished = finish(plan, state)
    assert type(finished) is ExecutionFinished
    processed = PlaybookProcessed(finished.status)
    return evolve_decision(evolve_decision(state, finished), processed), (evaluated, finished, processed)
