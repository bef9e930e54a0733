"""Changes of step runs: their commands are issued, bound to a run and dropped; they end (PROTOCOL §2, §3).

The run lease determines which run of a command the fold accepts, and which of its events is next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from msgspec.structs import replace

from noetl_stream.engine.evolve import Rules, with_assignment, with_run, without, without_turn
from noetl_stream.engine.evolve.closing import note_end
from noetl_stream.engine.evolve.ctx import reduce_all, with_ctx
from noetl_stream.engine.evolve.loops import end_iteration, loop_at, loop_result, named_items, start_level, with_loop
from noetl_stream.engine.state import Assignment, Execution, LoopState, RecordedFact, StepRun
from noetl_stream.model import events
from noetl_stream.model.events import Path
from noetl_stream.model.events.composite import StepRan
from noetl_stream.model.ids import timer_of
from noetl_stream.model.messages import Progress
from noetl_stream.model.outcome import ErrorInfo, Outcome, StepValue
from noetl_stream.template import ExpressionError


def end_slots(state: Execution, step_run_id: str, path: Path) -> Execution:
    """Marks the slots of tasks in this iteration and those inside it as no longer needed."""
    over = {slot_id: replace(slot, over=True) for slot_id, slot in state.slots_in(step_run_id, path) if not slot.over}
    return replace(state, slots={**state.slots, **over}) if over else state


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
    state = end_slots(state, assignment.step_run_id, assignment.path)
    run = state.runs.get(assignment.step_run_id)
    level = loop_at(run.loop, assignment.path[:-1]) if run is not None and assignment.path else None
    if run is None or level is None:
        return state
    inner = {index: loop for index, loop in level.inner.items() if index != assignment.path[-1]}
    level = replace(level, skipped=level.skipped + 1, inner=inner)
    return with_run(state, replace(run, loop=with_loop(run.loop, assignment.path[:-1], level)))


def end_step(
    state: Execution,
    fact: events.StepDone | events.StepFailed | events.LoopDone | StepRan,
    progress: Progress | None = None,
) -> Execution:
    """Ends a step run, which then awaits routing; its result is visible from here on (LANGUAGE §2 *Results*).

    Args:
        progress: The progress of its pipeline, for a step without a loop that ran on a worker.
    """
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended:
        return state
    if isinstance(fact, events.StepFailed):  # it may fail without waiting for its commands
        for assignment in state.commands:
            if assignment.step_run_id == run.step_run_id:
                state = drop_assignment(state, assignment)
    if run.token.partition:
        state = without_turn(state, run)
    if state.timers:
        timer_ids = timer_of(run.step_run_id, "step"), timer_of(run.token.token_id, "deadline")
        state = replace(state, timers=without(state.timers, *timer_ids))
    if state.ending and not state.undoing.undoes:
        return replace(state, runs=without(state.runs, run.step_run_id))
    if isinstance(fact, events.StepFailed):
        value, ended = None, replace(run, ended="step.failed", error=fact.error)
    elif isinstance(fact, events.LoopDone):
        loop = run.loop
        result = loop_result(loop, state.execution_id, run.step_run_id) if loop is not None else Outcome("ok").result
        value = StepValue(Outcome("ok", result))
        ended = replace(run, ended="loop.done", value=value)
    else:
        value = step_value(progress)
        ended = replace(run, ended="step.done", value=value)
    if state.undoing.undoes:
        state = note_end(state, ended)
        if state.ending:
            return replace(state, runs=without(state.runs, run.step_run_id))
    if run.shared is not None:
        state = contribute(state, contributions_of(run))
    if value is None:
        return replace(with_run(state, ended), steps=without(state.steps, run.step))
    if run.loop is not None and ended.ended == "loop.done":
        state = tolerate(state, run.step, run.loop)
    runs, steps = {**state.runs, run.step_run_id: ended}, {**state.steps, run.step: value}
    return replace(state, runs=runs, steps=steps)


def ends_alone(state: Execution, run: StepRun) -> bool:
    """Whether the success of a step run without a loop changes nothing but the run and the result of its step."""
    is_waited_for = run.token.partition or state.timers or run.shared is not None
    return not (is_waited_for or run.ended or state.ending or state.undoing.undoes)


def tolerate(state: Execution, step: str, loop: LoopState) -> Execution:
    """Counts the failed iterations of a successful loop."""
    if not loop.failed_leaves:
        return state
    so_far = state.tolerated.get(step) or events.ToleratedFailures(step, 0)
    together = replace(
        so_far,
        count=so_far.count + loop.count,
        failed=so_far.failed + loop.failed,
        failed_leaves=so_far.failed_leaves + loop.failed_leaves,
    )
    return replace(state, tolerated={**state.tolerated, step: together})


def _on_loop_done(state: Execution, fact: events.LoopDone) -> Execution:
    """Ends a loop: the iteration around an inner one, the step around the outermost one."""
    if not fact.path:
        return end_step(state, fact)
    run = state.runs.get(fact.step_run_id)
    loop = loop_at(run.loop, fact.path) if run is not None else None
    if run is None or loop is None:
        return state
    result = loop_result(loop, state.execution_id, run.step_run_id)
    return end_iteration(state, run, fact.path, "ok", result, unattended=run.unattended + 1)


def step_value(progress: Progress | None) -> StepValue:
    """The value of a completed pipeline for later templates: the outcomes of its last task and of every named task."""
    if progress is None or progress.previous is None:
        return StepValue(Outcome("ok"))
    return StepValue(progress.results[progress.previous], progress.results)


def contribute(state: Execution, contributions: Iterable[tuple[str, events.SharedValue]]) -> Execution:
    """Folds contributions to shared keys; fails the execution if a key holds a value of the wrong type."""
    contributions = list(contributions)
    try:
        ctx = reduce_all(state.ctx, contributions)
    except ExpressionError as error:
        return replace(state, broken=ErrorInfo("expression_error", str(error)))
    return with_ctx(state, ctx, dict.fromkeys(key for key, _ in contributions), "")


def contributions_of(run: StepRun) -> list[tuple[str, events.SharedValue]]:
    """The contributions of the iterations in index order, so that timing does not change the result (LANGUAGE §6)."""
    contributions = []
    link = run.shared
    while link is not None:
        path, position, key, value, link = link
        contributions.append((path, position, key, value))
    contributions.sort(key=lambda contribution: contribution[:2])
    return [(key, value) for _, _, key, value in contributions]


def _on_scheduled(state: Execution, fact: events.StepScheduled) -> Execution:
    present = state.assignments.get(fact.command_id)
    if present is not None:
        if fact.issue <= present.issue:
            return state
        return with_assignment(state, replace(present, issue=fact.issue))
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended or state.ending:
        return state
    items = named_items(state, run, fact.source) or fact.items
    level = None if items is None else LoopState(items, len(items), True, fact.max_in_flight)
    after = start_level(run, fact.path, level, local=True)
    if after is None:
        return state
    if after is not run:
        state = with_run(state, after)
    assignment = Assignment(fact.command_id, fact.step_run_id, fact.path, fact.issue, paging=fact.paging)
    return with_assignment(state, assignment)


def _on_cancelled(state: Execution, fact: events.StepCancelled) -> Execution:
    assignment = state.assignments.get(fact.command_id)
    if assignment is None:
        suspended = state.suspensions.get(fact.command_id)
        return state if suspended is None else drop_assignment(state, suspended)
    if assignment.cancelling and assignment.discards_patches >= fact.discards_patches:
        return state
    if assignment.run is None:
        return drop_assignment(state, assignment)
    reason = assignment.cancelling or fact.reason
    cancelled = replace(assignment, cancelling=reason, discards_patches=fact.discards_patches)
    return with_assignment(state, cancelled)


Classification = Literal["next", "duplicate", "gap", "stale", "unknown"]


def classify(state: Execution | None, recorded: RecordedFact) -> Classification:
    """Classifies a worker's event by its relation to the state.

    ``next``: the fold takes it. ``duplicate``: it was taken before. ``gap``: earlier events are missing. ``stale``: the
    command is bound to another run. ``unknown``: the command has ended or was cancelled, or this issue of it was never
    ordered and would outrank every later issue.
    """
    run, number = recorded.run, recorded.number
    assignment = None if state is None or state.ended or run is None else state.assignments.get(run.command_id)
    if assignment is None or run is None or not 1 <= run.issue <= assignment.issue:
        return "unknown"
    if assignment.run == run:
        expected = assignment.next_number
        return "next" if number == expected else "duplicate" if number < expected else "gap"
    if assignment.run is not None:
        takes_over = type(recorded.fact) is events.StepClaimed and run.rank > assignment.run.rank
        if not takes_over:
            return "stale"
    return "next" if number == 0 else "gap"


def bind(assignment: Assignment, recorded: RecordedFact) -> Assignment:
    """The assignment after taking this event of ``recorded.run`` (classified as ``next``)."""
    run, next_number = recorded.run, recorded.number + recorded.fact.width
    if run is None or (assignment.run is not None and assignment.run.issue == run.issue):
        return replace(assignment, run=run, next_number=next_number)
    return replace(assignment, run=run, next_number=next_number, taken=assignment.taken + 1)


def _on_emitted(state: Execution, fact: events.StepEmitted) -> Execution:
    return replace(state) if fact.step_run_id in state.runs else state


RULES: Final[Rules] = {
    events.StepEmitted: _on_emitted,
    events.StepScheduled: _on_scheduled,
    events.StepCancelled: _on_cancelled,
    events.StepDone: end_step,
    events.StepFailed: end_step,
    events.LoopDone: _on_loop_done,
}
