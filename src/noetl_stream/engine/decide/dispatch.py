"""``decide``: the facts that follow from a fact, by the state after it (DESIGN §3, PROTOCOL §2 *Decide*).

Depends on state and fact alone, never on the batch. What follows from a state at rest stands in :mod:`.quiescence`,
what a state owes after a halt in :mod:`.pending`. Any decision may raise
:class:`~noetl_stream.template.ReferenceNeeded`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from noetl_stream.engine.decide.client_requests import no_step
from noetl_stream.engine.decide.joins import fire_if_enough
from noetl_stream.engine.decide.pending import begin, enter, on_ctx
from noetl_stream.engine.decide.routing import route
from noetl_stream.engine.decide.suspension import follow
from noetl_stream.engine.decide.termination import cancel, fail
from noetl_stream.engine.decide.timers import due_ms
from noetl_stream.engine.ids import injected_token, start_token, step_run_of, timer_of
from noetl_stream.engine.state import Execution
from noetl_stream.model import codec, events
from noetl_stream.model.messages import FORMAT
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.rejection import Rejection
from noetl_stream.playbook.plan import Plan

NOTHING: Final[Sequence[events.Fact]] = ()


def decide(plan: Plan, state: Execution, fact: events.Fact) -> Sequence[events.Fact]:
    """What follows from ``fact`` in the state that already holds it."""
    rule = _RULES.get(type(fact))
    if rule is None or state.processed or (state.halted and type(fact) not in _THROUGH_A_HALT):
        return NOTHING
    return rule(plan, state, fact)


def refuse(diagnostics: list[dict[str, Any]], reason: str, kind: str = "invalid_playbook") -> Sequence[events.Fact]:
    """What follows from a request whose playbook cannot run: it ends as failed with its diagnostics (LANGUAGE §9)."""
    outcome = Outcome("error", error=ErrorInfo(kind, reason))
    return (
        events.ExecutionEvaluated(False, diagnostics),
        events.ExecutionFinished("failed", outcome),
        events.PlaybookProcessed("failed"),
    )


def _requested(plan: Plan, state: Execution, fact: events.ExecutionRequested) -> Sequence[events.Fact]:
    token = events.Token(start_token(state.execution_id), plan.entry, "start")
    return _start(plan, state, fact, deep_merge(plan.workload, fact.workload), events.TokenEnqueued(token))


def _reused(plan: Plan, state: Execution, fact: events.ExecutionReused) -> Sequence[events.Fact]:
    """A rerun begins where its original was, before the chosen step run."""
    if fact.token is None or state.request is None:
        return NOTHING
    return _start(plan, state, state.request, fact.workload, events.TokenEnqueued(fact.token, fact.joined))


def _rerun_refused(plan: Plan, state: Execution, fact: events.RerunRefused) -> Sequence[events.Fact]:
    return refuse([{"code": fact.code, "message": fact.reason}], fact.reason, "rerun_refused")


def _start(
    plan: Plan,
    state: Execution,
    request: events.ExecutionRequested,
    workload: dict[str, Any],
    first: events.TokenEnqueued,
) -> Sequence[events.Fact]:
    problem = _problem_of(plan, request, workload)
    if problem:
        return refuse([{"code": problem.code, "message": problem.text}], problem.text)
    started = events.ExecutionStarted(
        plan.digest, plan.path, plan.version, FORMAT, workload, plan.limits, request.trace_id
    )
    facts: list[events.Fact] = [events.ExecutionEvaluated(True), started]
    if request.ctx:
        facts.append(
            events.CtxPatched(
                request.request_id, request.principal, request.reason, request.correlation_id, patch=request.ctx
            )
        )
    if plan.timeout_s is not None:
        due = due_ms(state.at_ms, plan.timeout_s)
        facts.append(events.TimerSet(timer_of(state.execution_id, "execution"), "execution", due))
    return (*facts, first)


def _problem_of(plan: Plan, fact: events.ExecutionRequested, workload: Any) -> Rejection | None:
    limits, parent = plan.limits, fact.parent
    args = fact.rerun.args if fact.rerun is not None else None
    for what, value, limit in (
        ("workload has", workload, "max_workload_bytes"),
        ("ctx has", fact.ctx, "max_ctx_bytes"),
        ("args have", args, "max_ctx_bytes"),
    ):
        size, at_most = len(codec.encode(value)), getattr(limits, limit)
        if size > at_most:
            return Rejection("too_large", f"the {what} {size} bytes; limits.{limit} is {at_most}")
    if parent is None:
        return None
    if parent.depth > limits.max_call_depth:
        text = f"playbooks call each other {parent.depth} deep; limits.max_call_depth is {limits.max_call_depth}"
        return Rejection("too_large", text)
    if parent.return_step is not None and parent.return_step not in plan.steps:
        code, text = no_step(plan, parent.return_step)
        return Rejection(code, f"return_step: {text}")
    return None


def deep_merge(base: Any, over: Any) -> Any:
    """Mappings merge key by key, everything else is replaced, null included (LANGUAGE §9)."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{key: deep_merge(base[key], value) if key in base else value for key, value in over.items()}}


