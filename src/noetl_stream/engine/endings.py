"""How commands and step runs leave the state."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from noetl_stream.engine.loop_fold import loop_result
from noetl_stream.engine.state import Assignment, Execution, StepRun
from noetl_stream.model.events import LoopDone, StepDone, StepFailed
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import Outcome, StepValue

replace = msgspec.structs.replace
Value = TypeVar("Value")


def without(mapping: dict[str, Value], key: str) -> dict[str, Value]:
    """A copy of ``mapping`` that lacks ``key``."""
    copy = dict(mapping)
    copy.pop(key, None)
    return copy


def with_run(state: Execution, run: StepRun) -> Execution:
    """``state`` with this value of the step run."""
    return replace(state, runs={**state.runs, run.step_run_id: run})


def drop_assignment(state: Execution, assignment: Assignment) -> Execution:
    """Forgets a command that nobody runs any more; its iteration counts as skipped."""
    state = replace(state, assignments=without(state.assignments, assignment.command_id))
    run = state.runs.get(assignment.step_run_id)
    if run is None or run.loop is None or not assignment.path:
        return state
    return with_run(state, replace(run, loop=replace(run.loop, skipped=run.loop.skipped + 1)))


def end_step(state: Execution, fact: StepDone | StepFailed | LoopDone, progress: Progress | None = None) -> Execution:
    """The step run has ended and awaits its routing; its result is visible from here on (LANGUAGE §2 *Results*).

    Args:
        progress: Where its pipeline stood, for a step without loop that a worker ran.
    """
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended:
        return state
    if isinstance(fact, StepFailed):
        state = _release(state, run.step_run_id)
    if state.failing is not None:
        return replace(state, runs=without(state.runs, run.step_run_id))
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


def step_value(progress: Progress | None) -> StepValue:
    """What a pipeline that ended well leaves to later templates: the outcome of the task run last, and every task's."""
    if progress is None or progress.previous is None:
        return StepValue(Outcome("ok"))
    return StepValue(progress.results[progress.previous], progress.results)


def _release(state: Execution, step_run_id: str) -> Execution:
    """Forgets what is still owed to a step run that has failed without waiting for it."""
    owed = {key: value for key, value in state.assignments.items() if value.step_run_id != step_run_id}
    return state if len(owed) == len(state.assignments) else replace(state, assignments=owed)
