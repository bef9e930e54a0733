"""Rounds of a pipeline: the jumps of its rules and constructs, and whether they end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from noetl_stream.playbook.check.step_graph import reach, reversed_arcs
from noetl_stream.playbook.net.knowledge import Facts
from noetl_stream.playbook.plan import StepPlan, TaskPlan
from noetl_stream.template import Guard

_END: Final = ""
_FIXED: Final = frozenset(["workload", "args", "steps", "execution_id"])
"""Namespaces that stay the same while a pipeline runs."""


def endless_task(step: StepPlan) -> TaskPlan | None:
    """The first task of a pipeline that runs reach and from which no rule leads to the end of it."""
    places = {task.name: index for index, task in enumerate(step.tasks)}
    names = [*places, _END]
    arcs = {task.name: list(_next_tasks(task, places, names[places[task.name] + 1])) for task in step.tasks}
    reached, ending = reach(names[:1], arcs), reach([_END], reversed_arcs(arcs))
    return next((task for task in step.tasks if task.name in reached and task.name not in ending), None)


def _next_tasks(task: TaskPlan, places: dict[str, int], following: str) -> Iterator[str]:
    """The tasks that may follow a task, except after a failure that no rule names."""
    rules = task.policy.rules if task.policy else ()
    repeats = task.origin and any(rule.guard and _is_fixed(rule.guard) for rule in rules)
    for rule in rules:
        holds = Facts().value(rule.guard)
        to = {"jump": rule.to, "continue": following, "retry": following}.get(rule.do) or _END
        is_back = to in places and places[to] <= places[task.name]
        if holds is not False and (is_back or not (repeats and task.name.endswith("__end"))):
            yield to
        if holds:
            return
    yield following


def _is_fixed(guard: Guard) -> bool:
    """Whether a guard reads data, and only data that is the same in each round."""
    return bool(guard.reads) and all(name in _FIXED for name, _ in guard.reads)
