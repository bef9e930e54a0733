"""Decisions about emitted events, at the beginning and the end of a step run (LANGUAGE §7 *Emitted events*)."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.engine.choices import Choice, choice_outcome
from noetl_stream.engine.scope import arc_scope, expression_failure
from noetl_stream.engine.state import Execution, StepRun
from noetl_stream.model.events import MAX_EMITTED_BYTES, Boundary, ExecutionFailing, Fact, StepEmitted
from noetl_stream.model.json import codec
from noetl_stream.playbook.plan import EmitPlan, Plan


def emit(plan: Plan, state: Execution, run: StepRun, boundary: Boundary) -> Sequence[Fact]:
    """The events that the step emits at this boundary of its run, or just ``execution.failing`` if one cannot be
    evaluated.

    Raises:
        ReferenceNeeded: one of them reads a result that must be loaded first.
        EvaluationNeeded: they cost more than the server may spend on them here.
    """
    options = _options(plan, run, boundary)
    if not options:
        return ()
    choice_id = f"{run.step_run_id} {boundary}"
    evaluated = choice_outcome(state, choice_id, lambda: emissions_of(plan, state, run, boundary), lambda _: True)
    held = [one for one, is_held in zip(options, evaluated.guards, strict=False) if is_held]
    error = evaluated.error or _size_error(held, evaluated.values)
    if error:
        failure = expression_failure(f"an event of {run.step}", error)
        return (ExecutionFailing(failure, run.step, run.step_run_id),)
    pairs = zip(held, evaluated.values, strict=True)
    return tuple(StepEmitted(run.step_run_id, run.step, one.event, boundary, data) for one, data in pairs)


def emissions_of(plan: Plan, state: Execution, run: StepRun, boundary: Boundary) -> Choice:
    """The choice of the events to emit and of their ``data``."""
    options = _options(plan, run, boundary)
    return Choice(options, arc_scope(plan, state, run, options), first=False)


def parts_of_choice(choice_id: str) -> tuple[str, Boundary | None]:
    """The step run of a choice and the boundary it is made for; ``None`` for the choice of the arcs."""
    step_run_id, _, word = choice_id.partition(" ")
    boundaries: dict[str, Boundary] = {"started": "started", "completed": "completed", "failed": "failed"}
    return step_run_id, boundaries.get(word)


def _options(plan: Plan, run: StepRun, boundary: Boundary) -> list[EmitPlan]:
    return [one for one in plan.steps[run.step].emits if boundary in one.on]


def _size_error(held: Sequence[EmitPlan], values: Sequence[object]) -> str:
    for one, data in zip(held, values, strict=False):
        if (size := len(codec.encode(data))) > MAX_EMITTED_BYTES:
            return f"{one.label} has {size:,} bytes of JSON; the most is {MAX_EMITTED_BYTES:,}"
    return ""
