"""``evolve``: the state after a fact. Total and guarded (DESIGN §3).

A late, repeated or stale fact hands back the very same value, and by that alone has no consequences. Worker facts go
through :mod:`noetl_stream.engine.evolve_reported`; everything here is by the server or a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from noetl_stream.engine import evolve_waits as waits
from noetl_stream.engine.asked import patched
from noetl_stream.engine.binding import standing
from noetl_stream.engine.endings import drop_assignment, end_step, with_ctx, with_run, without
from noetl_stream.engine.evolve_reported import evolve_reported
from noetl_stream.engine.ids import timer_of
from noetl_stream.engine.loop_fold import end_iteration, loop_at, loop_result, with_loop
from noetl_stream.engine.state import NOT_AT_HAND, Assignment, Execution, Loop, Occurrence, StepRun, WaitingToken
from noetl_stream.model import events
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.reference import Payload

replace = msgspec.structs.replace

RESOLVED_KEPT: Final = 4
"""How many values of references a state remembers, beside those that one decision reads together."""


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
    before = state if occurrence.at_ms <= state.at_ms else replace(state, at_ms=occurrence.at_ms)
    if occurrence.run is not None:
        after = evolve_reported(before, occurrence)
    else:
        rule = _FACTS.get(type(occurrence.fact))
        after = rule(before, occurrence.fact) if rule is not None else _handed_in(before, occurrence)
    return state if after is before else replace(after, position=state.position + 1)


def _handed_in(state: Execution, occurrence: Occurrence) -> Execution:
    """What a client asks, once; the value that the shell hands in with a reference."""
    fact = occurrence.fact
    if isinstance(fact, events.ReferenceResolved):
        return _resolved(state, fact, occurrence.value)
    rule = _ASKED.get(type(fact))
    if rule is None or not isinstance(fact, events.Asked) or fact.request_id in state.asked:
        return state
    after = rule(state, fact)
    return state if after is state else replace(after, asked=state.asked | {fact.request_id})


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
        trace_id=fact.trace_id,
        at_ms=occurrence.at_ms,
        parent=fact.parent,
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
        limits=fact.limits,
    )


def _enqueued(state: Execution, fact: events.TokenEnqueued) -> Execution:
    token = fact.token
    if token.token_id in state.tokens or any(joined not in state.tokens for joined in fact.joined):
        return state
    if fact.joined:
        waves = {**state.waves, token.step: token.waves[token.step]}
        timers = without(state.timers, *(timer_of(joined, "deadline") for joined in fact.joined))
        state = replace(state, tokens=without(state.tokens, *fact.joined), waves=waves, timers=timers)
    return replace(state, tokens={**state.tokens, token.token_id: WaitingToken(token)})


def _joined(state: Execution, fact: events.TokenJoined) -> Execution:
    waiting = state.tokens.get(fact.token_id)
    if waiting is None or waiting.joining:
        return state
    return replace(state, tokens={**state.tokens, fact.token_id: replace(waiting, joining=True)})


def _held(state: Execution, fact: events.TokenHeld) -> Execution:
    waiting = state.tokens.get(fact.token_id)
    if waiting is None or waiting.held:
        return state
    held = WaitingToken(waiting.token, True, tuple(fact.guards), fact.keeps_alive)
    return replace(state, tokens={**state.tokens, fact.token_id: held})


def _claimed(state: Execution, fact: events.TokenClaimed) -> Execution:
    waiting = state.tokens.get(fact.token_id)
    if waiting is None or state.ending:
        return state
    token = waiting.token
    run = StepRun(
        fact.step_run_id,
        token.step,
        token,
        state.ctx,
        state.steps,
        refused=fact.refused,
        claimed_at=state.position + 1,
    )
    return replace(
        _consume(state, fact.token_id, keep_deadline=True),
        runs={**state.runs, fact.step_run_id: run},
        step_runs=state.step_runs + 1,
    )


def _discarded(state: Execution, fact: events.TokenDiscarded) -> Execution:
    if fact.token_id not in state.tokens:
        return state
    return replace(_consume(state, fact.token_id), discarded=state.discarded + 1)


def _absorbed(state: Execution, fact: events.TokenAbsorbed) -> Execution:
    return _consume(state, fact.token_id) if fact.token_id in state.tokens else state


def _consume(state: Execution, token_id: str, *, keep_deadline: bool = False) -> Execution:
    tokens, timers = without(state.tokens, token_id), state.timers
    if not timers:
        return replace(state, tokens=tokens)
    over = ("admission",) if keep_deadline else ("admission", "deadline")
    return replace(state, tokens=tokens, timers=without(timers, *(timer_of(token_id, purpose) for purpose in over)))


def _scheduled(state: Execution, fact: events.StepScheduled) -> Execution:
    present = state.assignments.get(fact.command_id)
    if present is not None:
        if fact.issue <= present.issue:
            return state
        assignment = replace(present, issue=fact.issue)
        return replace(state, assignments={**state.assignments, fact.command_id: assignment})
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended or state.ending:
        return state
    if fact.path:
        level = loop_at(run.loop, fact.path[:-1])
        if level is None or fact.path[-1] < level.next_index:
            return state
        level = replace(level, next_index=fact.path[-1] + 1)
        if fact.items is not None:
            inner = Loop(fact.items, len(fact.items), True, fact.max_in_flight)
            level = replace(level, inner={**level.inner, fact.path[-1]: inner})
        state = with_run(state, replace(run, loop=with_loop(run.loop, fact.path[:-1], level)))
    elif fact.items is not None:
        state = with_run(state, replace(run, loop=Loop(fact.items, len(fact.items), True, fact.max_in_flight)))
    assignment = Assignment(fact.command_id, fact.step_run_id, fact.path, fact.issue)
    return replace(state, assignments={**state.assignments, fact.command_id: assignment})


def _cancelled(state: Execution, fact: events.StepCancelled) -> Execution:
    assignment = state.assignments.get(fact.command_id)
    if assignment is None:
        suspended = state.suspensions.get(fact.command_id)
        return state if suspended is None else drop_assignment(state, suspended)
    if assignment.cancelling:
        return state
    if assignment.run is not None:
        cancelling = replace(assignment, cancelling=fact.reason)
        return replace(state, assignments={**state.assignments, fact.command_id: cancelling})
    return drop_assignment(state, assignment)


def _loop_started(state: Execution, fact: events.LoopStarted) -> Execution:
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended or loop_at(run.loop, fact.path) is not None:
        return state
    loop = Loop(fact.items, fact.count, False, fact.max_in_flight)
    if fact.path:
        around = loop_at(run.loop, fact.path[:-1])
        if around is None or fact.path[-1] < around.next_index:
            return state
        around = replace(around, next_index=fact.path[-1] + 1)
        run = replace(run, loop=with_loop(run.loop, fact.path[:-1], around))
    return with_run(state, replace(run, loop=with_loop(run.loop, fact.path, loop)))


def _loop_paged(state: Execution, fact: events.LoopPaged) -> Execution:
    run = state.runs.get(fact.step_run_id)
    loop = loop_at(run.loop, fact.path) if run is not None else None
    if run is None or loop is None or len(loop.items) + len(fact.items) > loop.count:
        return state
    paged = replace(loop, items=loop.items + fact.items)
    return with_run(state, replace(run, loop=with_loop(run.loop, fact.path, paged)))


def _loop_done(state: Execution, fact: events.LoopDone) -> Execution:
    """The end of an inner loop is that of the iteration around it; the outermost one's is the step's."""
    if not fact.path:
        return end_step(state, fact)
    run = state.runs.get(fact.step_run_id)
    loop = loop_at(run.loop, fact.path) if run is not None else None
    if run is None or loop is None:
        return state
    result = loop_result(loop, state.execution_id, run.step_run_id)
    return _end_around(state, run, fact.path, "ok", result, None)


def _iteration_failed(state: Execution, fact: events.LoopIterationFailed) -> Execution:
    run = state.runs.get(fact.step_run_id)
    around = loop_at(run.loop, fact.path[:-1]) if run is not None else None
    if run is None or run.ended or around is None or around.has_ended(fact.path[-1]):
        return state
    return _end_around(state, run, fact.path, "failed", Payload(), replace(fact.error, index=fact.path[-1]))


def _end_around(
    state: Execution, run: StepRun, path: events.Path, ending: Any, result: Payload, error: ErrorInfo | None
) -> Execution:
    around = loop_at(run.loop, path[:-1])
    assert around is not None
    around = replace(around, next_index=max(around.next_index, path[-1] + 1))
    around = end_iteration(around, path[-1], ending, result, state.limits.max_inline_bytes, error)
    return with_run(state, replace(run, loop=with_loop(run.loop, path[:-1], around)))


def _failing(state: Execution, fact: events.ExecutionFailing) -> Execution:
    return state if state.ending else replace(state, failing=fact.error)


def _patched(state: Execution, fact: events.CtxPatched) -> Execution:
    if state.ending:
        return state
    return with_ctx(state, patched(state.ctx, fact), fact.patch, "")


def _cancel_requested(state: Execution, fact: events.CancelRequested) -> Execution:
    return state if state.ending else replace(state, cancelling=fact.reason or "asked to", paused_at_ms=0)


def _asked(state: Execution, fact: events.Asked) -> Execution:
    """Only what follows from it changes more of the state than that it was asked."""
    return state if state.ending else replace(state)


def _paused(state: Execution, fact: events.ExecutionPaused) -> Execution:
    return state if state.paused_at_ms or state.ending else replace(state, paused_at_ms=max(state.at_ms, 1))


def _child_ordered(state: Execution, fact: events.ChildOrdered) -> Execution:
    if fact.execution_id not in state.children:
        return state
    if fact.order != "cancel":
        return replace(state)
    return replace(state, children=without(state.children, fact.execution_id))


def _overwrote(state: Execution, fact: events.CtxOverwrote) -> Execution:
    return state if state.overwrote is None else replace(state, overwrote=None)


def _awaited(state: Execution, fact: events.ReferenceAwaited) -> Execution:
    if state.deciding is not None or state.ending:
        return state
    resolved = state.resolved
    if state.position != state.resolved_at:  # no decision hangs on them any more
        resolved = dict(list(resolved.items())[-RESOLVED_KEPT:])
    return replace(state, deciding=fact.reference, resolved=resolved)


def _resolved(state: Execution, fact: events.ReferenceResolved, value: Any) -> Execution:
    if state.deciding is None or state.deciding.key != fact.key:
        return state
    resolved = state.resolved if value is NOT_AT_HAND else {**state.resolved, fact.key: value}
    return replace(state, deciding=None, resolved=resolved, resolved_at=state.position + 1)


def _lost(state: Execution, fact: events.ReferenceLost) -> Execution:
    if state.deciding is None or state.deciding.key != fact.key:
        return state
    return replace(state, deciding=None, broken=ErrorInfo("result_lost", fact.reason))


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
        state,
        status=fact.status,
        outcome=fact.outcome,
        tokens={},
        runs={},
        assignments={},
        suspensions={},
        timers={},
        children={},
        paused_at_ms=0,
        deciding=None,
        resolved={},
        discarded=fact.discarded,
    )


def _processed(state: Execution, fact: events.PlaybookProcessed) -> Execution:
    return state if state.processed or not state.ended else replace(state, processed=True)


_FACTS: Final[dict[type, Callable[[Execution, Any], Execution]]] = {
    events.ExecutionEvaluated: _evaluated,
    events.ExecutionStarted: _started,
    events.ExecutionPaused: _paused,
    events.ExecutionResumed: waits.went_on,
    events.TokenEnqueued: _enqueued,
    events.TokenJoined: _joined,
    events.TokenAbsorbed: _absorbed,
    events.TokenHeld: _held,
    events.TokenClaimed: _claimed,
    events.TokenDiscarded: _discarded,
    events.StepScheduled: _scheduled,
    events.StepCancelled: _cancelled,
    events.ExecutionFailing: _failing,
    events.LoopStarted: _loop_started,
    events.CtxOverwrote: _overwrote,
    events.LoopPaged: _loop_paged,
    events.LoopDone: _loop_done,
    events.LoopIterationFailed: _iteration_failed,
    events.StepResumed: waits.resumed,
    events.TimerSet: waits.timer_set,
    events.TimerFired: waits.timer_fired,
    events.ChildRequested: waits.child_requested,
    events.ChildOrdered: _child_ordered,
    events.ChildFinished: waits.child_finished,
    events.ReferenceAwaited: _awaited,
    events.ReferenceLost: _lost,
    events.StepDone: end_step,
    events.StepFailed: end_step,
    events.NextEvaluated: _next_evaluated,
    events.ExecutionFinished: _finished,
    events.PlaybookProcessed: _processed,
}
_ASKED: Final[dict[type, Callable[[Execution, Any], Execution]]] = {
    events.CtxPatched: _patched,
    events.TokenInjected: _asked,
    events.SignalReceived: waits.signal_received,
    events.CancelRequested: _cancel_requested,
    events.PauseRequested: _asked,
    events.ResumeRequested: _asked,
}