def _injected(plan: Plan, state: Execution, fact: events.TokenInjected) -> Sequence[events.Fact]:
    token_id = injected_token(state.execution_id, fact.request_id)
    return (events.TokenEnqueued(events.Token(token_id, fact.step, "injected", fact.args)),)


def _patched(plan: Plan, state: Execution, fact: events.CtxPatched) -> Sequence[events.Fact]:
    return on_ctx(state)


def _cancel_requested(plan: Plan, state: Execution, fact: events.CancelRequested) -> Sequence[events.Fact]:
    return cancel(state)


def _pause_requested(plan: Plan, state: Execution, fact: events.PauseRequested) -> Sequence[events.Fact]:
    if state.paused_at_ms or state.ending:
        return NOTHING
    children = (events.ChildOrdered(child_id, "pause", fact.reason) for child_id in state.children)
    return (events.ExecutionPaused(fact.reason), *children)


def _resume_requested(plan: Plan, state: Execution, fact: events.ResumeRequested) -> Sequence[events.Fact]:
    if not state.paused_at_ms:
        return NOTHING
    children = (events.ChildOrdered(child_id, "resume", fact.reason) for child_id in state.children)
    return (events.ExecutionResumed(max(state.at_ms - state.paused_at_ms, 0)), *children)


def _suspended(plan: Plan, state: Execution, fact: events.StepSuspended) -> Sequence[events.Fact]:
    latest = next(reversed(state.suspensions.values()), None)
    return NOTHING if latest is None or state.ending else follow(state, latest)


def _answered(
    plan: Plan, state: Execution, fact: events.SignalReceived | events.ChildFinished
) -> Sequence[events.Fact]:
    """Whatever was waiting for it goes on."""
    answered = next((suspended for suspended in state.suspensions.values() if suspended.answers), None)
    return NOTHING if answered is None or state.ending else follow(state, answered)


def _timer_fired(plan: Plan, state: Execution, fact: events.TimerFired) -> Sequence[events.Fact]:
    if state.ending:
        return NOTHING
    if fact.purpose == "wait":
        suspended = state.suspensions.get(fact.subject)
        return NOTHING if suspended is None else follow(state, suspended)
    if fact.purpose == "execution":
        text = f"the execution took longer than executor.spec.timeout_s ({plan.timeout_s:g} s)"
        return (events.ExecutionFailing(ErrorInfo("timeout", text)),)
    if fact.purpose == "admission":
        return _admission_over(plan, state, fact.subject)
    if fact.purpose == "deadline":
        return _deadline_over(plan, state, fact.subject)
    run = state.runs.get(fact.subject)
    if run is None or run.ended:
        return NOTHING
    text = f"step {run.step} took longer than lifecycle.timeout_s ({plan.steps[run.step].timeout_s:g} s)"
    return _time_out(state, run.step_run_id, text)


