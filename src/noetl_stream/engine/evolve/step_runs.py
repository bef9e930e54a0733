"""How step runs end, and how their commands and timers leave the state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules, with_run, without
from noetl_stream.engine.evolve.ctx import reduce_all, with_ctx
from noetl_stream.engine.evolve.loops import end_iteration, loop_at, loop_result, with_loop
from noetl_stream.engine.state import Assignment, Execution, StepRun
from noetl_stream.model.events import LoopDone, SharedValue, StepDone, StepFailed
from noetl_stream.model.ids import timer_of
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome, StepValue
from noetl_stream.template import ExpressionError


def drop_assignment(state: Execution, assignment: Assignment) -> Execution:
    """Drops a command that will not run any more, suspended or not; its iteration counts as skipped."""
    command_id = assignment.command_id
    timers = without(state.timers, *(timer_of(command_id, "wait", wait.path) for wait in assignment.waits.values()))
    state = replace(
        state,
        assignments=without(state.assignments, command_id),
        suspensions=without(state.suspensions, command_id),
        timers=timers,
    )
    run = state.runs.get(assignment.step_run_id)
    level = loop_at(run.loop, assignment.path[:-1]) if run is not None and assignment.path else None
    if run is None or level is None:
        return state
    inner = {index: loop for index, loop in level.inner.items() if index != assignment.path[-1]}
    level = replace(level, skipped=level.skipped + 1, inner=inner)
    return with_run(state, replace(run, loop=with_loop(run.loop, assignment.path[:-1], level)))


def end_step(state: Execution, fact: StepDone | StepFailed | LoopDone, progress: Progress | None = None) -> Execution:
    """Ends a step run, which then awaits routing; its result is visible from here on (LANGUAGE §2 *Results*).

    Args:
        progress: The progress of its pipeline, for a step without a loop that ran on a worker.
    """
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended:
        return state
    if isinstance(fact, StepFailed):
        state = _release(state, run.step_run_id)
    state = _drop_timers(state, run)
    if state.ending:
        return replace(state, runs=without(state.runs, run.step_run_id))
    if run.shared is not None:
        state = contribute(state, contributions_of(run))
    if isinstance(fact, StepFailed):
        ended = replace(run, ended="step.failed", error=fact.error)
        return replace(with_run(state, ended), steps=without(state.steps, run.step))
    if isinstance(fact, LoopDone):
        loop = run.loop
        result = loop_result(loop, state.execution_id, run.step_run_id) if loop is not None else Outcome("ok").result
        value = StepValue(Outcome("ok", result))
        ended = replace(run, ended="loop.done")
    else:
        value = step_value(progress)
        ended = replace(run, ended="step.done")
    return replace(with_run(state, ended), steps={**state.steps, run.step: value})


def _loop_done(state: Execution, fact: LoopDone) -> Execution:
    """Ends a loop: an inner one ends the iteration around it, the outermost one the step."""
    if not fact.path:
        return end_step(state, fact)
    run = state.runs.get(fact.step_run_id)
    loop = loop_at(run.loop, fact.path) if run is not None else None
    if run is None or loop is None:
        return state
    result = loop_result(loop, state.execution_id, run.step_run_id)
    return end_iteration(state, run, fact.path, "ok", result, unattended=run.unattended + 1)


def step_value(progress: Progress | None) -> StepValue:
    """What later templates read of a completed pipeline: the outcome of the last task, and of every named task."""
    if progress is None or progress.previous is None:
        return StepValue(Outcome("ok"))
    return StepValue(progress.results[progress.previous], progress.results)


def contribute(state: Execution, contributions: Iterable[tuple[str, SharedValue]]) -> Execution:
    """Folds contributions to shared keys; fails the execution if a key holds the wrong type."""
    contributions = list(contributions)
    try:
        ctx = reduce_all(state.ctx, contributions)
    except ExpressionError as error:
        return replace(state, broken=ErrorInfo("expression_error", str(error)))
    return with_ctx(state, ctx, dict.fromkeys(key for key, _ in contributions), "")


def contributions_of(run: StepRun) -> list[tuple[str, SharedValue]]:
    """The contributions of the iterations in index order, so that timing does not change the result (LANGUAGE §6)."""
    found = []
    link = run.shared
    while link is not None:
        path, position, key, value, link = link
        found.append((path, position, key, value))
    found.sort(key=lambda one: one[:2])
    return [(key, value) for _, _, key, value in found]


def _drop_timers(state: Execution, run: StepRun) -> Execution:
    if not state.timers:
        return state
    ids = timer_of(run.step_run_id, "step"), timer_of(run.token.token_id, "deadline")
    return replace(state, timers=without(state.timers, *ids))


def _release(state: Execution, step_run_id: str) -> Execution:
    """Drops what is still owed to a step run that failed without waiting for it."""
    for assignment in state.commands:
        if assignment.step_run_id == step_run_id:
            state = drop_assignment(state, assignment)
    return state


RULES: Final[Rules] = {StepDone: end_step, StepFailed: end_step, LoopDone: _loop_done}
