"""Whose turn it is among priorities: the highest first, and none waits for ever."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from noetl_stream.model.priorities import HIGHEST_PRIORITY, PASSED_OVER, PRIORITIES, PriorityTurns


def taken(turns: PriorityTurns, waiting: list[int], count: int) -> list[int]:
    """The next turns while something waits at each of these priorities all the time."""
    found = []
    for _ in range(count):
        priority = turns.next(waiting)
        turns.count_turn(priority, waiting)
        found.append(priority)
    return found


def test_the_highest_priority_comes_first() -> None:
    assert [PriorityTurns().next(waiting) for waiting in ([2, 8, 5], [0], [0, 1])] == [8, 0, 1]


def test_a_priority_that_was_passed_over_nine_times_is_next() -> None:
    assert taken(PriorityTurns(), [9, 1], 30) == ([9] * PASSED_OVER + [1]) * 3


def test_an_item_that_no_longer_waits_has_not_been_passed_over() -> None:
    turns = PriorityTurns()
    taken(turns, [9, 1], PASSED_OVER)
    taken(turns, [9], 1)
    assert turns.next([9, 1]) == 9


@pytest.mark.parametrize("seed", range(20))
def test_an_item_waits_for_no_more_turns_than_the_bound(seed: int) -> None:
    """Whatever begins and ceases to wait."""
    random, turns = Random(seed), PriorityTurns()
    waited: Counter[int] = Counter()
    waiting = set(PRIORITIES)
    for _ in range(2_000):
        if random.random() < 0.2:
            waiting ^= {random.choice(PRIORITIES)}
            waiting |= {HIGHEST_PRIORITY}
        priority = turns.next(waiting)
        turns.count_turn(priority, waiting)
        waited = Counter({one: waited[one] + 1 for one in waiting if one != priority})
        assert max(waited.values(), default=0) <= PASSED_OVER + len(PRIORITIES) - 2


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_of_turns_equals_single_turns(seed: int) -> None:
    random, turns = Random(seed), PriorityTurns()
    taken(turns, random.sample(PRIORITIES, 4), random.randrange(30))
    waiting: dict[int, float] = {one: random.randrange(1, 40) for one in random.sample(PRIORITIES, 4)}
    planned, left, found = turns.plan_turns(60, waiting), dict(waiting), Counter[int]()
    for _ in range(60):
        if not left:
            break
        priority = turns.next(left)
        turns.count_turn(priority, left)
        found[priority] += 1
        left[priority] -= 1
        if not left[priority]:
            del left[priority]
    assert planned == dict(found)
