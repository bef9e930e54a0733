"""Changes of the whole execution: it starts, takes client requests, resolves references, ends (LANGUAGE §9).

A rerun takes over the facts of its original (LANGUAGE §9 *Rerun*).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules, tokens, with_run, with_undoing, with_warning, without, without_turn
from noetl_stream.engine.evolve.ctx import patch_ctx, reduce_all, with_ctx
from noetl_stream.engine.evolve.step_runs import tolerate
from noetl_stream.engine.evolve.suspensions import on_retry_now_requested, on_signal_received
from noetl_stream.engine.state import (
    LATEST_MS,
    NOT_LOADED,
    Assignment,
    Chosen,
    Compensable,
    Evaluation,
    Execution,
    LoopState,
    Timer,
    Usage,
)
from noetl_stream.model import events
from noetl_stream.model.json import codec
from noetl_stream.model.json.texts import digits_lost_text
from noetl_stream.model.messages import path_key
from noetl_stream.model.outcome import MAX_WARNING_CHARACTERS, PLAYBOOK, ErrorInfo, RunWarning
from noetl_stream.model.search_terms import indexed_inputs
from noetl_stream.template import ExpressionError

RESOLVED_KEPT: Final = 4
"""The number of resolved references that a state keeps in addition to those read by one decision."""


def _on_evaluated(state: Execution, fact: events.ExecutionEvaluated) -> Execution:
    return state if state.evaluated else replace(state, evaluated=True, refused=fact.diagnostics)


def _on_started(state: Execution, fact: events.ExecutionStarted) -> Execution:
    if state.status != "pending":
        return state
    undoing = state.undoing
    if fact.undoes or undoing.compensable:
        compensable = {key: one for key, one in state.compensable.items() if one.step in fact.undoes}
        undoing = replace(undoing, undoes=fact.undoes, compensable=compensable)
    return replace(
        state,
        status="running",
        digest=fact.digest,
        path=fact.path,
        version=fact.version,
        workload=fact.workload,
        limits=fact.limits,
        schemas=fact.schemas,
        priority=fact.priority,
        keys=fact.keys,
        labels=fact.labels,
        key=fact.key,
        undoing=undoing,
        pools=fact.pools,
        usage=None if fact.quotas is None else Usage(fact.quotas, reused=state.step_runs),
        inputs=_inputs_of(state, fact),
        execution=fact.execution,
        request=None,
        requested_ms=0,
        chosen={},
    )


def _inputs_of(state: Execution, fact: events.ExecutionStarted) -> dict[str, Any]:
    """The inputs by which the execution can be found: those of its request, or all of them for a rerun.

    A called execution has none: people look for its caller.
    """
    request = state.request
    if state.parent is not None:
        return {}
    return indexed_inputs(fact.workload if request is None or request.rerun is not None else request.workload)


def _on_failing(state: Execution, fact: events.ExecutionFailing) -> Execution:
    is_held = state.closing is not None and state.closing.outcome.error == fact.error
    return state if state.ending or is_held else replace(state, failing=fact.error, failed_step=fact.step or "")


def _on_paused(state: Execution, fact: events.ExecutionPaused) -> Execution:
    return state if state.paused_at_ms or state.ending else replace(state, paused_at_ms=max(state.at_ms, 1))


def _on_quarantined(state: Execution, fact: events.ExecutionQuarantined) -> Execution:
    if state.quarantined:
        return state
    return replace(state, quarantined=fact.reason, paused_at_ms=state.paused_at_ms or max(state.at_ms, 1))


def _on_resumed(state: Execution, fact: events.ExecutionResumed) -> Execution:
    """Shifts timeouts by the length of the pause. Delays and ``until`` stay due at their original times."""
    if not state.paused_at_ms:
        return state
    paused_ms = fact.paused_ms

    def shift_start(since_ms: int) -> int:
        return min(since_ms + paused_ms, state.at_ms) if since_ms else 0

    def shift_waits(assignment: Assignment) -> Assignment:
        waits = assignment.waits.items()
        timeouts = {
            path: replace(wait, since_ms=shift_start(wait.since_ms))
            for path, wait in waits
            if wait.timeout_s is not None
        }
        return replace(assignment, waits={**assignment.waits, **timeouts}) if timeouts else assignment

    def postpone_timer(timer: Timer) -> Timer:
        if _is_no_timeout(state, timer):
            return timer
        return replace(timer, due_ms=min(timer.due_ms + paused_ms, LATEST_MS))

    return replace(
        state,
        paused_at_ms=0,
        quarantined="",
        timers={key: postpone_timer(timer) for key, timer in state.timers.items()},
        runs={key: replace(run, started_ms=shift_start(run.started_ms)) for key, run in state.runs.items()},
        assignments={key: shift_waits(assignment) for key, assignment in state.assignments.items()},
        suspensions={key: shift_waits(assignment) for key, assignment in state.suspensions.items()},
    )


def _is_no_timeout(state: Execution, timer: Timer) -> bool:
    suspended = state.suspensions.get(timer.subject) if timer.purpose == "wait" else None
    return suspended is not None and suspended.waits[path_key(timer.path)].timeout_s is None


def _on_ctx_noted(state: Execution, fact: events.CtxOverwrote | events.CtxPatchDiscarded) -> Execution:
    return state if state.ctx_notice is None else replace(state, ctx_notice=None)


def _on_reference_awaited(state: Execution, fact: events.ReferenceAwaited) -> Execution:
    if state.awaited is not None or state.ending:
        return state
    resolved = state.resolved
    if state.position != state.resolved_at:  # no decision needs them any longer
        resolved = dict(list(resolved.items())[-RESOLVED_KEPT:])
    return replace(state, awaited=fact.reference, resolved=resolved)


def on_reference_resolved(state: Execution, fact: events.ReferenceResolved, value: Any) -> Execution:
    if state.awaited is None or state.awaited.key != fact.key:
        return state
    if state.awaited.store == PLAYBOOK:
        return replace(state, awaited=None)
    resolved = state.resolved if value is NOT_LOADED else {**state.resolved, fact.key: value}
    return replace(state, awaited=None, resolved=resolved, resolved_at=state.position + 1)


def _on_reference_lost(state: Execution, fact: events.ReferenceLost) -> Execution:
    if state.awaited is None or state.awaited.key != fact.key:
        return state
    if state.awaited.store == PLAYBOOK:
        return replace(state, awaited=None)
    return replace(state, awaited=None, broken=ErrorInfo("result_lost", fact.reason))


def _on_evaluation_awaited(state: Execution, fact: events.EvaluationAwaited) -> Execution:
    if state.evaluation is not None or state.ending:
        return state
    return replace(state, evaluation=Evaluation(state.position + 1, tuple(fact.choices), state.ctx, state.steps))


def _on_evaluation_finished(state: Execution, fact: events.EvaluationFinished) -> Execution:
    asked = state.evaluation
    if asked is None or asked.position != fact.position:
        return state
    # The choice of the emitted events has the id of the run, a space and the boundary.
    chosen = {key: one for key, one in state.chosen.items() if key in state.tokens or key.split(" ")[0] in state.runs}
    chosen |= {key: Chosen(evaluated, asked.ctx, asked.steps) for key, evaluated in fact.chosen.items()}
    return replace(state, evaluation=None, chosen=chosen, awaited=fact.reference)


def _on_evaluation_failed(state: Execution, fact: events.EvaluationFailed) -> Execution:
    if state.evaluation is None or state.evaluation.position != fact.position:
        return state
    return replace(state, evaluation=None, broken=ErrorInfo("limit_exceeded", fact.reason))


def _on_finished(state: Execution, fact: events.ExecutionFinished) -> Execution:
    return replace(
        state,
        status=fact.status,
        outcome=fact.outcome,
        tokens={},
        runs={},
        turns={},
        resting={},
        assignments={},
        suspensions={},
        timers={},
        children={},
        paused_at_ms=0,
        quarantined="",
        awaited=None,
        resolved={},
        evaluation=None,
        chosen={},
        request=None,
        discarded=fact.discarded,
    )


def _on_processed(state: Execution, fact: events.PlaybookProcessed) -> Execution:
    return state if state.processed or not state.ended else replace(state, processed=True)


def take_once(state: Execution, fact: events.ClientRequest) -> Execution:
    """The state after a request; the same value if the request was taken before."""
    if fact.request_id in state.requests:
        return state
    after = CLIENT_RULES[type(fact)](state, fact)
    if after is state:
        return state
    if fact.digits_lost:
        what = f"signal {fact.signal}" if isinstance(fact, events.SignalReceived) else fact.kind.entity
        text = digits_lost_text(fact.digits_lost)[:MAX_WARNING_CHARACTERS]
        after = with_warning(after, events.TaskWarning("", what, RunWarning("digits_lost", text)))
    return replace(after, requests=state.requests | {fact.request_id})


def _on_ctx_patched(state: Execution, fact: events.CtxPatched) -> Execution:
    if state.ending:
        return state
    return with_ctx(state, patch_ctx(state.ctx, fact), fact.patch, "")


def _on_cancel_requested(state: Execution, fact: events.CancelRequested) -> Execution:
    is_first = not (state.ending or state.closing is not None) or (fact.now and not state.undoing.at_once)
    if not is_first and not state.quarantined:
        return state
    reason = fact.reason or "on request"
    state = replace(state, cancelling=state.cancelling or reason, paused_at_ms=0)
    return with_undoing(state, at_once=True) if fact.now else state


def _record_request(state: Execution, fact: events.ClientRequest) -> Execution:
    """Records a request without a direct effect; the decision that follows has one."""
    return state if state.ending and not state.quarantined else replace(state)


CLIENT_RULES: Final[Rules] = {
    events.CtxPatched: _on_ctx_patched,
    events.TokenInjected: _record_request,
    events.SignalReceived: on_signal_received,
    events.CancelRequested: _on_cancel_requested,
    events.PauseRequested: _record_request,
    events.ResumeRequested: _record_request,
    events.RetryNowRequested: on_retry_now_requested,
}


def _on_reused(state: Execution, fact: events.ExecutionReused) -> Execution:
    """Applies the next page of reused facts; after the last one the execution can start."""
    if state.request is None or fact.page != state.reused_pages:
        return state
    for entry in fact.entries:
        state = _REUSED[type(entry)](state, entry)
    return replace(
        state,
        reused_pages=fact.page + 1,
        awaited=None if fact.is_last else state.awaited,
        due=fact.due or state.due,
        ctx_bytes=len(codec.encode(state.ctx)),
    )


def _on_rerun_refused(state: Execution, fact: events.RerunRefused) -> Execution:
    return state if state.request is None else replace(state, request=None, awaited=None)


def _reuse_ctx_patched(state: Execution, fact: events.CtxPatched) -> Execution:
    return _set_ctx(state, patch_ctx(state.ctx, fact), fact.patch)


def _reuse_step_patched(state: Execution, fact: events.StepPatched) -> Execution:
    keys = {*fact.set_ctx, *(key for key, _ in fact.shared)}
    try:
        return _set_ctx(state, reduce_all({**state.ctx, **fact.set_ctx}, fact.shared), keys)
    except ExpressionError as error:
        return replace(state, broken=ErrorInfo("expression_error", str(error)))


def _set_ctx(state: Execution, ctx: dict[str, Any], keys: Iterable[str]) -> Execution:
    at = state.position + 1
    return replace(state, ctx=ctx, ctx_version=at, writers={**state.writers, **dict.fromkeys(keys, ("", at))})


def _reuse_step(state: Execution, fact: events.StepReused) -> Execution:
    run, counts = state.runs[fact.step_run_id], fact.loop
    loop = None
    if counts is not None:
        loop = LoopState(
            items=[],
            count=counts.count,
            local=True,
            max_in_flight=1,
            ok=counts.ok,
            failed=counts.failed,
            skipped=counts.skipped,
            failed_leaves=counts.failed_leaves,
        )
        if fact.ended == "loop.done":
            state = tolerate(state, run.step, loop)
    value = fact.value
    rerun = None if state.request is None else state.request.rerun
    if rerun is not None and value is not None and not fact.undone:
        # A step run of another execution is undone there, or by an execution that only undoes.
        reason = "" if rerun.undoes else f"it ran in execution {rerun.of}"
        noted = Compensable(run.step, run.token.args, value, fact.vars, tuple(fact.called), reason=reason)
        state = with_undoing(state, compensable={**state.compensable, fact.step_run_id: noted})
    if run.token.partition and not run.ended:
        state = without_turn(state, run)
    state = with_run(state, replace(run, ended=fact.ended, value=value, error=fact.error, vars=fact.vars, loop=loop))
    steps = without(state.steps, run.step) if value is None else {**state.steps, run.step: value}
    return replace(state, steps=steps)


_REUSED: Final[dict[type, Callable[[Execution, Any], Execution]]] = {
    events.TokenEnqueued: tokens.on_enqueued,
    events.TokenClaimed: tokens.on_claimed,
    events.TokenAbsorbed: tokens.on_absorbed,
    events.TokenDiscarded: tokens.on_discarded,
    events.CtxPatched: _reuse_ctx_patched,
    events.StepPatched: _reuse_step_patched,
    events.StepReused: _reuse_step,
    events.NextEvaluated: tokens.on_next_evaluated,
}

RULES: Final[Rules] = {
    events.ExecutionEvaluated: _on_evaluated,
    events.ExecutionStarted: _on_started,
    events.ExecutionFailing: _on_failing,
    events.ExecutionPaused: _on_paused,
    events.ExecutionQuarantined: _on_quarantined,
    events.ExecutionResumed: _on_resumed,
    events.CtxOverwrote: _on_ctx_noted,
    events.CtxPatchDiscarded: _on_ctx_noted,
    events.ReferenceAwaited: _on_reference_awaited,
    events.ReferenceLost: _on_reference_lost,
    events.EvaluationAwaited: _on_evaluation_awaited,
    events.EvaluationFinished: _on_evaluation_finished,
    events.EvaluationFailed: _on_evaluation_failed,
    events.ExecutionFinished: _on_finished,
    events.PlaybookProcessed: _on_processed,
    events.ExecutionReused: _on_reused,
    events.RerunRefused: _on_rerun_refused,
}
