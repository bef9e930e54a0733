"""How loops change: distributed ones by the server's facts, local ones as their commands are issued (LANGUAGE §6)."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.engine.evolve import Rules
from noetl_stream.engine.evolve.loop_progress import Ending, end_iteration, loop_at, loop_result, with_loop
from noetl_stream.engine.evolve.step_runs import end_step, with_run
from noetl_stream.engine.state import Execution, LoopState, StepRun
from noetl_stream.model import events
from noetl_stream.model.outcome import ErrorInfo, Payload

replace = msgspec.structs.replace


def ordered(run: StepRun, fact: events.StepScheduled) -> StepRun | None:
    """The step run once this command is issued; ``None`` if it was issued before."""
    paged_out = loop_at(run.loop, fact.path)
    if paged_out is not None:
        return _begun(run, fact.path, paged_out, local=True)
    local = None if fact.items is None else LoopState(fact.items, len(fact.items), True, fact.max_in_flight)
    if not fact.path:
        return run if local is None else replace(run, loop=local)
    level = loop_at(run.loop, fact.path[:-1])
    if level is None or fact.path[-1] < level.next_index:
        return None
    level = replace(level, next_index=fact.path[-1] + 1)
    if local is not None:
        level = replace(level, inner={**level.inner, fact.path[-1]: local})
    return replace(run, loop=with_loop(run.loop, fact.path[:-1], level))


def started(state: Execution, fact: events.LoopStarted) -> Execution:
    """Starts a distributed level with its first items, or with the pages a worker has paged out."""
    run = state.runs.get(fact.step_run_id)
    if run is None or run.ended:
        return state
    paged_out = loop_at(run.loop, fact.path)
    if paged_out is not None:
        begun = _begun(run, fact.path, paged_out, local=False)
        return state if begun is None else with_run(state, begun)
    loop = LoopState(fact.items, fact.count, False, fact.max_in_flight)
    if fact.path:
        around = loop_at(run.loop, fact.path[:-1])
        if around is None or fact.path[-1] < around.next_index:
            return state
        around = replace(around, next_index=fact.path[-1] + 1)
        run = replace(run, loop=with_loop(run.loop, fact.path[:-1], around))
    return with_run(state, replace(run, loop=with_loop(run.loop, fact.path, loop)))


def _begun(run: StepRun, path: events.Path, level: LoopState, *, local: bool) -> StepRun | None:
    if level.begun:
        return None
    return replace(run, loop=with_loop(run.loop, path, replace(level, begun=True, local=local)))


def paged(state: Execution, fact: events.LoopPaged) -> Execution:
    """Appends the next items of a long list."""
    run = state.runs.get(fact.step_run_id)
    loop = loop_at(run.loop, fact.path) if run is not None else None
    if run is None or loop is None or len(loop.items) + len(fact.items) > loop.count:
        return state
    loop = replace(loop, items=loop.items + fact.items)
    return with_run(state, replace(run, loop=with_loop(run.loop, fact.path, loop)))


def done(state: Execution, fact: events.LoopDone) -> Execution:
    """Ends a loop: an inner one ends the iteration around it, the outermost one the step."""
    if not fact.path:
        return end_step(state, fact)
    run = state.runs.get(fact.step_run_id)
    loop = loop_at(run.loop, fact.path) if run is not None else None
    if run is None or loop is None:
        return state
    result = loop_result(loop, state.execution_id, run.step_run_id)
    return _end_around(state, run, fact.path, "ok", result, None)


def iteration_failed(state: Execution, fact: events.LoopIterationFailed) -> Execution:
    """Fails the iteration around an inner loop that could not start or has failed."""
    run = state.runs.get(fact.step_run_id)
    around = loop_at(run.loop, fact.path[:-1]) if run is not None else None
    if run is None or run.ended or around is None or around.has_ended(fact.path[-1]):
        return state
    return _end_around(state, run, fact.path, "failed", Payload(), replace(fact.error, index=fact.path[-1]))


def _end_around(
    state: Execution, run: StepRun, path: events.Path, ending: Ending, result: Payload, error: ErrorInfo | None
) -> Execution:
    around = loop_at(run.loop, path[:-1])
    assert around is not None
    around = replace(around, next_index=max(around.next_index, path[-1] + 1))
    around = end_iteration(around, path[-1], ending, result, state.limits.max_inline_bytes, error)
    run = replace(run, loop=with_loop(run.loop, path[:-1], around), unattended=run.unattended + 1)
    return with_run(state, run)


RULES: Final[Rules] = {
    events.LoopStarted: started,
    events.LoopPaged: paged,
    events.LoopDone: done,
    events.LoopIterationFailed: iteration_failed,
}
