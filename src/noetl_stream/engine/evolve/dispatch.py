"""``evolve``: the state after a fact. Total and guarded (DESIGN §3).

A late, repeated or stale fact hands back the very same value, and by that alone has no consequences. Worker facts go
through :mod:`noetl_stream.engine.evolve.worker_facts`; everything here is by the server or a client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from noetl_stream.engine.decide.client_requests import patched
from noetl_stream.engine.evolve import loops as loops
from noetl_stream.engine.evolve import suspensions as waits
from noetl_stream.engine.evolve import tokens as tokens
from noetl_stream.engine.evolve.rerun import refused, reused
from noetl_stream.engine.evolve.run_lease import classify_report
from noetl_stream.engine.evolve.step_runs import drop_assignment, end_step, with_ctx, with_run, without
from noetl_stream.engine.evolve.worker_facts import evolve_reported
from noetl_stream.engine.state import NOT_AT_HAND, Assignment, Execution, RecordedFact
from noetl_stream.model import events
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.reference import EXECUTION, Reference

replace = msgspec.structs.replace

RESOLVED_KEPT: Final = 4
"""How many values of references a state remembers, beside those that one decision reads together."""


def evolve(state: Execution | None, recorded: RecordedFact, execution_id: str) -> Execution | None:
    """The state after ``recorded``, one position on; the very same value if it changes nothing.

    Args:
        state: ``None`` before ``execution.requested``.
        execution_id: Whose state it is.
    """
    if state is None:
        return _begin(recorded, execution_id)
    if state.ended and type(recorded.fact) is not events.PlaybookProcessed:
        return state
    before = state if recorded.at_ms <= state.at_ms else replace(state, at_ms=recorded.at_ms)
    if recorded.run is not None:
        after = evolve_reported(before, recorded)
    else:
        rule = _FACTS.get(type(recorded.fact))
        after = rule(before, recorded.fact) if rule is not None else _handed_in(before, recorded)
    return state if after is before else replace(after, position=state.position + 1)


def _handed_in(state: Execution, recorded: RecordedFact) -> Execution:
    """What a client asks, once; the value that the shell hands in with a reference."""
    fact = recorded.fact
    if isinstance(fact, events.ReferenceResolved):
        return _resolved(state, fact, recorded.value)
    rule = _ASKED.get(type(fact))
    if rule is None or not isinstance(fact, events.ClientRequest) or fact.request_id in state.asked:
        return state
    after = rule(state, fact)
    return state if after is state else replace(after, asked=state.asked | {fact.request_id})


def classify(state: Execution | None, recorded: RecordedFact) -> str:
    """Why ``evolve`` would or would not take a worker's event: a ``Classification``."""
    if state is None or state.ended or recorded.run is None:
        return "unknown"
    claim = type(recorded.fact) is events.StepClaimed
    return classify_report(state, recorded.run, recorded.number, claim=claim)


def _begin(recorded: RecordedFact, execution_id: str) -> Execution | None:
    fact = recorded.fact
    if not isinstance(fact, events.ExecutionRequested):
        return None
    state = Execution(
        execution_id,
        fact.request_id,
        fact.digest,
        path=fact.path,
        workload=fact.workload,
        trace_id=fact.trace_id,
        at_ms=recorded.at_ms,
        parent=fact.parent,
    )
    if fact.rerun is None:
        return state
    original = fact.rerun.of
    return replace(state, rerun_of=original, request=fact, deciding=Reference(EXECUTION, original, 0))


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
        request=None,
    )


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
    ordered = loops.ordered(run, fact)
    if ordered is None:
        return state
    if ordered is not run:
        state = with_run(state, ordered)
    assignment = Assignment(fact.command_id, fact.step_run_id, fact.path, fact.issue, paging=fact.paging)
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


def _failing(state: Execution, fact: events.ExecutionFailing) -> Execution:
    return state if state.ending else replace(state, failing=fact.error)


def _patched(state: Execution, fact: events.CtxPatched) -> Execution:
    if state.ending:
        return state
    return with_ctx(state, patched(state.ctx, fact), fact.patch, "")


def _cancel_requested(state: Execution, fact: events.CancelRequested) -> Execution:
    return state if state.ending else replace(state, cancelling=fact.reason or "asked to", paused_at_ms=0)


def _asked(state: Execution, fact: events.ClientRequest) -> Execution:
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
        request=None,
        discarded=fact.discarded,
    )


def _processed(state: Execution, fact: events.PlaybookProcessed) -> Execution:
    return state if state.processed or not state.ended else replace(state, processed=True)


_FACTS: Final[dict[type, Callable[[Execution, Any], Execution]]] = {
    events.ExecutionEvaluated: _evaluated,
    events.ExecutionStarted: _started,
    events.ExecutionReused: reused,
    events.RerunRefused: refused,
    events.ExecutionPaused: _paused,
    events.ExecutionResumed: waits.went_on,
    events.TokenEnqueued: tokens.enqueued,
    events.TokenJoined: tokens.joined,
    events.TokenAbsorbed: tokens.absorbed,
    events.TokenHeld: tokens.held,
    events.TokenClaimed: tokens.claimed,
    events.TokenDiscarded: tokens.discarded,
    events.StepScheduled: _scheduled,
    events.StepCancelled: _cancelled,
    events.ExecutionFailing: _failing,
    events.LoopStarted: loops.started,
    events.CtxOverwrote: _overwrote,
    events.LoopPaged: loops.paged,
    events.LoopDone: loops.done,
    events.LoopIterationFailed: loops.iteration_failed,
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
    events.NextEvaluated: tokens.next_evaluated,
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
