"""Builds commands from the state, for the first issue and for every later one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from noetl_stream.engine.evolve.loop_progress import loop_at, loop_progress
from noetl_stream.engine.scope import around
from noetl_stream.engine.state import Assignment, Execution
from noetl_stream.model.ids import partition_of
from noetl_stream.model.messages import Go, StepCommand
from noetl_stream.model.outcome import ItemPosition
from noetl_stream.playbook.check.reads import union_of
from noetl_stream.playbook.plan import Plan, Reads, StepPlan

Value = TypeVar("Value")


def build_command(plan: Plan, state: Execution, assignment: Assignment) -> StepCommand:
    """The command for ``assignment``, with the snapshot its templates read (LANGUAGE §5)."""
    run = state.runs[assignment.step_run_id]
    step = plan.steps[run.step]
    chain, counts = around(run.loop, assignment.path)
    local = loop_at(run.loop, assignment.path)
    reads = _of_level(step, len(assignment.path)) if assignment.paging else step.reads
    return StepCommand(
        command_id=assignment.command_id,
        execution_id=state.execution_id,
        partition=partition_of(state.execution_id),
        step_run_id=run.step_run_id,
        step=run.step,
        digest=state.digest,
        pool=step.pool,
        issue=assignment.issue,
        path=assignment.path,
        chain=[None if isinstance(item, ItemPosition) else item for item in chain],
        counts=counts,
        places={depth: item for depth, item in enumerate(chain) if isinstance(item, ItemPosition)},
        items=local.items if local is not None else None,
        pages=list(local.pages) if local is not None else [],
        max_in_flight=local.max_in_flight if local is not None else 1,
        paging=assignment.paging,
        args=run.token.args,
        workload=_read(state.workload, reads.workload),
        ctx=_read({**run.ctx, **run.patches} if run.patches else run.ctx, reads.ctx),
        steps=_read(run.steps, reads.steps),
        vars=run.vars,
        limits=state.limits,
        trace_id=state.trace_id,
        segment=assignment.segment,
        resume=build_continuation(state, assignment) if assignment.segment else None,
    )


def build_continuation(state: Execution, assignment: Assignment) -> Go:
    """Where a run of this command continues: the answer to a claim, and the start of a later segment."""
    run = state.runs[assignment.step_run_id]
    local = loop_at(run.loop, assignment.path)
    return Go(
        next_number=assignment.next_number,
        progress=assignment.progress,
        loop=loop_progress(local) if local is not None else None,
        ctx=run.patches,
        vars=run.vars,
        answers=assignment.answers,
        waits=assignment.waits,
    )


def _of_level(step: StepPlan, depth: int) -> Reads:
    """What ``in`` and ``max_in_flight`` of the level at nesting ``depth`` read."""
    level = step.loop
    for _ in range(depth):
        level = level and level.inner
    assert level is not None
    return union_of(level.items.reads | level.max_in_flight.reads, ())


def _read(mapping: Mapping[str, Value], keys: frozenset[str] | None) -> dict[str, Value]:
    if keys is None:
        return dict(mapping)
    return {key: mapping[key] for key in sorted(keys) if key in mapping} if keys else {}
