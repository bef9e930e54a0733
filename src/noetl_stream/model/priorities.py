"""Priorities of executions in a pool, and the order of their turns (LANGUAGE §15)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

LOWEST_PRIORITY: Final = 0
DEFAULT_PRIORITY: Final = 5
HIGHEST_PRIORITY: Final = 9

PRIORITIES: Final = range(LOWEST_PRIORITY, HIGHEST_PRIORITY + 1)

PASSED_OVER: Final = 9
"""The number of times that a taker passes over a priority with waiting commands before its turn."""


class PriorityTurns:
    """The turns of priorities at one taker: the highest with waiting commands, or the one passed over
    :data:`PASSED_OVER` times. A priority therefore has its turn after at most ``PASSED_OVER + len(PRIORITIES) - 2``
    others.
    """

    __slots__ = ("_passed",)

    def __init__(self) -> None:
        self._passed: dict[int, int] = {}

    def next(self, waiting: Collection[int]) -> int:
        """The next priority among those with waiting commands, at least one."""
        passed = self._passed
        if passed:
            due = [(passed.get(one, 0), one) for one in waiting if passed.get(one, 0) >= PASSED_OVER]
            if due:
                return max(due)[1]
        return max(waiting)

    def count_turn(self, priority: int, waiting: Collection[int]) -> None:
        """Counts a turn of ``priority`` while commands waited at ``waiting``."""
        passed = self._passed
        self._passed = {one: passed.get(one, 0) + 1 for one in waiting if one != priority}

    def plan_turns(self, count: int, waiting: Mapping[int, float]) -> dict[int, int]:
        """The number of turns of each priority among the next ``count``, given the commands that wait there."""
        trial, left, found = PriorityTurns(), dict(waiting), dict[int, int]()
        trial._passed = self._passed
        while left and count > 0:
            priority = trial.next(left)
            trial.count_turn(priority, left)
            found[priority] = found.get(priority, 0) + 1
            left[priority] -= 1
            if left[priority] < 1:
                del left[priority]
            count -= 1
        return found
