"""Admission: whether a token may be consumed now (LANGUAGE §4, formal specification §4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.engine.ids import step_run_of, timer_of
from noetl_stream.engine.scope import admission_scope
from noetl_stream.engine.state import Execution, WaitingToken, due_ms
from noetl_stream.model.events import EvaluatedGuard, ExecutionFailing, Fact, TimerSet, Token, TokenClaimed, TokenHeld
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import AdmitPlan, Plan
from noetl_stream.template import ExpressionError, Guard, ReferenceNeeded, Scope, holds


def admit(plan: Plan, state: Execution, waiting: WaitingToken) -> Sequence[Fact]:
    """``token.claimed``, or ``token.held`` (once) with a timer if it may wait; nothing for a token that stays held.

    A guard that cannot be evaluated fails the execution (LANGUAGE §2).

    Raises:
        ReferenceNeeded: a guard reads a result that must be loaded first.
    """
    token = waiting.token
    policy = plan.steps[token.step].admit
    guards: list[EvaluatedGuard] = []
    if policy is not None:
        try:
            allowed, guards = _judge(state, policy, admission_scope(plan, state, token))
        except ExpressionError as error:
            failure = expression_failure(f"admission of {token.step}", error)
            return (ExecutionFailing(failure, token.step, failed_token=token.token_id),)
        if not allowed:
            return () if waiting.held else _hold(state, policy, token, guards)
    if state.step_runs >= state.limits.max_step_runs:
        text = f"limits.max_step_runs ({state.limits.max_step_runs}) reached"
        return (ExecutionFailing(ErrorInfo("limit_exceeded", text), token.step, failed_token=token.token_id),)
    return (TokenClaimed(token.token_id, step_run_of(state.execution_id, token.token_id), guards),)


def _hold(state: Execution, policy: AdmitPlan, token: Token, guards: list[EvaluatedGuard]) -> Sequence[Fact]:
    held = TokenHeld(token.token_id, guards, keeps_alive=policy.wait_s is not None)
    if policy.wait_s is None:
        return (held,)
    due = due_ms(state.at_ms, policy.wait_s)
    return (held, TimerSet(timer_of(token.token_id, "admission"), "admission", due, token.token_id))


def _judge(state: Execution, policy: AdmitPlan, scope: Scope) -> tuple[bool, list[EvaluatedGuard]]:
    guards: list[EvaluatedGuard] = []
    for index, rule in enumerate(policy.rules):
        if rule.guard is None:
            guards.append(EvaluatedGuard("else", True, index))
            return rule.allow, guards
        value = judge(rule.guard, scope, state.limits.max_resolve_bytes)
        guards.append(EvaluatedGuard(rule.guard.source, value, index))
        if value:
            return rule.allow, guards
    return False, guards


def judge(guard: Guard, scope: Scope, max_resolve_bytes: int) -> bool:
    """The guard's value, evaluated on the server.

    Raises:
        ReferenceNeeded: the guard reads a result that must be loaded first.
        ExpressionError: the guard cannot be evaluated, or that result is too large to load here (LANGUAGE §10).
    """
    try:
        return holds(guard, scope)
    except ReferenceNeeded as needed:
        raise_unless_loadable(guard.source, needed, max_resolve_bytes)
        raise


def raise_unless_loadable(expression: str, needed: ReferenceNeeded, max_resolve_bytes: int) -> None:
    """Raises ``ExpressionError`` if a server-side expression reads a result too large to load (LANGUAGE §10)."""
    size = needed.reference.size
    if size <= max_resolve_bytes:
        return
    raise ExpressionError(
        f"reads a result of {size} bytes, kept by reference; the server loads at most {max_resolve_bytes} "
        "(limits.max_resolve_bytes): return the small value from a task (set_ctx or set_vars) and read that instead",
        expression=expression,
    ) from None


def expression_failure(where: str, error: ExpressionError) -> ErrorInfo:
    """The error that fails an execution whose guard, ``args`` or ``in`` cannot be evaluated."""
    return ErrorInfo("expression_error", f"{where}: {error}")
