"""How worker facts change the state: bound run, numbers without holes, progress, patches, ends (PROTOCOL §3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from noetl_stream.engine.binding import bind, standing
from noetl_stream.engine.endings import drop_assignment, end_step, step_value, with_run, without
from noetl_stream.engine.loop_fold import end_iteration
from noetl_stream.engine.progress import advance_progress
from noetl_stream.engine.state import Assignment, Execution, Occurrence
from noetl_stream.model import codec, events
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.reference import Payload

replace = msgspec.structs.replace


def evolve_reported(state: Execution, occurrence: Occurrence) -> Execution:
    """The state after a worker's event; the very same value unless it is the next event of the bound run.

    A fact that is no worker's to report changes nothing either.
    """
    fact, run = occurrence.fact, occurrence.run
    assert run is not None
    rule = _WORKER_FACTS.get(type(fact))
    if rule is None or standing(state, run, occurrence.number, claim=type(fact) is events.StepClaimed) != "next":
        return state
    return rule(state, bind(state.assignments[run.command_id], occurrence), fact)


def _noted(state: Execution, assignment: Assignment, fact: events.Fact) -> Execution:
    return replace(state, assignments={**state.assignments, assignment.command_id: assignment})


def _claimed(state: Execution, assignment: Assignment, fact: events.StepClaimed) -> Execution:
    return drop_assignment(state, assignment) if assignment.cancelling else _noted(state, assignment, fact)


def _processed(state: Execution, assignment: Assignment, fact: events.TaskProcessed) -> Execution:
    key = fact.path[0] if fact.path else 0
    run = state.runs[assignment.step_run_id]
    before = assignment.progress.get(key) or Progress(vars=run.vars)
    progress = advance_progress(before, fact)
    state = _noted(state, replace(assignment, progress={**assignment.progress, key: progress}), fact)
    if not (fact.set_ctx or fact.set_vars):
        return state
    run = replace(run, patches={**run.patches, **fact.set_ctx}, vars=progress.vars)
    state = with_run(state, run)
    if not fact.set_ctx:
        return state
    ctx = {**state.ctx, **fact.set_ctx}
    return replace(state, ctx=ctx, ctx_bytes=len(codec.encode(ctx)))


def _iteration_done(state: Execution, assignment: Assignment, fact: events.LoopIterationDone) -> Execution:
    progress = assignment.progress.get(fact.path[0])
    payload = step_value(progress).outcome.result
    return _iteration_ended(state, assignment, fact.path[0], "ok", payload, None)


def _iteration_failed(state: Execution, assignment: Assignment, fact: events.LoopIterationFailed) -> Execution:
    index = fact.path[0]
    skipped = bool(assignment.cancelling) and fact.error.kind == "cancelled"
    error = replace(fact.error, index=index)
    return _iteration_ended(state, assignment, index, "skipped" if skipped else "failed", Payload(), error)


def _iteration_ended(
    state: Execution, assignment: Assignment, index: int, ending: Any, payload: Payload, error: ErrorInfo | None
) -> Execution:
    run = state.runs[assignment.step_run_id]
    if run.loop is None:
        return _noted(state, assignment, events.LoopIterationDone((index,)))
    if assignment.path:
        state = replace(state, assignments=without(state.assignments, assignment.command_id))
    else:
        progress = {key: value for key, value in assignment.progress.items() if key != index}
        failures = {**assignment.failures, index: error} if error else assignment.failures
        local = replace(assignment, progress=progress, failures=failures)
        state = replace(state, assignments={**state.assignments, assignment.command_id: local})
    loop = end_iteration(run.loop, index, ending, payload, state.limits.max_inline_bytes, error)
    return with_run(state, replace(run, loop=loop))


def _ended(
    state: Execution, assignment: Assignment, fact: events.StepDone | events.StepFailed | events.LoopDone
) -> Execution:
    progress = assignment.progress.get(0) if isinstance(fact, events.StepDone | events.StepFailed) else None
    state = replace(state, assignments=without(state.assignments, assignment.command_id))
    return end_step(state, fact, progress)


_WORKER_FACTS: Final[dict[type, Callable[[Execution, Assignment, Any], Execution]]] = {
    events.StepClaimed: _claimed,
    events.StepStarted: _noted,
    events.TaskStarted: _noted,
    events.LoopStarted: _noted,
    events.LoopIterationStarted: _noted,
    events.TaskProcessed: _processed,
    events.LoopIterationDone: _iteration_done,
    events.LoopIterationFailed: _iteration_failed,
    events.StepDone: _ended,
    events.StepFailed: _ended,
    events.LoopDone: _ended,
}
