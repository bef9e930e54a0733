"""Routing: which arcs fire when a step run has ended (LANGUAGE §7, formal specification §8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noetl_stream.engine.decide import Rules
from noetl_stream.engine.decide.executions import on_ctx
from noetl_stream.engine.scope import arc_scope, evaluate, expression_failure
from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.model import codec, events
from noetl_stream.model.events import EvaluatedGuard, ExecutionFailing, Fact, NextEvaluated, Token, TokenEnqueued
from noetl_stream.model.ids import derive
from noetl_stream.playbook.plan import ArcPlan, Plan
from noetl_stream.template import ExpressionError, Scope, holds, render


def route(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """``next.evaluated`` and a token per fired arc; ``execution.failing`` if a failure is unhandled.

    All guards and ``args`` are evaluated against the state before any token is enqueued.

    Raises:
        ReferenceNeeded: one of them reads a result that must be loaded first.
    """
    step = plan.steps[run.step]
    if not step.arcs:
        return _close(plan, run, [], [], ())
    scope = arc_scope(plan, state, run)
    guards: list[EvaluatedGuard] = []
    fired: list[int] = []
    try:
        for index, arc in enumerate(step.arcs):
            if run.ended == "step.failed" and not arc.handles_failure:
                continue
            value = arc.guard is None or evaluate(holds, arc.guard, scope, arc.guard.source)
            guards.append(EvaluatedGuard(arc.guard.source if arc.guard else "true", value, index))
            if value:
                fired.append(index)
                if step.routing == "exclusive":
                    break
        tokens = [_token(state, run, step.arcs[index], index, scope) for index in fired]
    except ExpressionError as error:
        failure = expression_failure(f"an arc of {run.step}", error)
        failing = ExecutionFailing(failure, run.step, run.step_run_id)
        return (NextEvaluated(run.step_run_id, run.ended, guards), failing)
    return _close(plan, run, guards, fired, tokens)


def _close(
    plan: Plan, run: StepRun, guards: list[EvaluatedGuard], fired: list[int], tokens: Sequence[Token]
) -> Sequence[Fact]:
    evaluated = NextEvaluated(run.step_run_id, run.ended, guards, fired)
    if not fired and run.error is not None and plan.failure_mode == "fail_fast":
        return (evaluated, ExecutionFailing(run.error, run.step, run.step_run_id))
    return (evaluated, *map(TokenEnqueued, tokens))


def _token(state: Execution, run: StepRun, arc: ArcPlan, index: int, scope: Scope) -> Token:
    args: dict[str, Any] = evaluate(render, arc.args, scope, f"args of the arc to {arc.step}")
    size, at_most = len(codec.encode(args)), state.limits.max_ctx_bytes
    if size > at_most:
        raise ExpressionError(f"args of the arc to {arc.step} have {size} bytes; limits.max_ctx_bytes is {at_most}")
    return Token(
        token_id=derive(run.step_run_id, "arc", index),
        step=arc.step,
        cause="arc",
        args=args,
        from_step=run.step,
        from_step_run_id=run.step_run_id,
        waves=run.token.waves,
    )


def _step_ended(
    plan: Plan, state: Execution, fact: events.StepDone | events.StepFailed | events.LoopDone
) -> Sequence[Fact]:
    run = state.runs.get(fact.step_run_id)
    if run is None or not run.ended or state.ending:
        return ()
    return (*on_ctx(state), *route(plan, state, run))


RULES: Final[Rules] = {events.StepDone: _step_ended, events.StepFailed: _step_ended, events.LoopDone: _step_ended}
