"""The steps of a workflow as a graph, guards ignored: reachability, and which steps may run concurrently.

Concurrent are steps on different branches of a fork, until a join merges them (LANGUAGE §5, §7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from noetl_stream.playbook.model.step import StepDraft

MAX_JOINS: Final = 100

Arcs = Mapping[str, list[str]]

StepSet = int
"""A set of the steps of interest, one bit each."""


def arcs_of(steps: Iterable[StepDraft]) -> dict[str, list[str]]:
    """For each step, the steps that its arcs lead to."""
    return {step.name: [arc.step for arc in step.arcs] for step in steps}


def reach(starts: Iterable[str], arcs: Arcs) -> set[str]:
    """``starts`` and every step reachable from them."""
    found: set[str] = set()
    pending = list(starts)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += arcs.get(name, ())
    return found


def reversed_arcs(arcs: Arcs) -> dict[str, list[str]]:
    """For each step, the steps whose arcs lead to it."""
    back: dict[str, list[str]] = {}
    for name, targets in arcs.items():
        for target in targets:
            back.setdefault(target, []).append(name)
    return back


def reach_of_joins(steps: list[StepDraft]) -> Mapping[str, frozenset[str]]:
    """For each step, the joining steps reachable by one or more arcs; empty if no step joins."""
    joins = [step.name for step in steps if step.join][:MAX_JOINS]
    if not joins:
        return MappingProxyType({})
    back = reversed_arcs(arcs_of(steps))
    found: dict[str, set[str]] = {step.name: set() for step in steps}
    for join in joins:
        for name in reach(back.get(join, ()), back):
            found[name].add(join)
    return MappingProxyType({name: frozenset(reached) for name, reached in found.items()})


def concurrent_steps(
    steps: list[StepDraft], wanted: Collection[str], merging: Collection[str] = ()
) -> dict[str, list[str]]:
    """For each of the ``wanted`` steps, the others of them that may run at the same time, in file order.

    Args:
        merging: Steps whose join waits for every token that can arrive, besides those with ``join: all``.
    """
    names = [step.name for step in steps if step.name in wanted]
    own = {name: 1 << index for index, name in enumerate(names)}
    joins = frozenset(step.name for step in steps if step.join and (step.join.tokens == "all" or step.name in merging))
    arcs = arcs_of(steps)
    regions = _regions({name: [to for to in targets if to not in joins] for name, targets in arcs.items()}, own)
    reaches = {name: reached & joins for name, reached in reach_of_joins(steps).items()}
    concurrent = dict.fromkeys(names, 0)
    for fork in steps:
        if fork.router.routing != "inclusive":
            continue
        targets = [to for to in arcs[fork.name] if to in arcs]
        for here, others in _concurrent_regions(targets, regions, reaches, joins):
            for index in _bits(here):
                concurrent[names[index]] |= others
    return {name: [names[index] for index in _bits(others & ~own[name])] for name, others in concurrent.items()}


def _regions(arcs: Arcs, own: Mapping[str, StepSet]) -> dict[str, StepSet]:
    """For each step, itself and the steps that a token in it can reach."""
    regions = {name: own.get(name, 0) for name in arcs}
    back = reversed_arcs(arcs)
    pending = list(own)
    while pending:
        name = pending.pop()
        for before in back.get(name, ()):
            grown = regions[before] | regions[name]
            if grown != regions[before]:
                regions[before] = grown
                pending.append(before)
    return regions


def _concurrent_regions(
    targets: list[str],
    regions: Mapping[str, StepSet],
    reaches: Mapping[str, frozenset[str]],
    joins: frozenset[str],
) -> Iterator[tuple[StepSet, StepSet]]:
    """Pairs of regions of one fork: steps of the first may run while steps of the second do."""
    ahead = {to: reaches.get(to, frozenset()) | ({to} & joins) for to in targets}
    branches = [to for to in targets if to not in joins]
    for ordered in (branches, branches[::-1]):
        others = 0
        for to in ordered:
            yield regions[to], others
            others |= regions[to]
    for join in sorted(frozenset().union(*ahead.values())):
        # A join waits for every branch that can reach it: only the others, and their own joins, run beside it.
        independent = [to for to in targets if join not in ahead[to]]
        beside = frozenset(independent).union(*(ahead[to] for to in independent)) - reaches.get(join, frozenset())
        for other in beside:
            yield regions[join], regions[other]
            yield regions[other], regions[join]


def _bits(steps: StepSet) -> Iterator[int]:
    while steps:
        lowest = steps & -steps
        yield lowest.bit_length() - 1
        steps ^= lowest
