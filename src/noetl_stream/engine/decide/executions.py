"""Decisions about whole executions: they start, accept or reject client requests, fail and end (LANGUAGE §5, §9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict, replace

from noetl_stream.engine.attributes import attributes_of
from noetl_stream.engine.choices import WORKLOAD, EvaluationNeeded, refusal_in
from noetl_stream.engine.decide import Rules, closing
from noetl_stream.engine.decide.closing import close, end, finished, will_undo
from noetl_stream.engine.decide.labels import labels_of
from noetl_stream.engine.decide.quotas import exceeded, on_exceeded
from noetl_stream.engine.decide.slots import ask_for_execution, limit_failure
from noetl_stream.engine.evolve.ctx import patch_ctx
from noetl_stream.engine.scope import expression_failure
from noetl_stream.engine.state import Execution, due_ms
from noetl_stream.errors import WorkloadRefused
from noetl_stream.model import events
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import Fact
from noetl_stream.model.ids import derive, timer_of
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import deep_merge
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import AGGREGATES_FORMAT
from noetl_stream.model.outcome import PLAYBOOK, ErrorInfo, Outcome, Reference
from noetl_stream.model.priorities import DEFAULT_PRIORITY
from noetl_stream.model.status import EndStatus, Rejection
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import Budget, ExpressionError, Scope

COMPARISONS_PER_OPERATION: Final = 250
"""The number of schema comparisons that cost as much as one operation of a template."""


def rejection_of(plan: Plan | None, state: Execution, fact: events.ClientRequest) -> Rejection | None:
    """The reason why the execution rejects ``fact`` now; ``None`` if it accepts it. ``plan`` may still be loading."""
    execution = f"execution {state.execution_id}"
    if state.ended:
        return Rejection("ended", f"{execution} has ended ({state.status})")
    if state.quarantined:
        if isinstance(fact, events.CancelRequested | events.ResumeRequested):
            return None
        text = f"{execution} is quarantined: resume or cancel it; {state.quarantined}"
        return Rejection("quarantined", text)
    if state.closing is not None and not isinstance(fact, events.SignalReceived | events.RetryNowRequested):
        if not (isinstance(fact, events.CancelRequested) and fact.now):
            doing = "undoes what it has done" if state.is_compensating else "runs its `finally`"
            was = "was" if state.closing.status == "cancelled" else "has"
            end = f"{execution} {was} {state.closing.status}"
            return Rejection("ending", f"{end}, and {doing}: only `cancel --now` ends that")
        return None
    if state.cancelling and not isinstance(fact, events.CancelRequested):
        return Rejection("ending", f"{execution} is being cancelled")
    if state.failing is not None:
        return Rejection("ending", f"{execution} has failed and is ending")
    if state.request is not None and not isinstance(fact, events.CancelRequested):
        return Rejection("not_started", f"{execution} has not started: {_what_it_waits_for(state)}")
    if isinstance(fact, events.CtxPatched):
        if fact.expected_version not in (None, state.ctx_version):
            text = f"ctx is at version {state.ctx_version}, not {fact.expected_version}: read it again"
            return Rejection("version_mismatch", text)
        return _refuse_size("ctx would have", patch_ctx(state.ctx, fact), "max_ctx_bytes", state.limits)
    if isinstance(fact, events.TokenInjected):
        if plan is not None and fact.step not in plan.steps:
            return no_step(plan, fact.step)
        return _refuse_size("args have", fact.args, "max_ctx_bytes", state.limits)
    if isinstance(fact, events.SignalReceived):
        queued = sum(map(len, state.signals.values()))
        if queued >= state.limits.max_queued_signals:
            return Rejection("too_many_signals", f"{queued} signals are already queued (limits.max_queued_signals)")
        return _refuse_size("the payload has", fact.payload, "max_inline_bytes", state.limits)
    return None


def _what_it_waits_for(state: Execution) -> str:
    """The condition that an undecided start waits for, in words."""
    if state.evaluation is not None:
        return "its workload is still being compared with its schema"
    return f"it is still reading {f'its original {state.rerun_of}' if state.rerun_of else 'its playbook'}"


def no_step(plan: Plan, step: str) -> Rejection:
    return Rejection("unknown_step", f"playbook {plan.path} has no step {step}; it has {', '.join(plan.steps)}")


def _refuse_size(what: str, value: Any, limit: str, limits: Limits) -> Rejection | None:
    size, at_most = len(codec.encode(value)) if value else 0, getattr(limits, limit)
    return Rejection("too_large", f"{what} {size} bytes; limits.{limit} is {at_most}") if size > at_most else None


def is_redundant(state: Execution, fact: events.ClientRequest) -> bool:
    """Whether the request asks for the present state and need not be recorded."""
    if isinstance(fact, events.CancelRequested):
        return bool(state.cancelling) and not state.quarantined and (state.undoing.at_once or not fact.now)
    if isinstance(fact, events.PauseRequested):
        return bool(state.paused_at_ms)
    if isinstance(fact, events.RetryNowRequested):
        waits = (wait for suspended in state.suspensions.values() for wait in suspended.waits.values())
        return all(wait.delay_s is None for wait in waits)
    return isinstance(fact, events.ResumeRequested) and not state.paused_at_ms


def refuse(
    diagnostics: list[dict[str, Any]], reason: str, kind: str = "invalid_playbook", code: str | None = None
) -> Sequence[Fact]:
    """Fails an execution whose playbook cannot run, with diagnostics (LANGUAGE §9)."""
    return (
        events.ExecutionEvaluated(False, diagnostics),
        events.ExecutionFinished("failed", Outcome("error", error=ErrorInfo(kind, reason, code=code))),
        events.PlaybookProcessed("failed"),
    )


def while_unloaded(state: Execution, fact: Fact) -> Sequence[Fact]:
    """The decisions before the playbook is loaded: the execution waits for it, or ends (PROTOCOL §2)."""
    if isinstance(fact, events.ExecutionRequested):
        return () if state.rerun_of else (events.ReferenceAwaited(Reference(PLAYBOOK, state.digest, 0)),)
    if isinstance(fact, events.RerunRefused):
        return _on_rerun_refused(None, state, fact)
    if isinstance(fact, events.CancelRequested):
        return (_end_at_once(state), events.PlaybookProcessed("cancelled"))
    if isinstance(fact, events.ResumeRequested):
        return (_resume(state),) if state.paused_at_ms else ()
    return ()


def on_ctx(state: Execution) -> Sequence[Fact]:
    """Decisions after a change of ``ctx`` or quota usage: notices about keys, and failure if either is too large."""
    if state.ending:
        return (state.ctx_notice,) if isinstance(state.ctx_notice, events.CtxPatchDiscarded) else ()
    if state.broken is not None and not state.halted:
        return (events.ExecutionFailing(state.broken),)
    if state.usage is not None and (quotas := exceeded(state)):
        return on_exceeded(state, quotas)
    if state.ctx_bytes > state.limits.max_ctx_bytes and not state.halted and state.closing is None:
        text = f"ctx has {state.ctx_bytes} bytes; limits.max_ctx_bytes is {state.limits.max_ctx_bytes}"
        return (events.ExecutionFailing(ErrorInfo("limit_exceeded", text)),)
    return () if state.ctx_notice is None else (state.ctx_notice,)


def end_when_stopped(plan: Plan, state: Execution) -> Sequence[Fact]:
    """Ends a failing or cancelled execution once all its commands, or the grace period, have ended (LANGUAGE §9)."""
    return () if state.assignments else end(plan, state, *_end_of(state))


def _end_of(state: Execution) -> tuple[EndStatus, Outcome]:
    if state.failing is not None:
        return "failed", Outcome("error", error=state.failing)
    return "cancelled", Outcome("error", error=ErrorInfo("cancelled", state.cancelling))


def _end_at_once(state: Execution) -> Fact:
    """The end of an execution that can undo nothing."""
    held = state.closing
    status, outcome = _end_of(state) if held is None else (held.status, held.outcome)
    return finished(state, status, outcome, f"it was cancelled where it could not be undone: {state.cancelling}")


def _on_requested(plan: Plan, state: Execution, fact: events.ExecutionRequested) -> Sequence[Fact]:
    token = events.Token(derive(state.execution_id, "start"), plan.entry, "start")
    pinned = _Pinned(workload_of(plan, fact), dict(plan.schemas), _priority_of(plan, fact))
    return _start(plan, state, fact, pinned, events.TokenEnqueued(token))


def workload_of(plan: Plan, request: events.ExecutionRequested) -> dict[str, Any]:
    """The merged workload of an execution that is not a rerun."""
    merged: dict[str, Any] = deep_merge(plan.workload, request.workload)
    return merged


def _on_reused(plan: Plan, state: Execution, fact: events.ExecutionReused) -> Sequence[Fact]:
    """Starts a rerun from the state that its original had before the chosen step run."""
    if not fact.is_last or state.request is None:
        return ()
    asked = state.request.priority
    pinned = _Pinned(fact.workload, fact.schemas, fact.priority if asked is None else asked)
    if fact.token is not None:
        return _start(plan, state, state.request, pinned, events.TokenEnqueued(fact.token, fact.joined))
    first = close(plan, state, events.ExecutionClosing("completed", Outcome("ok"), True))
    return _start(plan, state, state.request, pinned, *first)


def _on_awaited(
    plan: Plan, state: Execution, fact: events.ReferenceResolved | events.EvaluationFinished
) -> Sequence[Fact]:
    """Continues a start that waited for its playbook or the validation of its workload; others are decided again."""
    return () if state.request is None else _on_requested(plan, state, state.request)


def _on_evaluation_failed(plan: Plan, state: Execution, fact: events.EvaluationFailed) -> Sequence[Fact]:
    """Refuses a start whose workload could not be validated."""
    if state.request is None:
        return ()
    text = f"the workload cannot be compared with its schema: {fact.reason}"
    return refuse([{"code": "limit_exceeded", "message": text}], text, "limit_exceeded")


def _on_rerun_refused(plan: Plan | None, state: Execution, fact: events.RerunRefused) -> Sequence[Fact]:
    return refuse([{"code": fact.code, "message": fact.reason}], fact.reason, "rerun_refused")


class _Pinned(NamedTuple):
    """The inputs that are fixed by ``execution.started``."""

    workload: dict[str, Any]
    schemas: dict[str, str]
    priority: int


def _priority_of(plan: Plan, request: events.ExecutionRequested) -> int:
    """The priority of the execution: the request's, else the playbook's, else the caller's (LANGUAGE §15)."""
    said = (request.priority, plan.priority) if request.parent is None else (plan.priority, request.priority)
    return next((priority for priority in said if priority is not None), DEFAULT_PRIORITY)


