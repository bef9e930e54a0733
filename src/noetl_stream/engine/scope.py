"""What server-side expressions see: admission, loops' ``in``, arcs, the execution's result (LANGUAGE §2, §4, §7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.model.events import Token
from noetl_stream.model.outcome import StepValue
from noetl_stream.playbook.plan import Plan
from noetl_stream.template import ABSENT, ResultView, Scope
from noetl_stream.template.scope import event_view


def admission_scope(plan: Plan, state: Execution, token: Token) -> Scope:
    """``workload, ctx, args, steps, execution_id, token`` by the live fold."""
    cause = {"from_step": token.from_step, "cause": token.cause}
    return Scope(_live(plan, state) | {"args": token.args, "token": cause})


def loop_scope(plan: Plan, state: Execution, run: StepRun) -> Scope:
    """What ``loop.in`` and ``max_in_flight`` see: the step run's own snapshot."""
    return Scope(
        {
            "workload": state.workload,
            "ctx": run.ctx,
            "args": run.token.args,
            "steps": step_views(plan, run.steps),
            "execution_id": state.execution_id,
        }
    )


def arc_scope(plan: Plan, state: Execution, run: StepRun) -> Scope:
    """What the arcs of a step run that has ended see."""
    value = state.steps.get(run.step) if run.error is None else None
    loop = run.loop
    counts = (
        {"count": loop.count, "ok": loop.ok, "failed": loop.failed, "skipped": loop.count - loop.ok - loop.failed}
        if loop is not None
        else None
    )
    event = event_view(
        name=run.ended,
        step=run.step,
        result=value.outcome.result if value is not None else None,
        error=run.error,
        loop=counts,
    )
    return Scope(_live(plan, state) | {"args": run.token.args, "vars": run.vars, "event": event})


def result_scope(plan: Plan, state: Execution) -> Scope:
    """What ``executor.spec.result`` sees."""
    return Scope(_live(plan, state))


def step_views(plan: Plan, values: Mapping[str, StepValue]) -> dict[str, Any]:
    """Every step of the plan: its result, or absent while it has none."""
    views: dict[str, Any] = dict.fromkeys(plan.steps, ABSENT)
    for name, value in values.items():
        views[name] = ResultView(value.outcome, value.results)
    return views


def _live(plan: Plan, state: Execution) -> dict[str, Any]:
    return {
        "workload": state.workload,
        "ctx": state.ctx,
        "steps": step_views(plan, state.steps),
        "execution_id": state.execution_id,
    }
