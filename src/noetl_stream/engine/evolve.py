"""``evolve``: the state after a fact. Total and guarded (DESIGN §3).

A late, repeated or stale fact hands back the very same value, and by that alone has no consequences. Worker facts go
through :mod:`noetl_stream.engine.evolve_reported`; everything here is by the server or a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from noetl_stream.engine.binding import standing
from noetl_stream.engine.endings import drop_assignment, end_step, without
from noetl_stream.engine.evolve_reported import evolve_reported
from noetl_stream.engine.state import Assignment, Execution, Loop, Occurrence, StepRun, WaitingToken
from noetl_stream.model import codec, events
from noetl_stream.model.reference import Payload

replace = msgspec.structs.replace


def evolve(state: Execution | None, occurrence: Occurrence, execution_id: str) -> Execution | None:
    """The state after ``occurrence``, one position on; the very same value if it changes nothing.

    Args:
        state: ``None`` before ``execution.requested``.
        execution_id: Whose state it is.
    """
    if state is None:
        return _begin(occurrence, execution_id)
    if state.ended and type(occurrence.fact) is not events.PlaybookProcessed:
        return state
    if occurrence.run is not None:
        after = evolve_reported(state, occurrence)
    else:
        rule = _SERVER_FACTS.get(type(occurrence.fact))
        after = state if rule is None else rule(state, occurrence.fact)
    return state if after is state else replace(after, position=state.position + 1)


def takes(state: Execution | None, occurrence: Occurrence) -> str:
    """Why ``evolve`` would or would not take a worker's event: a :data:`~noetl_stream.engine.binding.Standing`."""
    if state is None or state.ended or occurrence.run is None:
        return "unknown"
    claim = type(occurrence.fact) is events.StepClaimed
    return standing(state, occurrence.run, occurrence.number, claim=claim)


def _begin(occurrence: Occurrence, execution_id: str) -> Execution | None:
    fact = occurrence.fact
    if not isinstance(fact, events.ExecutionRequested):
        return None
    return Execution(
        execution_id,
        fact.request_id,
        fact.digest,
        path=fact.path,
        workload=fact.workload,
        ctx=fact.ctx,
        trace_id=fact.trace_id,
    )


def _evaluated(state: Execution, fact: events.ExecutionEvaluated) -> Execution:
    return state if state.evaluated else replace(state, evaluated=True, refused=fact.diagnostics)


def _started(state: Execution, fact: events.ExecutionStarted) -> Execution:
    if state.status != "pending":
        return state
    return replace(
        state,
        status="running",
        digest=fact.digest,
        path=fact.path,
        version=fact.version,
        workload=fact.workload,
        ctx=fact.ctx,
        ctx_bytes=len(codec.encode(fact.ctx)),
        limits=fact.limits,
    )


def _enqueued(state: Execution, fact: events.TokenEnqueued) -> Execution:
    token = fact.token
    if token.token_id in state.tokens:
        return state
    return replace(state, tokens={**state.tokens, token.token_id: WaitingToken(token)})


def _held(state: Execution, fact: events.TokenHeld) -> Execution:
    waiting = state.tokens.get(fact.token_id)
    if waiting is None or waiting.held:
        return state
    held = WaitingToken(waiting.token, True, tuple(fact.guards))
    return replace(state, tokens={**state.tokens, fact.token_id: held})


def _claimed(state: Execution, fact: events.TokenClaimed) -> Execution:
    waiting = state.tokens.get(fact.token_id)
    if waiting is None or state.failing is not None:
        return state
    token = waiting.token
    run = StepRun(fact.step_run_id, token.step, token, state.ctx, state.steps)
    return replace(
        state,
        tokens=without(state.tokens, fact.token_id),
        runs={**state.runs, fact.step_run_id: run},
        step_runs=state.step_runs + 1,
    )


def _discarded(state: Execution, fact: events.TokenDiscarded) -> Execution:
    if fact.token_id not in state.tokens:
        return state
    return replace(state, tokens=without(state.tokens, fact.token_id), discarded=state.discarded + 1)


def _scheduled(state: Execution, fact: events.StepScheduled) -> Execution:
    present = state.assignments.get(fact.command_id)
    if present is not None:
        if fact.issue <= present.issue:
            return state
        assignment = replace(present, issue=fact.issue)
        return replace(state, assignments={**state.assignments, fact.command_id: assignment})
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended or state.failing is not None:
        return state
    runs, loop = state.runs, run.loop
    if fact.path and loop is not None:
        if fact.path[0] < loop.next_index:
            return state
        runs = {**runs, fact.step_run_id: replace(run, loop=replace(loop, next_index=fact.path[0] + 1))}
    elif fact.items is not None:
        loop = Loop(fact.items, len(fact.items), True, fact.max_in_flight)
        runs = {**runs, fact.step_run_id: replace(run, loop=loop)}
    assignment = Assignment(fact.command_id, fact.step_run_id, fact.path, fact.issue)
    return replace(state, runs=runs, assignments={**state.assignments, fact.command_id: assignment})


def _cancelled(state: Execution, fact: events.StepCancelled) -> Execution:
    assignment = state.assignments.get(fact.command_id)
    if assignment is None or assignment.cancelling:
        return state
    if assignment.run is not None:
        cancelling = replace(assignment, cancelling=fact.reason)
        return replace(state, assignments={**state.assignments, fact.command_id: cancelling})
    return drop_assignment(state, assignment)


def _loop_started(state: Execution, fact: events.LoopStarted) -> Execution:
    run = state.runs.get(fact.step_run_id)
    if run is None or run.loop is not None:
        return state
    loop = Loop(fact.items, fact.count, False, fact.max_in_flight)
    return replace(state, runs={**state.runs, fact.step_run_id: replace(run, loop=loop)})


def _failing(state: Execution, fact: events.ExecutionFailing) -> Execution:
    return state if state.failing is not None else replace(state, failing=fact.error)


def _next_evaluated(state: Execution, fact: events.NextEvaluated) -> Execution:
    run = state.runs.get(fact.step_run_id)
    if run is None:
        return state
    ends = state.ends
    if not fact.fired and fact.event != "step.failed":
        value = state.steps.get(run.step)
        ends = {**ends, run.step: value.outcome.result if value else Payload()}
    return replace(state, runs=without(state.runs, fact.step_run_id), ends=ends)


def _finished(state: Execution, fact: events.ExecutionFinished) -> Execution:
    return replace(
        state, status=fact.status, outcome=fact.outcome, tokens={}, runs={}, assignments={}, discarded=fact.discarded
    )


def _processed(state: Execution, fact: events.PlaybookProcessed) -> Execution:
    return state if state.processed or not state.ended else replace(state, processed=True)


_SERVER_FACTS: Final[dict[type, Callable[[Execution, Any], Execution]]] = {
    events.ExecutionEvaluated: _evaluated,
    events.ExecutionStarted: _started,
    events.TokenEnqueued: _enqueued,
    events.TokenHeld: _held,
    events.TokenClaimed: _claimed,
    events.TokenDiscarded: _discarded,
    events.StepScheduled: _scheduled,
    events.StepCancelled: _cancelled,
    events.ExecutionFailing: _failing,
    events.LoopStarted: _loop_started,
    events.LoopDone: end_step,
    events.StepDone: end_step,
    events.StepFailed: end_step,
    events.NextEvaluated: _next_evaluated,
    events.ExecutionFinished: _finished,
    events.PlaybookProcessed: _processed,
}