def _start(
    plan: Plan, state: Execution, request: events.ExecutionRequested, pinned: _Pinned, *first: Fact
) -> Sequence[Fact]:
    problem = _problem_of(plan, request, pinned.workload)
    if problem is not None:
        return refuse([{"code": problem.code, "message": problem.text}], problem.text)
    # A rerun has the playbook and the workload of its original, which has started.
    refused = None if state.rerun_of else _refusal_of(plan, state, pinned.workload)
    if refused is not None:
        code, text, at = "invalid_workload", refused.message, refused.pointer
        return refuse([{"code": code, "message": text, "pointer": at}], text, code, at)
    if plan.reads_execution:
        seen = {"due": state.due or None, "started": iso(state.requested_ms), "origin": asdict(request.started_by)}
        state = replace(state, execution=seen)
    try:
        labels = labels_of(plan, state, request, pinned.workload)
    except ExpressionError as error:
        return _refuse_failure(expression_failure("metadata.labels", error))
    started = events.ExecutionStarted(
        digest=plan.digest,
        path=plan.path,
        version=plan.version,
        format=max(plan.format, AGGREGATES_FORMAT) if state.undoes_another else plan.format,
        workload=pinned.workload,
        limits=plan.limits,
        trace_id=request.trace_id,
        schemas=pinned.schemas,
        priority=pinned.priority,
        keys=plan.keys,
        labels=labels,
        key=request.key,
        unique=request.unique,
        execution=state.execution,
        undoes=dict(plan.undoes) if plan.undoes else {},
        quotas=plan.quotas,
        pools=dict(plan.pools) if plan.pools else {},
        tracing=_attributes(plan, state, pinned.workload) if plan.tracing else {},
    )
    try:
        asked = ask_for_execution(plan, state, pinned.workload)
    except ExpressionError as error:
        return _refuse_failure(limit_failure(error))
    facts: list[Fact] = [events.ExecutionEvaluated(True), started]
    if request.ctx:
        by = request.request_id, request.principal, request.reason, request.correlation_id
        facts.append(events.CtxPatched(*by, patch=request.ctx))
    if asked is not None:
        facts.append(asked)
    elif plan.timeout_s is not None:
        due = due_ms(state.at_ms, plan.timeout_s)
        facts.append(events.TimerSet(timer_of(state.execution_id, "execution"), "execution", due))
    return (*facts, *first)


