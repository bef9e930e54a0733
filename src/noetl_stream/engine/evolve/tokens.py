"""Changes of tokens, which arrive, wait and are consumed, and of step runs, which are routed or rest at ``next``."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules, with_run, with_turn, without
from noetl_stream.engine.evolve.closing import note_begin, seen_by_compensation
from noetl_stream.engine.state import Assignment, Execution, RestingBranch, StepRun, WaitingToken
from noetl_stream.model import events
from noetl_stream.model.events import Token
from noetl_stream.model.events.composite import TokenPassed
from noetl_stream.model.ids import command_of, derive, step_run_of, timer_of
from noetl_stream.model.outcome import Payload


def on_enqueued(state: Execution, fact: events.TokenEnqueued) -> Execution:
    token = fact.token
    if token.token_id in state.tokens or any(joined not in state.tokens for joined in fact.joined):
        return state
    if fact.joined:
        waves = {**state.waves, token.step: token.waves[token.step]}
        timers = without(state.timers, *(timer_of(joined, "deadline") for joined in fact.joined))
        state = replace(state, tokens=without(state.tokens, *fact.joined), waves=waves, timers=timers)
    if state.undoing.closing is not None:
        state = note_begin(state, token)
    return replace(state, tokens={**state.tokens, token.token_id: WaitingToken(token, state.position + 1)})


def on_joined(state: Execution, fact: events.TokenJoined) -> Execution:
    waiting = state.tokens.get(fact.token_id)
    if waiting is None or waiting.joining:
        return state
    return replace(state, tokens={**state.tokens, fact.token_id: replace(waiting, joining=True)})


def on_held(state: Execution, fact: events.TokenHeld) -> Execution:
    waiting = state.tokens.get(fact.token_id)
    if waiting is None or waiting.held:
        return state
    held = replace(waiting, held=True, guards=tuple(fact.guards), keeps_alive=fact.keeps_alive)
    return replace(state, tokens={**state.tokens, fact.token_id: held})


def on_claimed(state: Execution, fact: events.TokenClaimed) -> Execution:
    waiting = state.tokens.get(fact.token_id)
    if waiting is None or state.ending:
        return state
    token = waiting.token
    at, refused = state.position + 1, fact.refused
    run = StepRun(fact.step_run_id, token.step, token, state.ctx, state.steps, refused=refused, claimed_at=at)
    if fact.metadata:
        run = replace(run, metadata=fact.metadata)
    if token.cause == "compensation":
        run = seen_by_compensation(state, run)
    if token.partition:
        state = with_turn(state, run)
    return replace(
        _consume(state, fact.token_id, keep_deadline=True),
        runs={**state.runs, fact.step_run_id: run},
        step_runs=state.step_runs + 1,
    )


def on_discarded(state: Execution, fact: events.TokenDiscarded) -> Execution:
    if fact.token_id not in state.tokens:
        return state
    return replace(_consume(state, fact.token_id), discarded=state.discarded + 1)


def on_absorbed(state: Execution, fact: events.TokenAbsorbed) -> Execution:
    return _consume(state, fact.token_id) if fact.token_id in state.tokens else state


def on_next_evaluated(state: Execution, fact: events.NextEvaluated) -> Execution:
    run = state.runs.get(fact.step_run_id)
    if run is None:
        return state
    if fact.step_run_id in state.resting:
        timers = without(state.timers, timer_of(fact.step_run_id, "next"))
        state = replace(state, resting=without(state.resting, fact.step_run_id), timers=timers)
    if fact.keys:
        for arc in filter(fact.keys.__contains__, fact.fired):
            state = _note_sent(state, run.step, arc, fact.keys[arc])
    ends = state.ends
    if not fact.fired and fact.event in ("step.done", "loop.done"):
        value = state.steps.get(run.step)
        ends = {**ends, run.step: value.outcome.result if value else Payload()}
    if fact.tolerated and run.token.cause != "compensation":  # failed compensations are reported separately
        so_far = state.tolerated.get(run.step) or events.ToleratedFailures(run.step, 0)
        state = replace(state, tolerated={**state.tolerated, run.step: replace(so_far, runs=so_far.runs + 1)})
    return replace(state, runs=without(state.runs, fact.step_run_id), ends=ends)


def has_sent(state: Execution, step: str, arc: int, key: str) -> bool:
    """Whether the arc of the step has sent a token with this key before."""
    digest = derive(step, "arc", arc, key)
    return digest in state.sent.get(digest[:2], ())


def _note_sent(state: Execution, step: str, arc: int, key: str) -> Execution:
    """The state after the arc has sent a token with this key. Digests are in 256 groups, so that copies stay small."""
    digest = derive(step, "arc", arc, key)
    group = state.sent.get(digest[:2], ())
    return replace(state, sent={**state.sent, digest[:2]: (*group, digest)})


def on_passed(state: Execution, fact: TokenPassed) -> Execution:
    """Applies the facts that make up a passed token, one after the other."""
    if fact.step_run_id not in state.runs or state.ending:
        return state
    return enter_step(state, fact.token, without(state.runs, fact.step_run_id), claimed_at=state.position + 3)


def enter_step(state: Execution, token: Token, others: dict[str, StepRun], claimed_at: int) -> Execution:
    """The state after a new token was claimed at this position and the command of its step run was scheduled.

    Args:
        others: The other step runs.
    """
    step_run_id = step_run_of(state.execution_id, token.token_id)
    run = StepRun(step_run_id, token.step, token, state.ctx, state.steps, claimed_at=claimed_at)
    command_id = command_of(step_run_id)
    return replace(
        state,
        runs={**others, step_run_id: run},
        assignments={**state.assignments, command_id: Assignment(command_id, step_run_id)},
        step_runs=state.step_runs + 1,
    )


def on_next_resting(state: Execution, fact: events.NextResting) -> Execution:
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended != fact.event or fact.step_run_id in state.resting:
        return state
    branch = RestingBranch(state.position + 1, tuple(fact.guards))
    return replace(state, resting={**state.resting, fact.step_run_id: branch})


def on_next_timed_out(state: Execution, fact: events.NextTimedOut) -> Execution:
    run = state.runs.get(fact.step_run_id)
    if run is None or fact.step_run_id not in state.resting:
        return state
    resting, chosen = (without(each, fact.step_run_id) for each in (state.resting, state.chosen))
    return with_run(replace(state, resting=resting, chosen=chosen), replace(run, ended="next.timed_out"))


def _consume(state: Execution, token_id: str, *, keep_deadline: bool = False) -> Execution:
    tokens, timers = without(state.tokens, token_id), state.timers
    if not timers:
        return replace(state, tokens=tokens)
    over = ("admission",) if keep_deadline else ("admission", "deadline")
    return replace(state, tokens=tokens, timers=without(timers, *(timer_of(token_id, purpose) for purpose in over)))


RULES: Final[Rules] = {
    events.TokenEnqueued: on_enqueued,
    events.TokenJoined: on_joined,
    events.TokenAbsorbed: on_absorbed,
    events.TokenHeld: on_held,
    events.TokenClaimed: on_claimed,
    events.TokenDiscarded: on_discarded,
    events.NextEvaluated: on_next_evaluated,
    TokenPassed: on_passed,
    events.NextResting: on_next_resting,
    events.NextTimedOut: on_next_timed_out,
}
