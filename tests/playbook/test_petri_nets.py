"""Exploration of Petri nets, compared with SNAKES, a library of Petri nets, on random nets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from random import Random
from typing import Final, NamedTuple

import pytest
from snakes.data import MultiSet, Substitution
from snakes.nets import Flush, Inhibitor, MultiArc, PetriNet, Place, Value, dot
from snakes.nets import Transition as SnakesTransition

from effort import PETRI_NETS
from noetl_stream.playbook.net.petri import OMEGA, Exploration, Transition

MARKINGS: Final = 150
"""Markings of one net that are compared."""

Marking = frozenset[tuple[str, float]]
Net = list[Transition[str, str]]


class RandomNet(NamedTuple):
    """A random net and its first marking."""

    net: Net
    start: dict[str, int]


def random_net(seed: int) -> RandomNet:
    random = Random(seed)
    places = list("abcde"[: random.randint(2, 5)])
    zero_tests = random.random() < 0.5
    net = []
    for index in range(random.randint(1, 5)):
        takes = {place: random.choice([1, 1, 1, 2]) for place in random.sample(places, random.randint(1, 2))}
        puts = {place: random.choice([1, 1, 1, 2]) for place in random.sample(places, random.randint(0, 2))}
        others = [place for place in places if place not in takes]
        unless = frozenset(place for place in others if zero_tests and random.random() < 0.2)
        # SNAKES refuses to fire a transition with both inhibitor and flush arcs.
        moved = [place for place in others if zero_tests and not unless and random.random() < 0.15]
        moves = {
            place: random.choice([None, *(to for to in places if to not in (*takes, *puts, place))])
            for place in moved[:1]
        }
        net.append(Transition(f"t{index}", takes, puts, unless, moves))
    return RandomNet(net, {place: random.randint(0, 2) for place in places} | {places[0]: 1})


def in_snakes(net: Net, start: Mapping[str, int]) -> PetriNet:
    """The same net in SNAKES."""
    built = PetriNet("random")
    for place, count in start.items():
        built.add_place(Place(place, [dot] * count))
    for transition in net:
        built.add_transition(SnakesTransition(transition.label))
        for place, count in transition.takes.items():
            built.add_input(place, transition.label, MultiArc([Value(dot)] * count))
        for place, count in transition.puts.items():
            built.add_output(place, transition.label, MultiArc([Value(dot)] * count))
        for place in transition.unless:
            built.add_input(place, transition.label, Inhibitor(Value(dot)))
        for place, to in transition.moves.items():
            built.add_input(place, transition.label, Flush("moved"))
            if to is not None:
                built.add_output(to, transition.label, Flush("moved"))
    return built


def marking_of(net: PetriNet) -> Marking:
    return frozenset((place, float(len(tokens))) for place, tokens in net.get_marking().items())


def fire(net: PetriNet, label: str) -> bool:
    """Fires a transition; whether it was enabled."""
    transition = net.transition(label)
    for mode in transition.modes():
        # What a flush arc binds is the content of the place itself, which firing changes.
        transition.fire(Substitution({name: MultiSet(list(value)) for name, value in mode.items()}))
        return True
    return False


def explored_by_snakes(net: PetriNet) -> tuple[dict[Marking, int], bool]:
    """The markings and their distances from the first, and whether these are all."""
    first = net.get_marking()
    distances = {marking_of(net): 0}
    pending = deque([(first, 0)])
    while pending and len(distances) <= MARKINGS:
        marking, distance = pending.popleft()
        for transition in net.transition():
            net.set_marking(marking)
            if fire(net, transition.name) and marking_of(net) not in distances:
                distances[marking_of(net)] = distance + 1
                pending.append((net.get_marking(), distance + 1))
    return distances, not pending


def fired_by_snakes(net: PetriNet, labels: list[str]) -> Iterator[Marking]:
    for label in labels:
        assert fire(net, label)
        yield marking_of(net)


@pytest.mark.parametrize("seed", range(PETRI_NETS))
def test_a_random_net_is_explored_as_snakes_explores_it(seed: int) -> None:
    net, start = random_net(seed)
    expected, is_all = explored_by_snakes(in_snakes(net, start))
    exploration = Exploration(net, start, MARKINGS * 20)
    found = [frozenset(tokens.items()) for tokens in exploration]

    if is_all:
        assert exploration.is_complete and exploration.growth is None
        assert {marking: len(exploration.path_to(dict(marking))) for marking in found} == expected
    elif exploration.is_complete:
        assert exploration.growth is not None
        assert all(any(covers(dict(one), marking) for one in found) for marking in expected)
    growth = exploration.growth
    if growth is not None:
        rounds = [*growth.path, *growth.cycle, *growth.cycle, *growth.cycle]
        fired = list(fired_by_snakes(in_snakes(net, start), rounds))
        before = dict(fired[len(growth.path) - 1]) if growth.path else start
        for count in (1, 2, 3):
            after = dict(fired[len(growth.path) + count * len(growth.cycle) - 1])
            assert all(after.get(place, 0) > before.get(place, 0) for place in growth.places)
            before = after


def covers(tokens: Mapping[str, float], marking: Marking) -> bool:
    return all(tokens.get(place, 0) >= count for place, count in marking)


def test_a_place_that_fills_without_bound_has_omega_tokens() -> None:
    exploration = Exploration([Transition("t", {"a": 1}, {"a": 1, "b": 1})], {"a": 1}, 10)
    assert list(exploration) == [{"a": 1}, {"a": 1, "b": OMEGA}]
    assert exploration.is_complete


def test_a_place_that_is_emptied_each_round_does_not_fill() -> None:
    fills = Transition("fills", {"a": 1}, {"b": 1, "c": 1})
    empties = Transition("empties", {"b": 1}, {"a": 1}, moves={"c": None})
    exploration = Exploration([fills, empties], {"a": 1}, 10)
    assert list(exploration) == [{"a": 1}, {"b": 1, "c": 1}]
    assert exploration.is_complete and exploration.growth is None


def test_exploration_ends_at_its_bound() -> None:
    forks = [Transition(f"t{index}", {f"p{index}": 1}, {f"q{index}": 1}) for index in range(8)]
    exploration = Exploration(forks, {f"p{index}": 1 for index in range(8)}, 20)
    assert len(list(exploration)) < 20 < exploration.fired
    assert not exploration.is_complete
