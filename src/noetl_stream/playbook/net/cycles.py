"""The cycles of a workflow: those without an exit, and those that may leave tokens behind in each round."""

from __future__ import annotations

from collections.abc import Iterator

from noetl_stream.playbook.check.step_graph import components
from noetl_stream.playbook.diagnostics import Firing
from noetl_stream.playbook.net.flow import Flow
from noetl_stream.playbook.net.reach import Reached, firing_of

Cycle = frozenset[str]


def cycles_of(reach: Reached) -> Iterator[Cycle]:
    """The strongly connected components in which a token can return, in the order in which runs reach them."""
    after = {step: list(reach.flow.successors(step)) for step in reach.arrived}
    component = {step: members for members in components(after) for step in members}
    for cycle in dict.fromkeys(component[step] for step in reach.arrived):
        if len(cycle) > 1 or any(step in after[step] for step in cycle):
            yield cycle


def has_exit(flow: Flow, cycle: Cycle) -> bool:
    """Whether a token in the cycle can leave it or end there without a failure that ends the execution."""
    for step in cycle:
        if flow.admits[step] is not True or flow.plan.steps[step].join not in (None, "all"):
            return True
        if any(cycle.isdisjoint(flow.targets(step, departure)) for departure in flow.departures[step]):
            return True
    return False


def steps_outside(flow: Flow, cycle: Cycle) -> frozenset[str]:
    """The steps that get tokens in addition to the one that stays in the cycle."""
    found: set[str] = set()
    for step in cycle:
        for departure in flow.departures[step]:
            targets = flow.targets(step, departure)
            if len(targets) > 1 and not cycle.isdisjoint(targets):
                found.update(targets)
    return frozenset(found)


def round_of(flow: Flow, cycle: Cycle, first: str) -> list[Firing]:
    """A shortest path of firings once round the cycle."""
    came: dict[str, Firing] = {}
    pending = [first]
    for step in pending:
        for departure in flow.departures[step]:
            for target in cycle.intersection(flow.targets(step, departure)):
                if target not in came:
                    came[target] = firing_of(flow, step, departure, repeats=True)
                    pending.append(target)
    way = [came[first]]
    while way[-1].step != first:
        way.append(came[way[-1].step])
    return way[::-1]
