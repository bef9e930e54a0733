"""``decide``: the facts that follow from a fact, by the state after it (DESIGN §3, PROTOCOL §2 *Decide*).

Depends on state and fact alone, never on the batch. What follows from a state at rest stands in
:mod:`~noetl_stream.engine.rest`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from noetl_stream.engine.admission import admit
from noetl_stream.engine.ids import command_of, start_token
from noetl_stream.engine.looping import open_loop
from noetl_stream.engine.routing import route
from noetl_stream.engine.state import Execution
from noetl_stream.model import codec, events
from noetl_stream.model.messages import FORMAT
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.playbook.plan import Plan

NOTHING: Final[Sequence[events.Fact]] = ()


def decide(plan: Plan, state: Execution, fact: events.Fact) -> Sequence[events.Fact]:
    """What follows from ``fact`` in the state that already holds it."""
    rule = _RULES.get(type(fact))
    return NOTHING if rule is None or state.processed else rule(plan, state, fact)


def refuse(diagnostics: list[dict[str, Any]], reason: str) -> Sequence[events.Fact]:
    """What follows from a request whose playbook cannot run: it ends as failed with its diagnostics (LANGUAGE §9)."""
    outcome = Outcome("error", error=ErrorInfo("invalid_playbook", reason))
    return (
        events.ExecutionEvaluated(False, diagnostics),
        events.ExecutionFinished("failed", outcome),
        events.PlaybookProcessed("failed"),
    )


def _requested(plan: Plan, state: Execution, fact: events.ExecutionRequested) -> Sequence[events.Fact]:
    workload = deep_merge(plan.workload, fact.workload)
    limits = plan.limits
    sizes = (("workload", workload, limits.max_workload_bytes), ("ctx", fact.ctx, limits.max_ctx_bytes))
    for name, value, at_most in sizes:
        size = len(codec.encode(value))
        if size > at_most:
            text = f"the {name} has {size} bytes; limits.max_{name}_bytes is {at_most}"
            return refuse([{"code": "limit_exceeded", "message": text}], text)
    started = events.ExecutionStarted(
        plan.digest, plan.path, plan.version, FORMAT, workload, fact.ctx, limits, fact.trace_id
    )
    token = events.Token(start_token(state.execution_id), plan.entry, "start")
    return (events.ExecutionEvaluated(True), started, events.TokenEnqueued(token))


def deep_merge(base: Any, over: Any) -> Any:
    """Mappings merge key by key, everything else is replaced, null included (LANGUAGE §9)."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{key: deep_merge(base[key], value) if key in base else value for key, value in over.items()}}


def _enqueued(plan: Plan, state: Execution, fact: events.TokenEnqueued) -> Sequence[events.Fact]:
    if state.failing is not None:
        return (events.TokenDiscarded(fact.token.token_id, "the execution has failed"),)
    if state.step_runs >= state.limits.max_step_runs:
        text = f"limits.max_step_runs ({state.limits.max_step_runs}) reached"
        return (events.ExecutionFailing(ErrorInfo("limit_exceeded", text), step=fact.token.step),)
    waiting = state.tokens.get(fact.token.token_id)
    follows = admit(plan, state, waiting) if waiting is not None else None
    return NOTHING if follows is None else (follows,)


def _claimed(plan: Plan, state: Execution, fact: events.TokenClaimed) -> Sequence[events.Fact]:
    run = state.runs[fact.step_run_id]
    step = plan.steps[run.step]
    if step.loop is not None:
        return open_loop(plan, state, run, step.loop)
    if not step.tasks:
        return (events.StepDone(run.step_run_id),)
    return (events.StepScheduled(run.step_run_id, command_of(run.step_run_id)),)


def _task_processed(plan: Plan, state: Execution, fact: events.TaskProcessed) -> Sequence[events.Fact]:
    if not fact.set_ctx or state.failing is not None or state.ctx_bytes <= state.limits.max_ctx_bytes:
        return NOTHING
    text = (
        f"ctx has {state.ctx_bytes} bytes after task {fact.task}; limits.max_ctx_bytes is {state.limits.max_ctx_bytes}"
    )
    return (events.ExecutionFailing(ErrorInfo("limit_exceeded", text, task=fact.task)),)


def _step_ended(
    plan: Plan, state: Execution, fact: events.StepDone | events.StepFailed | events.LoopDone
) -> Sequence[events.Fact]:
    run = state.runs.get(fact.step_run_id)
    return NOTHING if run is None or state.failing is not None else route(plan, state, run)


def _failing(plan: Plan, state: Execution, fact: events.ExecutionFailing) -> Sequence[events.Fact]:
    reason = "the execution has failed"
    discarded = (events.TokenDiscarded(token_id, reason) for token_id in state.tokens)
    cancelled = (
        events.StepCancelled(assignment.step_run_id, assignment.command_id, reason)
        for assignment in state.assignments.values()
        if not assignment.cancelling
    )
    return (*discarded, *cancelled)


def _finished(plan: Plan, state: Execution, fact: events.ExecutionFinished) -> Sequence[events.Fact]:
    return (events.PlaybookProcessed(fact.status),)


_RULES: Final[dict[type, Callable[[Plan, Execution, Any], Sequence[events.Fact]]]] = {
    events.ExecutionRequested: _requested,
    events.TokenEnqueued: _enqueued,
    events.TokenClaimed: _claimed,
    events.TaskProcessed: _task_processed,
    events.StepDone: _step_ended,
    events.StepFailed: _step_ended,
    events.LoopDone: _step_ended,
    events.ExecutionFailing: _failing,
    events.ExecutionFinished: _finished,
}
