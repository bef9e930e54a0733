"""The evolution of the state by facts: total and guarded (DESIGN §3). One module per subject, each with its rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from noetl_stream.engine.state import Assignment, Execution, StepRun
from noetl_stream.model.events import Fact, TaskWarning
from noetl_stream.model.outcome import MAX_WARNINGS

Value = TypeVar("Value")
Rules = dict[type[Fact], Callable[[Execution, Any], Execution]]
"""Evolution rules by kind of fact: the state after it; the same value if it changes nothing."""


def without(mapping: dict[str, Value], *keys: str) -> dict[str, Value]:
    """A copy of ``mapping`` without ``keys``; the same value if it has none of them."""
    if mapping.keys().isdisjoint(keys):
        return mapping
    copy = dict(mapping)
    for key in keys:
        copy.pop(key, None)
    return copy


def with_run(state: Execution, run: StepRun) -> Execution:
    """``state`` with ``run`` added or replaced."""
    return replace(state, runs={**state.runs, run.step_run_id: run})


def with_turn(state: Execution, run: StepRun) -> Execution:
    """The state with a step run as the last in its place's order of turns."""
    return replace(state, turns={**state.turns, run.place: (*state.turns.get(run.place, ()), run.step_run_id)})


def without_turn(state: Execution, run: StepRun) -> Execution:
    """The state without the turn of a step run: the next one in its place becomes the first."""
    line = state.turns[run.place]
    at = line.index(run.step_run_id)
    left = line[:at] + line[at + 1 :]
    return replace(state, turns={**state.turns, run.place: left} if left else without(state.turns, run.place))


def with_assignment(state: Execution, assignment: Assignment) -> Execution:
    """``state`` with ``assignment`` added or replaced."""
    return replace(state, assignments={**state.assignments, assignment.command_id: assignment})


def with_undoing(state: Execution, **changed: Any) -> Execution:
    """``state`` with these fields of its compensations changed."""
    return replace(state, undoing=replace(state.undoing, **changed))


def with_warning(state: Execution, warning: TaskWarning) -> Execution:
    """``state`` with a warning counted; of all warnings, the first :data:`MAX_WARNINGS` are kept."""
    key = f"{warning.step} {warning.task} {warning.warning.kind}"
    before = state.warnings.get(key)
    if before is not None:
        warning = replace(before, runs=before.runs + 1)
    elif len(state.warnings) >= MAX_WARNINGS:
        return state
    return replace(state, warnings={**state.warnings, key: warning})
