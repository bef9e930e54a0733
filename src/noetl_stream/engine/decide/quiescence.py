"""Decisions at quiescence: loops advance, waiting tokens are retried, the execution ends (LANGUAGE §4, §7, §9)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from noetl_stream.engine.choices import (
    MAX_CHOICES,
    RESULT,
    Choice,
    EvaluationNeeded,
    Questions,
    Rendering,
    ask,
    ask_of_workload,
    choice_outcome,
    is_current,
)
from noetl_stream.engine.decide.closing import end, go_on
from noetl_stream.engine.decide.emission import emissions_of, parts_of_choice
from noetl_stream.engine.decide.executions import end_when_stopped, on_ctx, workload_of
from noetl_stream.engine.decide.loops import move_loop
from noetl_stream.engine.decide.routing import arcs_of, leave, route
from noetl_stream.engine.decide.slots import grant_turns, release_slots, set_execution_timer
from noetl_stream.engine.decide.suspensions import cancel_unawaited, resume_or_wait, watch
from noetl_stream.engine.decide.tokens import (
    admission_of,
    admit,
    begin,
    break_deadlock,
    enter,
    fire_complete,
    fire_if_enough,
)
from noetl_stream.engine.scope import expression_failure, result_scope
from noetl_stream.engine.state import UNSETTLED, Execution, changed_entries
from noetl_stream.model.events import Fact, TokenDiscarded
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import ErrorInfo, Outcome, Payload
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import Template


def at_quiescence(plan: Plan, state: Execution) -> Sequence[Fact]:
    """The next facts of a quiescent state; empty if it waits for input or has ended.

    Every input leaves a state for which this is empty (tested after every fact); ``advance`` finds the same facts
    without
    scanning the whole state each time.
    """
    return pending_decisions(plan, state) or retry_waiting(plan, state) or move_on(plan, state, UNSETTLED)


def move_on(plan: Plan, state: Execution, settled: Execution) -> Sequence[Fact]:
    """The next facts of a state with no pending fact, no held token that could be admitted and no resting branch that
    could go on.

    Args:
        settled: A quiescent state; parts unchanged since then need no decision.
    """
    if state.ended:
        return ()
    if state.slots and not state.halted and (freed := release_slots(state, settled)):
        return freed
    if state.ending:
        return end_when_stopped(plan, state)
    if state.halted or state.status == "pending":
        return ()
    for _, run in changed_entries(settled.runs, state.runs):
        if run.ended:
            continue  # its branch rests
        if run.loop is not None and (moved := move_loop(plan, state, run)):
            return moved
        if facts := watch(plan, state, run):
            return facts
    if state.slots and (granted := grant_turns(state, settled)):
        return granted
    return cancel_unawaited(state, settled) or _settle_tokens(plan, state)


def retry_waiting(plan: Plan, state: Execution) -> Sequence[Fact]:
    """The facts of the first held token or resting branch that can proceed, in order of arrival (LANGUAGE §4, §7)."""
    if state.ending or state.ended or state.halted:
        return ()
    waiting = [token_id for token_id, token in state.tokens.items() if token.held]
    if state.resting:
        waiting = sorted(
            (*waiting, *state.resting), key=lambda one: (state.tokens.get(one) or state.resting[one]).arrived
        )
    for index, one in enumerate(waiting):
        token = state.tokens.get(one)
        try:
            follows = admit(plan, state, token) if token is not None else route(plan, state, state.runs[one])
        except EvaluationNeeded:
            raise EvaluationNeeded(waiting[index : index + MAX_CHOICES]) from None
        if follows:
            return follows
    return ()


def _settle_tokens(plan: Plan, state: Execution) -> Sequence[Fact]:
    if not state.tokens:
        return () if state.runs else finish(plan, state)
    if facts := fire_complete(plan, state):
        return facts
    waiting = state.tokens.values()
    if state.runs or not all(token.held or token.joining for token in waiting):
        return ()
    if any(token.joining for token in waiting):
        return break_deadlock(plan, state)
    if any(token.keeps_alive for token in waiting):
        return ()
    reason = "nothing left can change its admission"
    return tuple(TokenDiscarded(token_id, reason) for token_id in state.tokens)


def finish(plan: Plan, state: Execution) -> Sequence[Fact]:
    """Ends the execution with its result: that of the return step, if the parent of a child names one."""
    if state.undoing.closing is not None:
        return go_on(plan, state)
    wanted = state.parent.return_step if state.parent is not None else None
    if wanted is not None:
        value = state.steps.get(wanted)
        return _complete(plan, state, value.outcome.result if value is not None else Payload())
    if plan.result is None:  # the last step in file order among the successful step runs that fired no arc
        ends = (state.ends[name] for name in reversed(list(plan.steps)) if name in state.ends)
        return _complete(plan, state, next(ends, Payload()))
    result_template = plan.result
    evaluated = choice_outcome(
        state, RESULT, lambda: result_of(plan, state, result_template), lambda chosen: is_current(state, chosen)
    )
    if evaluated.error:
        return _fail(plan, state, expression_failure("executor.spec.result", evaluated.error))
    result = codec.payload_of(evaluated.values[0])
    if len(result.value) > state.limits.max_inline_bytes:
        text = f"the result has {len(result.value)} bytes; limits.max_inline_bytes is {state.limits.max_inline_bytes}"
        return _fail(plan, state, ErrorInfo("result_too_large", text))
    return _complete(plan, state, result)


def result_of(plan: Plan, state: Execution, result: Template) -> Choice:
    return Choice([Rendering(None, result, str(result.source))], result_scope(plan, state))


def _complete(plan: Plan, state: Execution, result: Payload) -> Sequence[Fact]:
    return end(plan, state, "completed", Outcome("ok", result))


def _fail(plan: Plan, state: Execution, error: ErrorInfo) -> Sequence[Fact]:
    return end(plan, state, "failed", Outcome("error", error=error))


def pending_decisions(plan: Plan, state: Execution) -> Sequence[Fact]:
    """The first pending decisions of a state, found after a halt; empty without any.

    While an execution is paused or waits for a reference, facts are folded but nothing is decided (PROTOCOL §2). The
    state shows what is undecided: tokens not yet admitted, step runs not begun or not routed, suspensions.
    """
    if state.ending or state.ended or state.halted:
        return ()
    if facts := on_ctx(state) or set_execution_timer(plan, state):
        return facts
    begun = {assignment.step_run_id for assignment in state.commands}
    for run in state.runs.values():
        if run.ended and run.step_run_id not in state.resting:
            return leave(plan, state, run)
        is_new = not run.ended and run.loop is None and run.step_run_id not in begun
        if is_new and (facts := begin(plan, state, run)):
            return facts
    for waiting in state.tokens.values():
        if not (waiting.held or waiting.joining) and (facts := enter(plan, state, waiting.token)):
            return facts
    joined = {waiting.token.step for waiting in state.tokens.values() if waiting.joining}
    for step in joined:
        if facts := fire_if_enough(plan, state, step):
            return facts
    for suspended in state.suspensions.values():
        if facts := resume_or_wait(plan, state, suspended):
            return facts
    return ()


def questions_of(plan: Plan, state: Execution) -> Questions | None:
    """The questions that the execution waits for; ``None`` if all are answered."""
    asked = state.evaluation
    if asked is None:
        return None
    if state.request is not None:
        schema = plan.workload_schema
        return None if schema is None else ask_of_workload(schema, workload_of(plan, state.request))
    before = replace(state, ctx=asked.ctx, steps=asked.steps)
    choices = {choice_id: _choice_of(plan, before, choice_id) for choice_id in asked.choices}
    return ask({choice_id: choice for choice_id, choice in choices.items() if choice is not None}, state.limits)


def _choice_of(plan: Plan, state: Execution, choice_id: str) -> Choice | None:
    if choice_id == RESULT:
        return None if plan.result is None else result_of(plan, state, plan.result)
    if (waiting := state.tokens.get(choice_id)) is not None:
        policy = plan.steps[waiting.token.step].admit
        return None if policy is None else admission_of(plan, state, waiting.token, policy)
    step_run_id, boundary = parts_of_choice(choice_id)
    run = state.runs.get(step_run_id)
    if run is None:
        return None
    return arcs_of(plan, state, run) if boundary is None else emissions_of(plan, state, run, boundary)
