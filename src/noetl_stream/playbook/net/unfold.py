"""The workflow as a net: tokens of the workflow are tokens of the net, and places are their whereabouts.

Only the relevant part for some steps is unfolded: tokens that can no longer reach any of them are dropped. A token that
an ``any`` or ``<n>`` join has fired without is *late* there, and absorbed when it arrives (LANGUAGE §7); a place is
therefore a phase, a step, and the joins for which its tokens are late. One bound on firings holds for all explorations
of a playbook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, combinations_with_replacement, islice
from typing import Final, Literal, NamedTuple

from noetl_stream.playbook.check.step_graph import reach
from noetl_stream.playbook.diagnostics import Firing
from noetl_stream.playbook.net.flow import Reached, firing_of
from noetl_stream.playbook.net.petri import Exploration, Transition
from noetl_stream.playbook.plan import StepPlan

MAX_TRANSITIONS: Final = 2000
"""The most transitions of one net."""
MAX_COUNTING: Final = 4
"""The most joins of one net that absorb tokens: each may double the number of places."""

Joins = frozenset[str]


class Place(NamedTuple):
    """A place of tokens: before admission, at a join, in a run of the step, or resting at its ``next``."""

    phase: Literal["gate", "join", "run", "rest"]
    step: str
    late: Joins = frozenset()


Arrow = Transition[Place, Firing | None]


class TooLarge(Exception):
    """The net has more than :data:`MAX_TRANSITIONS` transitions or :data:`MAX_COUNTING` joins that absorb."""


class Unfolding:
    """The net of the steps from which one of ``targets`` can be reached.

    ``start`` is its first marking. Firings without a label change no step run.

    Args:
        ends_at: A step whose join does not fire.

    Raises:
        TooLarge: the net is too large.
    """

    def __init__(self, reach: Reached, targets: Iterable[str], ends_at: str | None = None) -> None:
        self._flow: Final = reach.flow
        self._plan: Final = reach.flow.plan
        self._reaches: Final = reach.flow.plan.reaches
        self.steps: Final = _ancestors(reach, targets)
        self._counting: Final = frozenset(step for step in self.steps if _wanted_tokens(self._plan.steps[step])) - {
            ends_at
        }
        self._ends_at: Final = ends_at
        if len(self._counting) > MAX_COUNTING:
            raise TooLarge
        first = self._enter(self._plan.entry, frozenset())
        self.start: Final[dict[Place, int]] = {} if first is None else {first: 1}
        self.transitions: Final = self._build_transitions()

    def _build_transitions(self) -> Sequence[Arrow]:
        """Builds all transitions: those of single tokens, followed from place to place, then those of joins, as long as
        these lead to new places.
        """
        single: list[Arrow] = []
        places: dict[Place, None] = {}
        pending = list(self.start)
        while True:
            for place in pending:
                if place not in places:
                    places[place] = None
                    found = [] if place.phase == "join" else list(self._transitions_from(place))
                    single += found
                    pending += _places_after(found)
                    _require_room(single)
            joining = list(islice(self._joins(list(places)), MAX_TRANSITIONS + 1))
            _require_room([*single, *joining])
            pending = [place for place in _places_after(joining) if place not in places]
            if not pending:
                return [*single, *joining]

    def _enter(self, step: str, late: Joins, *, is_merged: bool = False) -> Place | None:
        """The place of a token that reaches a step; ``None`` if it is absorbed or does not matter."""
        if step not in self.steps:
            return None
        joins = self._plan.steps[step].join is not None and not is_merged
        if joins and step in late:
            return None
        late &= self._ahead(step)
        if joins:
            return Place("join", step, late)
        return Place("run" if self._flow.admits[step] else "gate", step, late)

    def _ahead(self, step: str) -> Joins:
        return self._reaches.get(step, frozenset()) & self._counting

    def _transitions_from(self, place: Place) -> Iterator[Arrow]:
        step, phase = self._plan.steps[place.step], place.phase
        departures = self._flow.departures[place.step]
        if phase == "gate":
            if self._flow.admits[place.step] is None:
                yield Transition(None, {place: 1}, {Place("run", place.step, place.late): 1})
            wait = step.admit.wait if step.admit is not None else None
            if wait is None or wait.on_timeout == "discard":
                yield Transition(None, {place: 1}, {})
        if phase == "run" and any(departure.rests for departure in departures):
            yield Transition(None, {place: 1}, {Place("rest", place.step, place.late): 1})
        for departure in departures:
            may_fail_at_gate = phase == "gate" and departure.event == "step.failed"
            if may_fail_at_gate or (phase != "gate" and departure.rests == (phase == "rest")):
                sent = [self._enter(to, place.late) for to in self._flow.targets(place.step, departure)]
                yield Transition(firing_of(self._flow, place.step, departure), {place: 1}, _count_places(sent))

    def _joins(self, places: Sequence[Place]) -> Iterator[Arrow]:
        joins = dict.fromkeys(place.step for place in places if place.phase == "join" and place.step != self._ends_at)
        for step in joins:
            waiting = [place for place in places if place.phase == "join" and place.step == step]
            others = [place for place in places if place.phase != "join" or place.step != step]
            firing = _JoinFiring(step, waiting, self._late_places(step, waiting, others))
            wanted = _wanted_tokens(self._plan.steps[step])
            if wanted is not None:
                for taken in islice(combinations_with_replacement(waiting, wanted), MAX_TRANSITIONS):
                    yield self._merge(firing, _count_places(taken))
            # Otherwise it fires once no other token can reach it; with too few for a number of tokens, it fails.
            for present, unless in _sources_of_join(step, waiting, others, self._reaches):
                takes = dict.fromkeys(present, 1)
                if wanted is None:
                    yield self._merge(firing, takes, unless)
                else:
                    yield from self._failures(firing, takes, unless)

    def _late_places(self, step: str, waiting: Sequence[Place], others: Sequence[Place]) -> dict[Place, Place | None]:
        """The places that tokens move to when a join fires without them: waiting ones vanish, those on the way are
        late.
        """
        moves: dict[Place, Place | None] = dict.fromkeys(waiting)
        for place in others if step in self._counting else ():
            if step in self._ahead(place.step) and step not in place.late:
                moves[place] = place._replace(late=place.late | {step})
        return moves

    def _merge(self, firing: _JoinFiring, takes: dict[Place, int], unless: frozenset[Place] = frozenset()) -> Arrow:
        to = self._enter(firing.step, _late_of(takes, firing.step), is_merged=True)
        label = Firing(firing.step, "token.joined", self._plan.steps[firing.step].line, to=(firing.step,))
        return Transition(label, takes, _count_places([to]), unless, firing.moves)

    def _failures(self, firing: _JoinFiring, takes: dict[Place, int], unless: frozenset[Place]) -> Iterator[Arrow]:
        late = _late_of(takes, firing.step)
        for departure in self._flow.departures[firing.step]:
            if departure.event == "step.failed":
                sent = [self._enter(to, late) for to in self._flow.targets(firing.step, departure)]
                label = firing_of(self._flow, firing.step, departure)
                yield Transition(label, takes, _count_places(sent), unless, firing.moves)


class _JoinFiring(NamedTuple):
    """The parts that all firings of a join share."""

    step: str
    waiting: Sequence[Place]
    moves: dict[Place, Place | None]


def _sources_of_join(
    step: str, waiting: Sequence[Place], others: Sequence[Place], reaches: Mapping[str, Joins]
) -> Iterator[tuple[tuple[Place, ...], frozenset[Place]]]:
    """The places from which a join may take its tokens, and those that must be empty then."""
    coming = frozenset(place for place in others if step in reaches.get(place.step, ()))
    active = frozenset(place for place in others if place.phase != "join")
    # Of joins that wait for each other, the oldest fires when nothing else is active.
    waits_for_joins = any(place.phase == "join" and place.step in reaches.get(step, ()) for place in coming)
    for size in range(1, len(waiting) + 1):
        for present in combinations(waiting, size):
            absent = frozenset(waiting) - set(present)
            yield present, coming | absent
            if waits_for_joins:
                yield present, active | absent


def _late_of(places: Iterable[Place], fired: str) -> Joins:
    """The joins for which a merged token is late: those for which all its parts are."""
    return frozenset.intersection(*(place.late for place in places)) - {fired}


def _places_after(transitions: Iterable[Arrow]) -> Iterator[Place]:
    for transition in transitions:
        yield from transition.puts
        yield from (place for place in transition.moves.values() if place is not None)


def _require_room(transitions: Sequence[Arrow]) -> None:
    if len(transitions) > MAX_TRANSITIONS:
        raise TooLarge


def can_move_in_turn(reach: Reached, join: str) -> bool:
    """Whether the tokens on the way to a join move independently, in any order: nothing repeats, and no other join
    fires without some of them.
    """
    steps = _ancestors(reach, [join])
    if any(_wanted_tokens(reach.flow.plan.steps[step]) for step in steps - {join}):
        return False
    waiting = {step: steps.intersection(reach.flow.successors(step)) for step in steps}
    while last := [step for step, following in waiting.items() if following.isdisjoint(waiting)]:
        for step in last:
            del waiting[step]
    return not waiting


def _wanted_tokens(step: StepPlan) -> int | None:
    """The number of tokens that an ``any`` or ``<n>`` join waits for."""
    return 1 if step.join == "any" else step.join if isinstance(step.join, int) else None


def _count_places(places: Iterable[Place | None]) -> dict[Place, int]:
    counts: dict[Place, int] = {}
    for place in places:
        if place is not None:
            counts[place] = counts.get(place, 0) + 1
    return counts


def _ancestors(reached: Reached, targets: Iterable[str]) -> frozenset[str]:
    """The targets and every reached step that can reach one of them."""
    return frozenset(reach((step for step in targets if step in reached.arrived), reached.before))


MAX_FIRINGS: Final = 60_000
"""The most firings tried, and transitions unfolded, for one playbook."""
MAX_FIRINGS_PER_QUESTION: Final = 20_000

Explored = Exploration[Place, Firing | None]
Tokens = Mapping[Place, float]


class Inquiry:
    """Explores nets as long as firings are left.

    Attributes:
        unanswered: The questions for which too few firings were left.
    """

    def __init__(self, most: int = MAX_FIRINGS) -> None:
        self._left = most
        self.unanswered: Final[list[str]] = []

    @property
    def is_over(self) -> bool:
        """Whether no firings are left."""
        return not self._left

    def markings(self, reach: Reached, steps: Iterable[str], question: str) -> Iterator[tuple[Tokens, Explored]]:
        """The markings of the part of the net that leads to ``steps``, nearest first, until the caller has an answer.

        Args:
            question: The question in words, in case it stays unanswered.
        """
        return self._explore(lambda: Unfolding(reach, steps), question)

    def arrivals(self, reach: Reached, join: str, question: str) -> Iterator[tuple[Tokens, Explored]]:
        """The markings before a join fires; also those after it, if its own tokens may come back."""
        if can_move_in_turn(reach, join):
            return self._explore(lambda: Unfolding(reach, [join], ends_at=join), question, in_turn=True)
        return self.markings(reach, [join], question)

    def _explore(
        self, unfold: Callable[[], Unfolding], question: str, *, in_turn: bool = False
    ) -> Iterator[tuple[Tokens, Explored]]:
        try:
            net = unfold() if self._left else None
        except TooLarge:
            self._left, net = max(self._left - MAX_TRANSITIONS, 0), None
        if net is None:
            self.unanswered.append(question)
            return
        most = min(self._left, MAX_FIRINGS_PER_QUESTION)
        exploration = Exploration(net.transitions, net.start, most, in_turn=in_turn)
        try:
            for tokens in exploration:
                yield tokens, exploration
            if not exploration.is_complete:
                self.unanswered.append(question)
        finally:
            # Unfolding a transition costs about as much as a firing.
            self._left = max(self._left - len(net.transitions) - exploration.fired, 0)


def firings(labels: Iterable[Firing | None]) -> list[Firing]:
    """The firings in the labels of a path."""
    return [label for label in labels if label is not None]
