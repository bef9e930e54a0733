"""Which steps may run at the same time: those on different branches of a fork, up to where a join makes one token of
them (LANGUAGE §5, §7)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from noetl_stream.playbook.check.graph import Arcs, arcs_of, reach_of_joins, reversed_arcs
from noetl_stream.playbook.model.step import StepDraft

Steps = int
"""A set of the steps asked about: a bit for each."""


def meetings(steps: list[StepDraft], asked: Collection[str]) -> dict[str, list[str]]:
    """For each of the steps ``asked`` those of them that may run together with it, in the order of the file."""
    names = [step.name for step in steps if step.name in asked]
    own = {name: 1 << index for index, name in enumerate(names)}
    joins = frozenset(step.name for step in steps if step.join and step.join.tokens == "all")
    arcs = arcs_of(steps)
    regions = _regions({name: [to for to in targets if to not in joins] for name, targets in arcs.items()}, own)
    reaches = {name: reached & joins for name, reached in reach_of_joins(steps).items()}
    met = dict.fromkeys(names, 0)
    for fork in steps:
        if fork.routing != "inclusive":
            continue
        targets = [to for to in dict.fromkeys(arcs[fork.name]) if to in arcs]
        for here, others in _side_by_side(targets, regions, reaches, joins):
            for index in _bits(here):
                met[names[index]] |= others
    return {name: [names[index] for index in _bits(others & ~own[name])] for name, others in met.items()}


def _regions(arcs: Arcs, own: Mapping[str, Steps]) -> dict[str, Steps]:
    """For each step what a token in it can run: that step and those it can reach."""
    regions = {name: own.get(name, 0) for name in arcs}
    back = reversed_arcs(arcs)
    waiting = list(own)
    while waiting:
        name = waiting.pop()
        for before in back.get(name, ()):
            grown = regions[before] | regions[name]
            if grown != regions[before]:
                regions[before] = grown
                waiting.append(before)
    return regions


def _side_by_side(
    targets: list[str],
    regions: Mapping[str, Steps],
    reaches: Mapping[str, frozenset[str]],
    joins: frozenset[str],
) -> Iterator[tuple[Steps, Steps]]:
    """Pairs of regions of one fork: what may run in the first while something of the second runs."""
    ahead = {to: reaches.get(to, frozenset()) | ({to} & joins) for to in targets}
    branches = [to for to in targets if to not in joins]
    for one_after_the_other in (branches, branches[::-1]):
        beside = 0
        for to in one_after_the_other:
            yield regions[to], beside
            beside |= regions[to]
    for join in sorted(frozenset().union(*ahead.values())):
        # It waits for every branch that can reach it: only the others, and what they join in, go on beside it.
        apart = [to for to in targets if join not in ahead[to]]
        met = frozenset(apart).union(*(ahead[to] for to in apart)) - reaches.get(join, frozenset())
        for other in met:
            yield regions[join], regions[other]
            yield regions[other], regions[join]


def _bits(steps: Steps) -> Iterator[int]:
    while steps:
        lowest = steps & -steps
        yield lowest.bit_length() - 1
        steps ^= lowest