def _attributes(plan: Plan, state: Execution, workload: dict[str, Any]) -> dict[str, Any]:
    """The attributes of the execution's span."""
    names = {"workload": workload, "execution_id": state.execution_id, "execution": state.execution}
    return attributes_of(plan.tracing, Scope(names, {}, plan.limits, Budget(plan.limits.max_inline_operations)))


def _refuse_failure(failure: ErrorInfo) -> Sequence[Fact]:
    return refuse([{"code": failure.kind, "message": failure.message}], failure.message, failure.kind)


def _refusal_of(plan: Plan, state: Execution, workload: dict[str, Any]) -> WorkloadRefused | None:
    """The reason for refusing the workload, if there is one.

    Raises:
        EvaluationNeeded: the validation costs more than the server may spend on it here.
    """
    schema = plan.workload_schema
    if schema is None:
        return None
    made = state.chosen.get(WORKLOAD)
    if made is not None:
        return refusal_in(made.evaluated)
    compared = schema.comparisons(workload, state.budget.left * COMPARISONS_PER_OPERATION)
    if compared is None:
        raise EvaluationNeeded([WORKLOAD])
    state.budget.spend(compared // COMPARISONS_PER_OPERATION)
    return schema.mismatch(workload)


def _problem_of(plan: Plan, fact: events.ExecutionRequested, workload: Any) -> Rejection | None:
    limits, parent = plan.limits, fact.parent
    args = fact.rerun.args if fact.rerun is not None else None
    too_large = (
        _refuse_size("workload has", workload, "max_workload_bytes", limits)
        or _refuse_size("ctx has", fact.ctx, "max_ctx_bytes", limits)
        or _refuse_size("args have", args, "max_ctx_bytes", limits)
    )
    if too_large is not None or parent is None:
        return too_large
    if parent.depth > limits.max_call_depth:
        text = f"the call depth is {parent.depth}; limits.max_call_depth is {limits.max_call_depth}"
        return Rejection("too_large", text)
    if parent.return_step is not None and parent.return_step not in plan.steps:
        missing = no_step(plan, parent.return_step)
        return Rejection(missing.code, f"return_step: {missing.text}")
    return None


def _on_ctx_patched(plan: Plan, state: Execution, fact: events.CtxPatched) -> Sequence[Fact]:
    return on_ctx(state)


def _on_task_processed(plan: Plan, state: Execution, fact: events.TaskProcessed) -> Sequence[Fact]:
    return on_ctx(state) if fact.set_ctx or fact.set_shared or state.usage is not None else ()


def _on_token_injected(plan: Plan, state: Execution, fact: events.TokenInjected) -> Sequence[Fact]:
    token_id = derive(state.execution_id, "injected", fact.request_id)
    return (events.TokenEnqueued(events.Token(token_id, fact.step, "injected", fact.args)),)


def _on_pause_requested(plan: Plan, state: Execution, fact: events.PauseRequested) -> Sequence[Fact]:
    if state.paused_at_ms or state.ending:
        return ()
    return (events.ExecutionPaused(fact.reason), *_order_children(state, "pause", fact.reason))


def _on_resume_requested(plan: Plan, state: Execution, fact: events.ResumeRequested) -> Sequence[Fact]:
    if not state.paused_at_ms:
        return ()
    return (_resume(state), *_order_children(state, "resume", fact.reason))


def _resume(state: Execution) -> Fact:
    return events.ExecutionResumed(max(state.at_ms - state.paused_at_ms, 0))


def _on_cancel_requested(plan: Plan, state: Execution, fact: events.CancelRequested) -> Sequence[Fact]:
    reason = f"the execution is being cancelled: {state.cancelling}"
    if state.quarantined:  # its workers were stopped at its quarantine, and their later reports are not folded
        return (*_order_children(state, "cancel", reason), _end_at_once(state))
    return _stop(plan, state, reason)


def _on_failing(plan: Plan, state: Execution, fact: events.ExecutionFailing) -> Sequence[Fact]:
    return _stop(plan, state, "the execution has failed")


def _on_slot_refused(plan: Plan, state: Execution, fact: events.SlotRefused) -> Sequence[Fact]:
    """Ends a start that finds no slot; ``finally`` does not run, since nothing was done."""
    return (*_stop(plan, state, fact.reason), finished(state, *_end_of(state)))


def _stop(plan: Plan, state: Execution, reason: str) -> Sequence[Fact]:
    """Stops every token, command and child before the execution ends."""
    facts: list[Fact] = [events.TokenDiscarded(token_id, reason) for token_id in state.tokens]
    discards = bool(state.cancelling)
    facts += (
        events.StepCancelled(assignment.step_run_id, assignment.command_id, reason, discards)
        for assignment in state.commands
        if not assignment.cancelling or (discards and not assignment.discards_patches)
    )
    if state.children:
        status, outcome = _end_of(state)
        awaited = state.closing is None and will_undo(plan, state, status, outcome.error)
        facts += _order_children(state, "cancel", reason, awaited)
    if state.assignments:
        due = due_ms(state.at_ms, state.limits.cancel_grace_s)
        facts.append(events.TimerSet(timer_of(state.execution_id, "grace"), "grace", due))
    return facts


def _order_children(state: Execution, order: events.ChildOrder, reason: str, awaited: bool = False) -> Iterator[Fact]:
    # A compensating child takes no second cancel.
    now = order == "cancel" and (state.undoing.at_once or state.is_compensating)
    return (events.ChildOrdered(child_id, order, reason, awaited, now) for child_id in state.children)


RULES: Final[Rules] = {
    events.ExecutionRequested: _on_requested,
    events.ExecutionReused: _on_reused,
    events.RerunRefused: _on_rerun_refused,
    events.ReferenceResolved: _on_awaited,
    events.EvaluationFinished: _on_awaited,
    events.EvaluationFailed: _on_evaluation_failed,
    events.CtxPatched: _on_ctx_patched,
    events.TaskProcessed: _on_task_processed,
    events.TokenInjected: _on_token_injected,
    events.CancelRequested: _on_cancel_requested,
    events.PauseRequested: _on_pause_requested,
    events.ResumeRequested: _on_resume_requested,
    events.ExecutionFailing: _on_failing,
    events.SlotRefused: _on_slot_refused,
    **closing.RULES,
}
