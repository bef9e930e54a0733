"""Petri nets with inhibitor and transfer arcs, and their bounded exploration.

A marking maps places to numbers of tokens. Exploration is breadth first, so the path to a marking is a shortest one. A
place that grows each time a sequence of firings repeats gets :data:`OMEGA` tokens, as in the coverability graph of Karp
and Miller; inhibitor and transfer arcs make that unsafe in general, so growth counts only if the sequence adds the same
tokens when fired again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Generic, TypeVar

P = TypeVar("P", bound=Hashable)
L = TypeVar("L", bound=Hashable)

OMEGA: Final = math.inf
"""The number of tokens in a place that has no bound."""

Marking = frozenset[tuple[P, float]]
"""The non-empty places of the net, each with its number of tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Transition(Generic[P, L]):
    """A transition of the net. It is enabled if its ``takes`` are present and the places of ``unless`` are empty.

    Attributes:
        label: The label of its firings in a path.
        takes, puts: Tokens by place.
        unless: Inhibitor arcs.
        moves: Transfer arcs, after ``takes`` and before ``puts``: all tokens of a place go to another, or vanish.
    """

    label: L
    takes: Mapping[P, int]
    puts: Mapping[P, int]
    unless: frozenset[P] = frozenset()
    moves: Mapping[P, P | None] = field(default_factory=lambda: MappingProxyType({}))

    def fire(self, tokens: Mapping[P, float]) -> dict[P, float] | None:
        """The tokens after firing; ``None`` if the transition is not enabled."""
        if any(tokens.get(place, 0) < count for place, count in self.takes.items()):
            return None
        if any(place in tokens for place in self.unless):
            return None
        after = dict(tokens)
        for place, count in self.takes.items():
            after[place] -= count
        moved = {place: after.pop(place, 0) for place in self.moves}
        for place, to in self.moves.items():
            if to is not None:
                after[to] = after.get(to, 0) + moved[place]
        for place, count in self.puts.items():
            after[place] = after.get(place, 0) + count
        return {place: count for place, count in after.items() if count}

    @property
    def reads_zero(self) -> frozenset[P]:
        """Places whose exact number of tokens matters to the transition."""
        return self.unless | self.moves.keys()


@dataclass(frozen=True, slots=True)
class Growth(Generic[P, L]):
    """Tokens without bound: ``cycle``, fired repeatedly after ``path``, adds tokens to ``places`` each time."""

    path: Sequence[L]
    cycle: Sequence[L]
    places: frozenset[P]


class Exploration(Generic[P, L]):
    """The markings reachable from ``start``, found on iteration, nearest first.

    Iterate until the wanted marking is found.

    Attributes:
        growth: The first growth that was found.
        fired: Firings so far.
        is_complete: Set after the last marking: every reachable marking was found, or is covered by one with
            :data:`OMEGA`.

    Args:
        most: The most firings to try.
        in_turn: Whether to let the tokens of one place move at a time. Where transitions from different places never
            disable each other, and none can repeat, this finds every final marking, with far fewer on the way.
    """

    def __init__(
        self, transitions: Sequence[Transition[P, L]], start: Mapping[P, int], most: int, *, in_turn: bool = False
    ) -> None:
        self._transitions: Final = transitions
        self._by_place: Final[dict[P, list[int]]] = {}
        for index, transition in enumerate(transitions):
            self._by_place.setdefault(next(iter(transition.takes)), []).append(index)
        self._start: Final[Marking[P]] = frozenset((place, float(count)) for place, count in start.items() if count)
        self._most: Final = most
        self._in_turn: Final = in_turn
        self._reached: dict[Marking[P], tuple[Marking[P], Transition[P, L]] | None] = {self._start: None}
        self._sizes = {self._start: _size(dict(self._start))}
        self.growth: Growth[P, L] | None = None
        self.is_complete = False
        self.fired = 0

    def __iter__(self) -> Iterator[dict[P, float]]:
        pending = deque([self._start])
        is_exact = True
        while pending:
            marking = pending.popleft()
            tokens = dict(marking)
            yield tokens
            unbounded = {place for place, count in tokens.items() if count == OMEGA}
            moved: P | None = None
            for index in sorted(index for place in tokens for index in self._by_place.get(place, ())):
                transition = self._transitions[index]
                first = next(iter(transition.takes))
                if self._in_turn and moved is not None and first != moved:
                    continue
                is_exact = is_exact and unbounded.isdisjoint(transition.reads_zero)
                if (after := transition.fire(tokens)) is not None:
                    moved = first
                    self.fired += 1
                    if self.fired > self._most:
                        return
                    self._add(marking, transition, after, pending)
        self.is_complete = is_exact

    def path_to(self, tokens: Mapping[P, float]) -> list[L]:
        """The labels of a shortest sequence of firings to a marking that was found.

        A round that fills a place without bound occurs once in it, although more rounds may be needed.
        """
        return self._labels(frozenset(tokens.items()))

    def _add(
        self, before: Marking[P], transition: Transition[P, L], after: dict[P, float], pending: deque[Marking[P]]
    ) -> None:
        """Adds a marking unless it is known."""
        marking = frozenset(after.items())
        if marking in self._reached:
            return
        grown = self._growing_places(before, transition, after)
        if grown:
            after = {place: OMEGA if place in grown else count for place, count in after.items()}
            marking = frozenset(after.items())
            if marking in self._reached:
                return
        self._reached[marking] = (before, transition)
        self._sizes[marking] = _size(after)
        pending.append(marking)

    def _growing_places(self, before: Marking[P], transition: Transition[P, L], after: dict[P, float]) -> frozenset[P]:
        """The places that would fill without bound if the firings since an earlier marking repeat."""
        cycle = [transition]
        step: Marking[P] | None = before
        size = _size(after)
        while step is not None:
            if self._sizes[step] < size:  # otherwise no place has more tokens, or one has fewer
                grown = _excess(dict(step), after)
                if grown and _adds_again(cycle, after, grown):
                    places = frozenset(grown)
                    if self.growth is None:
                        self.growth = Growth(self._labels(step), [one.label for one in cycle[::-1]], places)
                    return places
            reached = self._reached[step]
            step = None
            if reached is not None:
                step, earlier_transition = reached
                cycle.append(earlier_transition)
        return frozenset()

    def _labels(self, marking: Marking[P]) -> list[L]:
        labels = []
        while (reached := self._reached[marking]) is not None:
            marking, transition = reached
            labels.append(transition.label)
        return labels[::-1]


def _size(tokens: Mapping[P, float]) -> tuple[int, float]:
    """The number of places with tokens without bound, and the number of tokens of the others."""
    counts = [count for count in tokens.values() if count != OMEGA]
    return len(tokens) - len(counts), sum(counts)


def _excess(earlier: Mapping[P, float], later: Mapping[P, float]) -> dict[P, float]:
    """The additional tokens of each place later; empty if some place has fewer."""
    if any(later.get(place, 0) < count for place, count in earlier.items()):
        return {}
    found = {place: count - earlier.get(place, 0) for place, count in later.items() if count != earlier.get(place, 0)}
    return {place: count for place, count in found.items() if count}


def _adds_again(backwards: list[Transition[P, L]], tokens: dict[P, float], expected: dict[P, float]) -> bool:
    after: dict[P, float] | None = tokens
    for transition in reversed(backwards):
        after = None if after is None else transition.fire(after)
    return after is not None and _excess(tokens, after) == expected
