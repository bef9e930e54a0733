"""Routing: which arcs fire when a step run has ended (LANGUAGE §7, formal specification §8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noetl_stream.engine.choices import NO_SCOPE, Choice, made
from noetl_stream.engine.decide import Rules
from noetl_stream.engine.decide.executions import on_ctx
from noetl_stream.engine.scope import arc_scope, expression_failure
from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.model import codec, events
from noetl_stream.model.events import EvaluatedGuard, ExecutionFailing, Fact, NextEvaluated, Token, TokenEnqueued
from noetl_stream.model.ids import derive
from noetl_stream.playbook.plan import ArcPlan, Plan, StepPlan


def route(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """``next.evaluated`` and a token per fired arc; ``execution.failing`` if a failure is unhandled.

    All guards and ``args`` are evaluated against the state before any token is enqueued.

    Raises:
        ReferenceNeeded: one of them reads a result that must be loaded first.
        EvaluationNeeded: they cost more than the server may spend on them here.
    """
    step = plan.steps[run.step]
    if not step.arcs:
        return _close(plan, run, [], [], ())
    # What was chosen elsewhere stays so when `ctx` changes: it is the choice at the end of the step run.
    evaluated = made(state, run.step_run_id, lambda: arcs_of(plan, state, run), lambda chosen: True)
    guards: list[EvaluatedGuard] = []
    fired: list[int] = []
    for index, held in zip(_open_arcs(step, run), evaluated.guards, strict=False):
        guard = step.arcs[index].guard
        guards.append(EvaluatedGuard(guard.source if guard is not None else "true", held, index))
        if held:
            fired.append(index)
    arcs = [step.arcs[index] for index in fired]
    error = evaluated.error or _size_error(state, arcs, evaluated.values)
    if error:
        failing = ExecutionFailing(expression_failure(f"an arc of {run.step}", error), run.step, run.step_run_id)
        return (NextEvaluated(run.step_run_id, run.ended, guards), failing)
    tokens = [_token(run, step.arcs[index], index, args) for index, args in zip(fired, evaluated.values, strict=True)]
    return _close(plan, run, guards, fired, tokens)


def arcs_of(plan: Plan, state: Execution, run: StepRun) -> Choice:
    """Which arcs of an ended step run fire, and with which ``args``."""
    step = plan.steps[run.step]
    options = [step.arcs[index] for index in _open_arcs(step, run)]
    has_templates = any(arc.guard is not None or arc.args.source for arc in options)
    scope = arc_scope(plan, state, run) if has_templates else NO_SCOPE
    return Choice(options, scope, first=step.routing == "exclusive")


def _open_arcs(step: StepPlan, run: StepRun) -> Sequence[int]:
    """The indexes of the arcs that may fire: after a failure, those that handle it."""
    if run.ended != "step.failed":
        return range(len(step.arcs))
    return [index for index, arc in enumerate(step.arcs) if arc.handles_failure]


def _size_error(state: Execution, fired: Sequence[ArcPlan], values: Sequence[Any]) -> str:
    at_most = state.limits.max_ctx_bytes
    for arc, args in zip(fired, values, strict=False):
        size = len(codec.encode(args))
        if size > at_most:
            return f"{arc.label} have {size} bytes; limits.max_ctx_bytes is {at_most}"
    return ""


def _close(
    plan: Plan, run: StepRun, guards: list[EvaluatedGuard], fired: list[int], tokens: Sequence[Token]
) -> Sequence[Fact]:
    evaluated = NextEvaluated(run.step_run_id, run.ended, guards, fired)
    if not fired and run.error is not None and plan.failure_mode == "fail_fast":
        return (evaluated, ExecutionFailing(run.error, run.step, run.step_run_id))
    return (evaluated, *map(TokenEnqueued, tokens))


def _token(run: StepRun, arc: ArcPlan, index: int, args: dict[str, Any]) -> Token:
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
