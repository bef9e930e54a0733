"""Explorations of the net of a workflow, within one bound on firings for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from noetl_stream.playbook.diagnostics import Firing
from noetl_stream.playbook.net.petri import Exploration
from noetl_stream.playbook.net.reach import Reached
from noetl_stream.playbook.net.unfold import MAX_TRANSITIONS, Place, TooLarge, Unfolding, can_move_in_turn

MAX_FIRINGS: Final = 60_000
"""The most firings tried for one playbook, and transitions unfolded for it."""
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
