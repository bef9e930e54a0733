"""The steps of a workflow as a graph: who can reach whom by arcs, guards ignored (LANGUAGE §7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from noetl_stream.playbook.model.step import StepDraft

MAX_JOINS: Final = 100

Arcs = Mapping[str, list[str]]


def arcs_of(steps: Iterable[StepDraft]) -> dict[str, list[str]]:
    """For each step the steps that its arcs lead to."""
    return {step.name: [arc.step for arc in step.arcs] for step in steps}


def reach(starts: Iterable[str], arcs: Arcs) -> set[str]:
    """``starts`` and every step that a token can reach from them."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += arcs.get(name, ())
    return found


def reversed_arcs(arcs: Arcs) -> dict[str, list[str]]:
    """For each step the steps whose arcs lead to it."""
    back: dict[str, list[str]] = {}
    for name, targets in arcs.items():
        for target in targets:
            back.setdefault(target, []).append(name)
    return back


def reach_of_joins(steps: list[StepDraft]) -> Mapping[str, frozenset[str]]:
    """For each step the joining steps that a token in it can reach by one arc or more; empty when nothing joins."""
    joins = [step.name for step in steps if step.join][:MAX_JOINS]
    if not joins:
        return MappingProxyType({})
    back = reversed_arcs(arcs_of(steps))
    found: dict[str, set[str]] = {step.name: set() for step in steps}
    for join in joins:
        for name in reach(back.get(join, ()), back):
            found[name].add(join)
    return MappingProxyType({name: frozenset(reached) for name, reached in found.items()})
