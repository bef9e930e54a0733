"""The graph of an execution: the history of each step and arc, and the values that decided the last time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from noetl_stream.engine.scope import arc_scope
from noetl_stream.engine.state import Execution
from noetl_stream.model.envelope import iso
from noetl_stream.model.status import RUN_STATUSES
from noetl_stream.operations.executions.reading.states import AscendingStates
from noetl_stream.operations.graphs import graph_document
from noetl_stream.operations.views.arrays import STATUSES, ArcCounts
from noetl_stream.operations.views.index import ExecutionIndex
from noetl_stream.operations.views.state import statuses_of
from noetl_stream.operations.waiting_on import GUARD_OPERATIONS, guard_document
from noetl_stream.playbook.plan import Plan, StepPlan
from noetl_stream.ports.operations.reading.graphs import (
    ArcActivityDocument,
    ArcDecisionDocument,
    ExecutionGraphDocument,
    RunCountsDocument,
    StepActivityDocument,
)
from noetl_stream.ports.operations.waits import GuardDocument
from noetl_stream.ports.stores.store import Store
from noetl_stream.template import Budget

MOST_REPLAYED: Final = 5_000
"""The most events that are replayed for the values of guards, which are otherwise not shown."""


async def execution_graph(store: Store, index: ExecutionIndex, state: Execution, plan: Plan) -> ExecutionGraphDocument:
    """
    Args:
        state: The present state.
    """
    guards = await _decided(store, index, plan)
    return ExecutionGraphDocument(
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


def _steps(index: ExecutionIndex, state: Execution, plan: Plan) -> list[StepActivityDocument]:
    statuses = statuses_of(state)
    runs = index.counts_at(index.position, statuses)
    iterations: dict[str, list[int]] = {}
    for number, levels in index.levels.items():
        if (level := levels.get(())) is not None:
            counted = iterations.setdefault(index.step_of(number), [0] * len(STATUSES))
            for place, count in enumerate(level.counts(0, level.count)):
                counted[place] += count
    return [
        StepActivityDocument(
            step=step,
            status=statuses.of_step(step, runs.get(step, {})),
            runs=RunCountsDocument(*(runs.get(step, Counter())[status] for status in RUN_STATUSES)),
            iterations=RunCountsDocument(*iterations[step]) if step in iterations else None,
            places=dict(statuses.places.get(step, {})),
        )
        for step in (one.name for one in plan.every_step)
    ]


def _arc(index: ExecutionIndex, step: StepPlan, number: int, guard: GuardDocument | None) -> ArcActivityDocument:
    counts = index.arcs.get(step.name) or ArcCounts()
    fired = counts.fired.get(number, 0)
    last = None
    if counts.position:
        run_id = index.runs.ids[counts.run]
        fires = number in counts.last_fired
        last = ArcDecisionDocument(counts.position, run_id, fires, counts.held.get(number), guard)
    return ArcActivityDocument(step.name, step.arcs[number].step, number, fired, counts.routings - fired, last)


async def _decided(store: Store, index: ExecutionIndex, plan: Plan) -> Mapping[tuple[str, int], GuardDocument]:
    """The values read by the guards of each step at its last choice of arcs, unless that is too far to replay."""
    last = {step: counts for step, counts in index.arcs.items() if step in plan.steps and counts.position}
    wanted = sorted((counts.position, step) for step, counts in last.items() if _has_guards(plan.steps[step]))
    found: dict[tuple[str, int], GuardDocument] = {}
    budget, states = Budget(GUARD_OPERATIONS), AscendingStates(store, index.execution_id, MOST_REPLAYED)
    for position, step in wanted:
        if not await states.reach(position - 1):
            continue
        state = states.state
        run = None if state is None else state.runs.get(index.runs.ids[last[step].run])
        if state is not None and run is not None:
            scope = arc_scope(plan, replace(state, budget=budget), run)
            arcs = enumerate(plan.steps[step].arcs)
            found |= {(step, n): guard_document(arc.guard, scope, to=arc.step) for n, arc in arcs if arc.guard}
    return found


def _has_guards(step: StepPlan) -> bool:
    guards: Iterable[object] = (arc.guard for arc in step.arcs)
    return any(guard is not None for guard in guards)
