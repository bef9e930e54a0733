"""The document of a state: the places of tokens, and the values that templates read; and the graph of an execution: the
history of each step and arc, and the values that decided the last time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from noetl_stream.engine.scope import arc_scope
from noetl_stream.engine.state import Assignment, Execution, StepRun, WaitingToken
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import Token, Wait
from noetl_stream.model.ids import timer_of
from noetl_stream.model.json import codec
from noetl_stream.model.status import RUN_STATUSES, RunStatus
from noetl_stream.operations import waiting_on
from noetl_stream.operations.executions.reading.states import AscendingStates
from noetl_stream.operations.executions.reading.step_runs import SHOWN_BYTES, Statuses, shown_result
from noetl_stream.operations.graphs import graph_document
from noetl_stream.operations.views.arrays import STATUSES, ArcCounts
from noetl_stream.operations.views.index import ExecutionIndex, place_of_wait
from noetl_stream.playbook.plan import Plan, StepPlan
from noetl_stream.ports.operations.executions import LoopCountsDocument
from noetl_stream.ports.operations.reading import graphs
from noetl_stream.ports.operations.reading import views as documents
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.operations.waits import GuardDocument, WaitingOnDocument
from noetl_stream.ports.stores.store import Store
from noetl_stream.template import Budget

EXPLAINED: Final = 50
"""The most tokens whose guards are shown."""

CTX_BYTES: Final = 256 * 1024
"""The bytes of ``ctx``, and of the results, that are shown: of the rest only the size."""


class _Placed(msgspec.Struct):
    """A token with its place. ``count`` is the number of commands or iterations there."""

    place: documents.TokenPlace
    token: Token
    run: StepRun | None = None
    command_id: str = ""
    wait: Wait | None = None
    waiting: WaitingToken | None = None
    count: int = 1


def state_document(
    state: Execution, plan: Plan | None, last: int, counts: Mapping[str, Mapping[RunStatus, int]] | None
) -> documents.ExecutionStateDocument:
    """
    Args:
        plan: ``None`` if the playbook does not compile here. Guards are then shown as they were recorded.
        last: The last position of the journal.
        counts: Of the step runs by step and status; ``None`` if they are not known.
    """
    placed = list(_placed(state))
    state = replace(state, budget=Budget(waiting_on.GUARD_OPERATIONS))
    tokens = [
        _document(state, plan, one, number < EXPLAINED) for number, one in enumerate(placed[: documents.TOKENS_SHOWN])
    ]
    return documents.ExecutionStateDocument(
        execution_id=state.execution_id,
        position=state.position,
        last=last,
        at=iso(state.at_ms),
        status=state.shown_status,
        error=state.outcome.error if state.outcome is not None else state.failing,
        tokens=tokens,
        more=len(placed) - len(tokens),
        places=_places(placed),
        steps=None if counts is None else [_counts(step, runs) for step, runs in counts.items()],
        statuses=_step_statuses(state, counts),
        ctx=_shown_ctx(state.ctx),
        ctx_version=state.ctx_version,
        results=_results(state),
    )


def _placed(state: Execution) -> Iterator[_Placed]:
    """The place of each token; the commands and waits of a step run at the same place are one."""
    for waiting in state.tokens.values():
        held: documents.TokenPlace = "admission" if waiting.keeps_alive else "held"
        place: documents.TokenPlace = held if waiting.held else "join" if waiting.joining else "token"
        yield _Placed(place, waiting.token, waiting=waiting)
    by_run: dict[str, dict[documents.TokenPlace, _Placed]] = {}
    for assignment in state.commands:
        if (run := state.runs.get(assignment.step_run_id)) is not None:
            places = by_run.setdefault(run.step_run_id, {})
            for place, wait in _of_command(state, assignment):
                first = _Placed(place, run.token, run, assignment.command_id, wait, count=0)
                places.setdefault(place, first).count += 1
    for step_run_id, run in state.runs.items():
        if step_run_id in state.resting:
            yield _Placed("next", run.token, run)
        elif run.ended:
            yield _Placed("routing", run.token, run)
        elif step_run_id in by_run:
            yield from by_run[step_run_id].values()
        else:
            yield _Placed("claimed", run.token, run)


def _of_command(state: Execution, assignment: Assignment) -> Iterator[tuple[documents.TokenPlace, Wait | None]]:
    if assignment.command_id in state.assignments:
        yield ("queued" if assignment.run is None else "running"), None
    elif not assignment.waits:
        yield "suspended", None
    for wait in assignment.waits.values():
        yield place_of_wait(wait), wait


def statuses_of(state: Execution) -> Statuses:
    """The basis of the statuses of step runs and steps."""
    places = {} if state.ended else {one.step: one.places for one in _places(_placed(state))}
    status = state.shown_status
    return Statuses(status, state.run_statuses(), places, status == "running" and not state.assignments)


def _step_statuses(
    state: Execution, counts: Mapping[str, Mapping[RunStatus, int]] | None
) -> list[documents.StepStatusDocument]:
    """The statuses of the steps; without counts, by their last results."""
    statuses = statuses_of(state)
    if counts is None:
        counts = {step: {"done" if one.outcome.error is None else "failed": 1} for step, one in state.steps.items()}
    found = (
        (step, statuses.of_step(step, counts.get(step, {}))) for step in dict.fromkeys((*counts, *statuses.places))
    )
    return [documents.StepStatusDocument(step, status) for step, status in found if status is not None]


def _counts(step: str, runs: Mapping[RunStatus, int]) -> documents.StepRunCountsDocument:
    return documents.StepRunCountsDocument(step, *(runs.get(status, 0) for status in RUN_STATUSES))


def _places(placed: Iterable[_Placed]) -> list[documents.StepPlacesDocument]:
    counted: dict[str, Counter[str]] = {}
    for one in placed:
        counted.setdefault(one.token.step, Counter())[one.place] += one.count
    return [documents.StepPlacesDocument(step, dict(places)) for step, places in counted.items()]


def _document(state: Execution, plan: Plan | None, one: _Placed, explained: bool) -> documents.PlacedTokenDocument:
    run, wait, since_ms = one.run, one.wait, 0
    if wait is not None:
        since_ms = wait.since_ms
    elif run is not None and one.place == "running":
        since_ms = run.started_ms
    loop = None if run is None or run.loop is None else document_from(LoopCountsDocument, run.loop)
    return document_from(
        documents.PlacedTokenDocument,
        one,
        one.token,
        step_run_id=None if run is None else run.step_run_id,
        task=None if wait is None else wait.task,
        iteration=[] if wait is None else list(wait.path),
        since=iso(since_ms) if since_ms else None,
        loop=loop,
        waiting_on=_waiting_on(state, plan, one, explained),
    )


def _waiting_on(state: Execution, plan: Plan | None, one: _Placed, explained: bool) -> WaitingOnDocument | None:
    waiting, run = one.waiting, one.run
    if waiting is not None and waiting.held:
        timer_id = timer_of(one.token.token_id, "admission")
        return waiting_on.on_admission(state, plan, waiting) if explained else waiting_on.on_timer(state, timer_id)
    if one.place == "join":
        return waiting_on.on_join(state, plan, one.token.step) if explained else None
    if one.place == "next" and run is not None:
        timer_id = timer_of(run.step_run_id, "next")
        return waiting_on.on_next(state, plan, run.step_run_id) if explained else waiting_on.on_timer(state, timer_id)
    if one.place == "queued":
        return waiting_on.on_pool(state, plan, one.token.step, [one.command_id])
    return None if one.wait is None else waiting_on.on_wait(state, one.command_id, one.wait)


def _shown_ctx(ctx: Mapping[str, Any]) -> dict[str, Any]:
    shown, left = {}, CTX_BYTES
    for key, value in ctx.items():
        shown[key], left = _within(value, left)
    return shown


def _results(state: Execution) -> list[documents.StepResultDocument]:
    found, left = [], CTX_BYTES
    for step, value in state.steps.items():
        result, left = _within(shown_result(value.outcome.result), left)
        found.append(documents.StepResultDocument(step, result, value.outcome.error))
    return found


def _within(value: Any, left: int) -> tuple[Any, int]:
    """The value, or its size if it is large or nothing is left; and the remaining bytes."""
    size = len(codec.encode(value))
    return (value, left - size) if size <= min(SHOWN_BYTES, left) else ({"$large": {"size": size}}, left)


MOST_REPLAYED: Final = 5_000
"""The most events that are replayed for the values of guards, which are otherwise not shown."""


async def execution_graph(
    store: Store, index: ExecutionIndex, state: Execution, plan: Plan
) -> graphs.ExecutionGraphDocument:
    """
    Args:
        state: The present state.
    """
    guards = await _decided(store, index, plan)
    return graphs.ExecutionGraphDocument(
        execution_id=index.execution_id,
        position=index.position,
        at=iso(index.at_ms),
        graph=graph_document(plan),
        steps=_steps(index, state, plan),
        arcs=[
            _arc(index, step, number, guards.get((step.name, number)))
            for step in plan.steps.values()
            for number in range(len(step.arcs))
        ],
    )


def _steps(index: ExecutionIndex, state: Execution, plan: Plan) -> list[graphs.StepActivityDocument]:
    statuses = statuses_of(state)
    runs = index.counts_at(index.position, statuses)
    iterations: dict[str, list[int]] = {}
    for number, levels in index.levels.items():
        if (level := levels.get(())) is not None:
            counted = iterations.setdefault(index.step_of(number), [0] * len(STATUSES))
            for place, count in enumerate(level.counts(0, level.count)):
                counted[place] += count
    return [
        graphs.StepActivityDocument(
            step=step,
            status=statuses.of_step(step, runs.get(step, {})),
            runs=graphs.RunCountsDocument(*(runs.get(step, Counter())[status] for status in RUN_STATUSES)),
            iterations=graphs.RunCountsDocument(*iterations[step]) if step in iterations else None,
            places=dict(statuses.places.get(step, {})),
        )
        for step in (one.name for one in plan.every_step)
    ]


def _arc(index: ExecutionIndex, step: StepPlan, number: int, guard: GuardDocument | None) -> graphs.ArcActivityDocument:
    counts = index.arcs.get(step.name) or ArcCounts()
    fired = counts.fired.get(number, 0)
    last = None
    if counts.position:
        run_id = index.runs.ids[counts.run]
        fires = number in counts.last_fired
        last = graphs.ArcDecisionDocument(counts.position, run_id, fires, counts.held.get(number), guard)
    return graphs.ArcActivityDocument(step.name, step.arcs[number].step, number, fired, counts.routings - fired, last)


async def _decided(store: Store, index: ExecutionIndex, plan: Plan) -> Mapping[tuple[str, int], GuardDocument]:
    """The values read by the guards of each step at its last choice of arcs, unless that is too far to replay."""
    last = {step: counts for step, counts in index.arcs.items() if step in plan.steps and counts.position}
    wanted = sorted((counts.position, step) for step, counts in last.items() if _has_guards(plan.steps[step]))
    found: dict[tuple[str, int], GuardDocument] = {}
    budget, states = Budget(waiting_on.GUARD_OPERATIONS), AscendingStates(store, index.execution_id, MOST_REPLAYED)
    for position, step in wanted:
        if not await states.reach(position - 1):
            continue
        state = states.state
        run = None if state is None else state.runs.get(index.runs.ids[last[step].run])
        if state is not None and run is not None:
            scope = arc_scope(plan, replace(state, budget=budget), run)
            arcs = enumerate(plan.steps[step].arcs)
            found |= {
                (step, n): waiting_on.guard_document(arc.guard, scope, to=arc.step) for n, arc in arcs if arc.guard
            }
    return found


def _has_guards(step: StepPlan) -> bool:
    guards: Iterable[object] = (arc.guard for arc in step.arcs)
    return any(guard is not None for guard in guards)
