"""How an execution starts: from the beginning, as a rerun, or not at all (LANGUAGE §9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noetl_stream.engine.decide import NOTHING, Rules
from noetl_stream.engine.decide.client_requests import no_step
from noetl_stream.engine.state import Execution, due_ms
from noetl_stream.model import codec, events
from noetl_stream.model.ids import derive, timer_of
from noetl_stream.model.messages import FORMAT
from noetl_stream.model.outcome import ErrorInfo, Outcome
from noetl_stream.model.status import Rejection
from noetl_stream.playbook.plan import Plan


def refuse(diagnostics: list[dict[str, Any]], reason: str, kind: str = "invalid_playbook") -> Sequence[events.Fact]:
    """What follows from a request whose playbook cannot run: the execution fails with diagnostics (LANGUAGE §9)."""
    outcome = Outcome("error", error=ErrorInfo(kind, reason))
    return (
        events.ExecutionEvaluated(False, diagnostics),
        events.ExecutionFinished("failed", outcome),
        events.PlaybookProcessed("failed"),
    )


def _requested(plan: Plan, state: Execution, fact: events.ExecutionRequested) -> Sequence[events.Fact]:
    token = events.Token(derive(state.execution_id, "start"), plan.entry, "start")
    return _start(plan, state, fact, deep_merge(plan.workload, fact.workload), events.TokenEnqueued(token))


def _reused(plan: Plan, state: Execution, fact: events.ExecutionReused) -> Sequence[events.Fact]:
    """A rerun starts where its original was before the chosen step run."""
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
        digest=plan.digest,
        path=plan.path,
        version=plan.version,
        format=FORMAT,
        workload=workload,
        limits=plan.limits,
        trace_id=request.trace_id,
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
            return Rejection("too_large", f"{what} {size} bytes; limits.{limit} is {at_most}")
    if parent is None:
        return None
    if parent.depth > limits.max_call_depth:
        text = f"the call depth is {parent.depth}; limits.max_call_depth is {limits.max_call_depth}"
        return Rejection("too_large", text)
    if parent.return_step is not None and parent.return_step not in plan.steps:
        code, text = no_step(plan, parent.return_step)
        return Rejection(code, f"return_step: {text}")
    return None


def deep_merge(base: Any, over: Any) -> Any:
    """Merges mappings key by key; replaces everything else, null included (LANGUAGE §9)."""
    if not (isinstance(base, dict) and isinstance(over, dict)):
        return over
    return {**base, **{key: deep_merge(base[key], value) if key in base else value for key, value in over.items()}}


RULES: Final[Rules] = {
    events.ExecutionRequested: _requested,
    events.ExecutionReused: _reused,
    events.RerunRefused: _rerun_refused,
}
