"""The steps that can run at all, as the least solution: a step runs only if what it needs can come from steps that run.

A guard that reads a key of ``ctx`` set only by steps behind it, or the result of such a step, cannot hold because of
them (a cyclic wait); so the steps known to run grow from the entry until nothing is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from noetl_stream.playbook.check.step_graph import reversed_arcs
from noetl_stream.playbook.diagnostics import Firing
from noetl_stream.playbook.net.flow import Departure, Flow, flow_of
from noetl_stream.playbook.net.knowledge import Facts, Opposites
from noetl_stream.playbook.plan import Plan

MAX_LOOKED_AT: Final = 20_000
"""The most steps and arcs looked at in all rounds; then every step is taken to run, which may be more than ever do.
"""
MIN_ROUNDS: Final = 10


class Reached(msgspec.Struct, frozen=True):
    """The steps that runs reach.

    Attributes:
        arrived: Steps that a token can reach, nearest first, each with the step and the departure that send it there
            on a shortest path; ``None`` for the entry.
        before: The arrived steps that can send a token to each step.
        runs: The arrived steps that can run, and not only be held or refused.
        is_complete: Whether there were rounds enough to find no more steps than that.
    """

    flow: Flow
    arrived: Mapping[str, tuple[str, Departure] | None]
    before: Mapping[str, list[str]]
    runs: frozenset[str]
    is_complete: bool = True

    def path_to(self, step: str) -> list[Firing]:
        """A shortest sequence of firings that brings a token to a step."""
        path: list[Firing] = []
        while (came := self.arrived[step]) is not None:
            step, departure = came
            path.append(firing_of(self.flow, step, departure))
        return path[::-1]


def firing_of(flow: Flow, step: str, departure: Departure, *, repeats: bool = False) -> Firing:
    """A departure as a firing in a path."""
    line = flow.plan.steps[step].line
    return Firing(step, departure.event, line, to=flow.targets(step, departure), repeats=repeats)


def reach_of(plan: Plan, failing: frozenset[str] = frozenset()) -> Reached:
    """Finds the steps that runs of a plan reach.

    Args:
        failing: Steps whose join always fails.
    """
    writers = _writers(plan)
    asked = Opposites()
    size = sum(1 + len(step.arcs) for step in plan.steps.values())
    runs: frozenset[str] = frozenset()
    for _ in range(max(MIN_ROUNDS, MAX_LOOKED_AT // max(size, 1))):
        unset = frozenset(key for key, steps in writers.items() if runs.isdisjoint(steps))
        reached = _reach_with(plan, Facts(unset, frozenset(plan.steps) - runs, asked), failing)
        if reached.runs == runs:
            return reached
        runs = reached.runs
    return replace(_reach_with(plan, Facts(asked=asked), failing), is_complete=False)


def _reach_with(plan: Plan, facts: Facts, failing: frozenset[str]) -> Reached:
    """Finds the steps that runs reach if these are the facts."""
    flow = flow_of(plan, facts, failing)
    arrived = _arrivals(flow)
    runs = frozenset(step for step in arrived if flow.admits[step] is not False and step not in failing)
    before = reversed_arcs({step: list(flow.successors(step)) for step in arrived})
    return Reached(flow, arrived, before, runs)


def _writers(plan: Plan) -> dict[str, set[str]]:
    """The steps whose rules set each key of ``ctx`` or contribute to it."""
    writers: dict[str, set[str]] = {}
    for step in plan.steps.values():
        for rule in (rule for task in step.tasks if task.policy for rule in task.policy.rules):
            for key in (*rule.set_ctx, *rule.set_shared):
                writers.setdefault(key, set()).add(step.name)
    return writers


def _arrivals(flow: Flow) -> dict[str, tuple[str, Departure] | None]:
    entry = flow.plan.entry
    arrived: dict[str, tuple[str, Departure] | None] = {entry: None}
    pending = [entry]
    for step in pending:
        for departure in flow.departures[step]:
            for target in flow.targets(step, departure):
                if target not in arrived:
                    arrived[target] = (step, departure)
                    pending.append(target)
    return arrived
