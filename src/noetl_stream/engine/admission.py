"""Admission: may this token be consumed now (LANGUAGE §4, formal specification §4.2)."""

from __future__ import annotations

from noetl_stream.engine.ids import step_run_of
from noetl_stream.engine.scope import admission_scope
from noetl_stream.engine.state import Execution, WaitingToken
from noetl_stream.model.events import EvaluatedGuard, ExecutionFailing, Fact, TokenClaimed, TokenHeld
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import ExpressionError, ReferenceNeeded, Scope, holds
from noetl_stream.template.compiled import Guard


def admit(plan: Plan, state: Execution, waiting: WaitingToken) -> Fact | None:
    """``token.claimed``, ``token.held`` (once), or ``None`` for a held token that stays held.

    A guard that cannot be evaluated fails the execution (LANGUAGE §2).
    """
    token = waiting.token
    step = plan.steps[token.step]
    if step.admit is None:
        return TokenClaimed(token.token_id, step_run_of(state.execution_id, token.token_id))
    scope = admission_scope(plan, state, token)
    guards: list[EvaluatedGuard] = []
    allowed = False
    for index, rule in enumerate(step.admit):
        if rule.guard is not None:
            try:
                value = judge(rule.guard, scope)
            except ExpressionError as error:
                return ExecutionFailing(expression_failure(f"admission of {token.step}", error), step=token.step)
            guards.append(EvaluatedGuard(rule.guard.source, value, index))
            if not value:
                continue
        else:
            guards.append(EvaluatedGuard("else", True, index))
        allowed = rule.allow
        break
    if allowed:
        return TokenClaimed(token.token_id, step_run_of(state.execution_id, token.token_id), guards)
    return None if waiting.held else TokenHeld(token.token_id, guards)


def judge(guard: Guard, scope: Scope) -> bool:
    """The guard's value on the server, where a reference too large to stand in an event is an error (LANGUAGE §10)."""
    try:
        return holds(guard, scope)
    except ReferenceNeeded as needed:
        raise too_large(guard.source, needed) from None


def too_large(expression: str, needed: ReferenceNeeded) -> ExpressionError:
    """The error for an expression on the server that reads a result kept by reference."""
    return ExpressionError(
        f"reads a result of {needed.reference.size} bytes, which is kept by reference: "
        "return the small value from a task (set_ctx or set_vars) and read that here",
        expression=expression,
    )


def expression_failure(where: str, error: ExpressionError) -> ErrorInfo:
    """The error that ends an execution whose guard, ``args`` or ``in`` cannot be evaluated."""
    return ErrorInfo("expression_error", f"{where}: {error}")
