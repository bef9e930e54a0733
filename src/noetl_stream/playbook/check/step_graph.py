"""The steps of a workflow as a graph, guards ignored: reachability, and which steps may run concurrently.

Steps on different branches of a fork are concurrent until a join merges them (LANGUAGE §5, §7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from noetl_stream.playbook.model.step import StepDraft

MAX_JOINS: Final = 100

Arcs = Mapping[str, list[str]]

StepSet = int
"""A set of the steps of interest, one bit each."""


def arcs_of(steps: Iterable[StepDraft]) -> dict[str, list[str]]:
    return {step.name: [arc.step for arc in step.arcs] for step in steps}


def reach(starts: Iterable[str], arcs: Arcs) -> set[str]:
    """The steps reachable from ``starts``, themselves included."""
    found: set[str] = set()
    pending = list(starts)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += arcs.get(name, ())
    return found


def reversed_arcs(arcs: Arcs) -> dict[str, list[str]]:
    """The steps whose arcs lead to each step."""
    back: dict[str, list[str]] = {}
    for name, targets in arcs.items():
        for target in targets:
            back.setdefault(target, []).append(name)
    return back


def reach_of_joins(steps: list[StepDraft]) -> Mapping[str, frozenset[str]]:
    """The joining steps reachable from each step by one or more arcs; empty if no step joins."""
    joins = [step.name for step in steps if step.join][:MAX_JOINS]
    if not joins:
        return MappingProxyType({})
    back = reversed_arcs(arcs_of(steps))
    found: dict[str, set[str]] = {step.name: set() for step in steps}
    for join in joins:
        for name in reach(back.get(join, ()), back):
            found[name].add(join)
    return MappingProxyType({name: frozenset(reached) for name, reached in found.items()})


class Concurrent(NamedTuple):
    """The steps of interest that may run at the same time.

    Attributes:
        names: The steps of interest, in file order.
        own: The set of each step alone.
        beside: The steps that may run at the same time as each, itself included if a second run of it may.
    """

    names: list[str]
    own: Mapping[str, StepSet]
    beside: Mapping[str, StepSet]

    def concurrent_with(self, name: str, among: StepSet) -> Iterator[str]:
        """The steps of a set that may run while ``name`` does, in file order."""
        return (self.names[index] for index in _bits(self.beside[name] & among & ~self.own[name]))


def concurrent_steps(steps: list[StepDraft], wanted: Collection[str], merging: Collection[str] = ()) -> Concurrent:
    """Finds which of the ``wanted`` steps may run at the same time.

    Args:
        merging: Steps whose join waits for every token that can arrive in addition to those with ``join: all``.
    """
    names = [step.name for step in steps if step.name in wanted]
    own = {name: 1 << index for index, name in enumerate(names)}
    joins = frozenset(step.name for step in steps if step.join and (step.join.tokens == "all" or step.name in merging))
    arcs = arcs_of(steps)
    before_joins = {name: [to for to in targets if to not in joins] for name, targets in arcs.items()}
    parts = components(before_joins)
    regions = _regions(parts, before_joins, own)
    reaches = {name: reached & joins for name, reached in reach_of_joins(steps).items()}
    beside = dict.fromkeys(arcs, 0)
    for fork in steps:
        if fork.router.routing != "inclusive":
            continue
        targets = [to for to in arcs[fork.name] if to in arcs]
        for first, others in _concurrent_regions(targets, regions, reaches, joins):
            beside[first] |= others
    for members in reversed(parts):
        shared = 0
        for name in members:
            shared |= beside[name]
        for name in members:
            beside[name] = shared
            for target in before_joins[name]:
                if target in beside:
                    beside[target] |= shared
    return Concurrent(names, own, beside)


def _regions(parts: Iterable[frozenset[str]], arcs: Arcs, own: Mapping[str, StepSet]) -> dict[str, StepSet]:
    """The steps that a token in each step can reach, that step included."""
    regions: dict[str, StepSet] = {}
    for members in parts:
        region = 0
        for name in members:
            region |= own.get(name, 0)
            for target in arcs[name]:
                region |= regions.get(target, 0)
        regions |= dict.fromkeys(members, region)
    return regions


def components(arcs: Arcs) -> list[frozenset[str]]:
    """The strongly connected components of steps, each after those that it leads to."""
    back = reversed_arcs(arcs)
    taken: set[str] = set()
    found: list[frozenset[str]] = []
    for last in reversed(postorder(arcs)):
        if last not in taken:
            members = {last}
            pending = [last]
            while pending:
                new = {source for source in back.get(pending.pop(), ()) if source not in taken} - members
                members |= new
                pending += new
            taken |= members
            found.append(frozenset(members))
    return found[::-1]


def postorder(arcs: Arcs) -> list[str]:
    """The steps in depth-first postorder."""
    found: list[str] = []
    seen: set[str] = set()
    for root in arcs:
        pending = [(root, iter(arcs[root]))] if root not in seen else []
        seen.add(root)
        while pending:
            step, targets = pending[-1]
            target = next((target for target in targets if target not in seen and target in arcs), None)
            if target is None:
                found.append(step)
                pending.pop()
            else:
                seen.add(target)
                pending.append((target, iter(arcs[target])))
    return found


def _concurrent_regions(
    targets: list[str], regions: Mapping[str, StepSet], reaches: Mapping[str, frozenset[str]], joins: frozenset[str]
) -> Iterator[tuple[str, StepSet]]:
    """Yields pairs of regions of one fork, the first by its first step, whose steps may run concurrently."""
    ahead = {to: reaches.get(to, frozenset()) | ({to} & joins) for to in targets}
    branches = [to for to in targets if to not in joins]
    for ordered in (branches, branches[::-1]):
        others = 0
        for to in ordered:
            yield to, others
            others |= regions[to]
    for join in sorted(frozenset().union(*ahead.values())):
        # A join waits for every branch that can reach it: only the others, and their own joins, are concurrent with it.
        independent = [to for to in targets if join not in ahead[to]]
        beside = frozenset(independent).union(*(ahead[to] for to in independent)) - reaches.get(join, frozenset())
        for other in beside:
            yield join, regions[other]
            yield other, regions[join]


def _bits(steps: StepSet) -> Iterator[int]:
    while steps:
        lowest = steps & -steps
        yield lowest.bit_length() - 1
        steps ^= lowest
