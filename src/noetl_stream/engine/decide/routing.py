"""Decisions about routing: the firing arcs of an ended step run, and resting branches (LANGUAGE §7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from noetl_stream.engine.choices import NO_SCOPE, Choice, evaluate_here, is_current
from noetl_stream.engine.decide import Rules
from noetl_stream.engine.decide.emission import emit
from noetl_stream.engine.decide.executions import on_ctx
from noetl_stream.engine.decide.slots import key_text
from noetl_stream.engine.decide.tokens import size_error
from noetl_stream.engine.evolve.tokens import has_sent
from noetl_stream.engine.scope import arc_scope, expression_failure
from noetl_stream.engine.state import Chosen, Execution, StepRun, due_ms
from noetl_stream.model import events
from noetl_stream.model.events import EvaluatedGuard, ExecutionFailing, Fact, NextEvaluated, Token, TokenEnqueued
from noetl_stream.model.events.composite import StepRan, TokenPassed
from noetl_stream.model.ids import derive, timer_of
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.plan import ArcPlan, Plan, StepPlan, WaitPlan
from noetl_stream.template import ExpressionError


def route(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """Routes an ended step run: ``next.evaluated`` and a token per fired arc; ``execution.failing`` if a failure is
    unhandled.

    ``next.resting`` (once) with a timer if no arc fires yet; nothing for a branch that keeps resting. All guards and
    ``args`` are evaluated against the state before any token is enqueued.

    Raises:
        ReferenceNeeded: one of them reads a result that must be loaded first.
        EvaluationNeeded: they cost more than the server may spend on them here.
    """
    step = plan.steps[run.step]
    if not step.arcs:
        return _close(plan, run, [], [], ())
    rests = step.next_wait if run.ended in ("step.done", "loop.done") else None
    chosen = state.chosen.get(run.step_run_id) if state.chosen else None
    if chosen is not None and _is_valid(state, chosen, rests):
        evaluated = chosen.evaluated
    else:
        evaluated = evaluate_here(run.step_run_id, arcs_of(plan, state, run))
    guards: list[EvaluatedGuard] = []
    fired: list[int] = []
    for place, (index, held) in enumerate(zip(_open_arcs(step, run), evaluated.guards, strict=False)):
        waits_for = evaluated.waits_for.get(place, "")
        guards.append(EvaluatedGuard(step.arcs[index].condition, held, index, waits_for))
        if held:
            fired.append(index)
    if step.has_arc_specs and not evaluated.error and (fired or rests is None):
        return _route_by_specs(plan, state, run, guards, dict(zip(fired, evaluated.values, strict=True)))
    arcs = [step.arcs[index] for index in fired]
    error = evaluated.error or _size_error(state, arcs, evaluated.values)
    if error:
        return _fail(run, guards, error)
    if rests is not None and not fired:
        return () if run.step_run_id in state.resting else _rest(state, run, rests, guards)
    tokens = [_token(run, step.arcs[index], index, args) for index, args in zip(fired, evaluated.values, strict=True)]
    return _close(plan, run, guards, fired, tokens)


def _is_valid(state: Execution, chosen: Chosen, rests: WaitPlan | None) -> bool:
    """Whether a choice made elsewhere still holds: it was made at the end of the step run, so that it stays valid when
    ``ctx`` changes, unless the branch rests.
    """
    return rests is None or any(chosen.evaluated.guards) or is_current(state, chosen)


def _fail(run: StepRun, guards: list[EvaluatedGuard], error: str) -> Sequence[Fact]:
    failing = ExecutionFailing(expression_failure(f"an arc of {run.step}", error), run.step, run.step_run_id)
    return (NextEvaluated(run.step_run_id, run.ended, guards), failing)


def _route_by_specs(
    plan: Plan, state: Execution, run: StepRun, guards: list[EvaluatedGuard], holding: Mapping[int, Any]
) -> Sequence[Fact]:
    """Routes an ended step run some of whose arcs have a ``spec``.

    Args:
        holding: The rendered ``args`` of the arcs whose guards hold, by index, with a ``spec`` among its keys.
    """
    tokens: dict[int, Token] = {}
    keys: dict[int, str] = {}
    for index, value in holding.items():
        arc = plan.steps[run.step].arcs[index]
        args = value if arc.spec is None else value["args"]
        if error := size_error(state, f"{arc.label} have", args):
            return _fail(run, guards, error)
        token, spec = _token(run, arc, index, args), arc.spec
        try:
            if spec is not None and spec.dedupe is not None:
                keys[index] = key_text(value["dedupe"], str(spec.dedupe.source))
                if has_sent(state, run.step, index, keys[index]):
                    continue
            if spec is not None:
                partition = "" if spec.partition is None else key_text(value["partition"], str(spec.partition.source))
                token = replace(token, priority=spec.priority, partition=partition)
        except ExpressionError as error:
            return _fail(run, guards, str(error))
        tokens[index] = token
    return _close(plan, run, guards, list(tokens), list(tokens.values()), keys)


def leave(plan: Plan, state: Execution, run: StepRun) -> Sequence[Fact]:
    """Leaves an ended step run: decides its emitted events and its routing at once, so that nothing is emitted twice.

    Raises:
        ReferenceNeeded, EvaluationNeeded: as for :func:`route`.
    """
    if not plan.steps[run.step].emits:
        return route(plan, state, run)
    emitted = emit(plan, state, run, "failed" if run.ended == "step.failed" else "completed")
    if emitted and isinstance(emitted[-1], ExecutionFailing):
        return (NextEvaluated(run.step_run_id, run.ended), *emitted)
    return (*emitted, *route(plan, state, run))


def arcs_of(plan: Plan, state: Execution, run: StepRun) -> Choice:
    """The choice of the firing arcs of an ended step run, and of their ``args``."""
    step = plan.steps[run.step]
    options = [step.arcs[index] for index in _open_arcs(step, run)]
    scope = arc_scope(plan, state, run) if step.arcs_have_templates else NO_SCOPE
    return Choice(options, scope, first=step.routing == "exclusive", waits=step.next_wait is not None)


def _open_arcs(step: StepPlan, run: StepRun) -> Sequence[int]:
    """The indexes of the arcs that may fire; after a failure, those that handle it."""
    if run.ended != "step.failed":
        return range(len(step.arcs))
    return [index for index, arc in enumerate(step.arcs) if arc.handles_failure]


def _rest(state: Execution, run: StepRun, wait: WaitPlan, guards: list[EvaluatedGuard]) -> Sequence[Fact]:
    due = due_ms(state.at_ms, wait.timeout_s)
    timer = events.TimerSet(timer_of(run.step_run_id, "next"), "next", due, run.step_run_id)
    return (events.NextResting(run.step_run_id, run.ended, guards), timer)


def _size_error(state: Execution, fired: Sequence[ArcPlan], values: Sequence[Any]) -> str:
    for arc, args in zip(fired, values, strict=False):
        if args and (error := size_error(state, f"{arc.label} have", args)):
            return error
    return ""


def _close(
    plan: Plan,
    run: StepRun,
    guards: list[EvaluatedGuard],
    fired: list[int],
    tokens: Sequence[Token],
    keys: dict[int, str] | None = None,
) -> Sequence[Fact]:
    """Ends the branch or sends its tokens. An arc whose guard holds handles a failure even without a second token."""
    step = plan.steps[run.step]
    if keys:
        return (NextEvaluated(run.step_run_id, run.ended, guards, fired, keys=keys), *map(TokenEnqueued, tokens))
    error = (run.error or _routing_timeout(step, run)) if not fired else None
    if error is not None and step.failure_mode == "fail_fast":
        evaluated = NextEvaluated(run.step_run_id, run.ended, guards, fired)
        return (evaluated, ExecutionFailing(error, run.step, run.step_run_id))
    evaluated = NextEvaluated(run.step_run_id, run.ended, guards, fired, tolerated=error is not None)
    return (evaluated, *map(TokenEnqueued, tokens))


def _routing_timeout(step: StepPlan, run: StepRun) -> ErrorInfo | None:
    """The failure of a branch that rested too long, unless it is to be discarded."""
    wait = step.next_wait
    if run.ended != "next.timed_out" or wait is None or wait.on_timeout == "discard":
        return None
    text = f"no arc of step {step.name} fired within next.spec.wait.timeout_s ({wait.timeout_s:g} s)"
    return ErrorInfo("routing_timeout", text)


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


def _on_step_ended(
    plan: Plan, state: Execution, fact: events.StepDone | events.StepFailed | events.LoopDone | StepRan
) -> Sequence[Fact]:
    run = state.runs.get(fact.step_run_id)
    if run is None or not run.ended or state.ending:
        return ()
    return (*on_ctx(state), *leave(plan, state, run))


def pass_on(plan: Plan, state: Execution, follows: Sequence[Fact]) -> Sequence[Fact]:
    """Shortens ``follows``, the decisions after an input, to one fact if they pass a token on that is admitted at once
    while no other waits and no quota counts the step run.
    """
    if len(follows) != 2 or state.tokens or state.resting or state.usage is not None:
        return follows
    evaluated, enqueued = follows
    if not isinstance(evaluated, NextEvaluated) or not isinstance(enqueued, TokenEnqueued):
        return follows
    token = enqueued.token
    if evaluated.keys or token.priority is not None or token.partition:
        return follows
    is_open = plan.steps[token.step].admits_at_once and state.step_runs < state.limits.max_step_runs
    if not is_open or evaluated.event != "step.done":
        return follows
    from_step = state.runs[evaluated.step_run_id].step
    (arc,) = evaluated.fired
    passed = TokenPassed(
        step_run_id=evaluated.step_run_id,
        from_step=from_step,
        step=token.step,
        arc=arc,
        guards=evaluated.guards,
        args=token.args,
        waves=token.waves,
    )
    return (passed,)


def _on_next_timed_out(plan: Plan, state: Execution, fact: events.NextTimedOut) -> Sequence[Fact]:
    run = state.runs.get(fact.step_run_id)
    return () if run is None or state.ending else route(plan, state, run)


RULES: Final[Rules] = {
    events.StepDone: _on_step_ended,
    StepRan: _on_step_ended,
    events.StepFailed: _on_step_ended,
    events.LoopDone: _on_step_ended,
    events.NextTimedOut: _on_next_timed_out,
}