def _admission_over(plan: Plan, state: Execution, token_id: str) -> Sequence[events.Fact]:
    waiting = state.tokens.get(token_id)
    if waiting is None:
        return NOTHING
    step = waiting.token.step
    policy = plan.steps[step].admit
    if policy is None or policy.wait_s is None:
        return NOTHING
    text = f"step {step} did not let its token in within admit.wait.timeout_s ({policy.wait_s:g} s)"
    if policy.on_timeout == "discard":
        return (events.TokenDiscarded(token_id, text),)
    return (_refused(state, token_id, ErrorInfo("admission_timeout", text)),)


def _deadline_over(plan: Plan, state: Execution, token_id: str) -> Sequence[events.Fact]:
    waiting = state.tokens.get(token_id)
    step_run_id = step_run_of(state.execution_id, token_id)
    run = state.runs.get(step_run_id)
    step = waiting.token.step if waiting is not None else run.step if run is not None else ""
    if not step or (run is not None and run.ended):
        return NOTHING
    text = f"step {step} was not done within lifecycle.deadline_s ({plan.steps[step].deadline_s:g} s)"
    if waiting is not None:
        return (_refused(state, token_id, ErrorInfo("timeout", text)),)
    return _time_out(state, step_run_id, text)


def _refused(state: Execution, token_id: str, error: ErrorInfo) -> events.Fact:
    return events.TokenClaimed(token_id, step_run_of(state.execution_id, token_id), refused=error)


def _time_out(state: Execution, step_run_id: str, text: str) -> Sequence[events.Fact]:
    cancelled = [
        events.StepCancelled(step_run_id, assignment.command_id, text)
        for assignment in (*state.assignments.values(), *state.suspensions.values())
        if assignment.step_run_id == step_run_id
    ]
    return (*cancelled, events.StepFailed(step_run_id, ErrorInfo("timeout", text)))


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


def _task_processed(plan: Plan, state: Execution, fact: events.TaskProcessed) -> Sequence[events.Fact]:
    return on_ctx(state) if fact.set_ctx or fact.set_shared else NOTHING


def _step_ended(
    plan: Plan, state: Execution, fact: events.StepDone | events.StepFailed | events.LoopDone
) -> Sequence[events.Fact]:
    run = state.runs.get(fact.step_run_id)
    if run is None or not run.ended or state.ending:
        return NOTHING
    return (*on_ctx(state), *route(plan, state, run))


def _failing(plan: Plan, state: Execution, fact: events.ExecutionFailing) -> Sequence[events.Fact]:
    return fail(state)


def _finished(plan: Plan, state: Execution, fact: events.ExecutionFinished) -> Sequence[events.Fact]:
    return (events.PlaybookProcessed(fact.status),)


_RULES: Final[dict[type, Callable[[Plan, Execution, Any], Sequence[events.Fact]]]] = {
    events.ExecutionRequested: _requested,
    events.ExecutionReused: _reused,
    events.RerunRefused: _rerun_refused,
    events.CtxPatched: _patched,
    events.TokenInjected: _injected,
    events.SignalReceived: _answered,
    events.CancelRequested: _cancel_requested,
    events.PauseRequested: _pause_requested,
    events.ResumeRequested: _resume_requested,
    events.ChildFinished: _answered,
    events.StepSuspended: _suspended,
    events.TimerFired: _timer_fired,
    events.TokenEnqueued: _enqueued,
    events.TokenJoined: _joined,
    events.TokenClaimed: _claimed,
    events.TaskProcessed: _task_processed,
    events.StepDone: _step_ended,
    events.StepFailed: _step_ended,
    events.LoopDone: _step_ended,
    events.ExecutionFailing: _failing,
    events.ExecutionFinished: _finished,
}
_THROUGH_A_HALT: Final = frozenset(
    {
        events.TokenInjected,
        events.CancelRequested,
        events.PauseRequested,
        events.ResumeRequested,
        events.TaskProcessed,
        events.ExecutionFailing,
        events.ExecutionFinished,
    }
)
