"""Commands as they are built from the state: at first, and again whenever they must be issued again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from noetl_stream.engine.state import Assignment, Execution
from noetl_stream.model.messages import StepCommand
from noetl_stream.playbook.plan import Plan

Value = TypeVar("Value")


def command_for(plan: Plan, state: Execution, assignment: Assignment, partition: int) -> StepCommand:
    """The order for ``assignment``: the step run's snapshot of what its templates read (LANGUAGE §5)."""
    run = state.runs[assignment.step_run_id]
    step = plan.steps[run.step]
    loop = run.loop
    item: Any = None
    items: list[Any] | None = None
    count = at_once = 0
    if loop is not None:
        count, at_once = loop.count, loop.max_in_flight
        if loop.local:
            items = loop.items
        else:
            item = loop.items[assignment.path[0]]
    return StepCommand(
        command_id=assignment.command_id,
        execution_id=state.execution_id,
        partition=partition,
        step_run_id=run.step_run_id,
        step=run.step,
        digest=state.digest,
        pool=step.pool,
        issue=assignment.issue,
        path=assignment.path,
        item=item,
        count=count,
        items=items,
        max_in_flight=at_once or 1,
        args=run.token.args,
        workload=_read(state.workload, step.reads.workload),
        ctx=_read({**run.ctx, **run.patches} if run.patches else run.ctx, step.reads.ctx),
        steps=_read(run.steps, step.reads.steps),
        vars=run.vars,
        limits=state.limits,
        trace_id=state.trace_id,
    )


def _read(mapping: Mapping[str, Value], keys: frozenset[str] | None) -> dict[str, Value]:
    if keys is None:
        return dict(mapping)
    return {key: mapping[key] for key in sorted(keys) if key in mapping} if keys else {}
