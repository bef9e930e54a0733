"""Retries come later and later, apart from each other, and are few beside what is sent for the first time."""

from __future__ import annotations

from noetl_stream.retries import FLOOR_BYTES_PER_S, FLOOR_MESSAGES_PER_S, JITTER, SHARE, RetryBudget, backoff_s


def test_each_retry_waits_twice_as_long_up_to_a_bound_and_never_at_the_same_time() -> None:
    for tries, wanted_s in ((0, 2.0), (1, 4.0), (3, 16.0), (4, 30.0), (10_000, 30.0)):
        waits = {backoff_s(2.0, tries) for _ in range(50)}
        assert len(waits) == 50
        assert all(wanted_s * (1 - JITTER) <= wait_s <= wanted_s * (1 + JITTER) for wait_s in waits)


def test_one_burst_is_allowed_and_then_the_floor() -> None:
    now_s = 0.0
    budget = RetryBudget(lambda: now_s, messages=50, size=10**9)
    assert sum(budget.take(10) for _ in range(1000)) == 50
    now_s += 10.0
    assert sum(budget.take(10) for _ in range(1000)) == 50, "no more than a burst, however long it was quiet"
    for _ in range(40):
        now_s += 0.25
        assert sum(budget.take(10) for _ in range(1000)) == FLOOR_MESSAGES_PER_S / 4


def test_bytes_are_bounded_as_messages_are_and_a_large_message_is_not_held_for_ever() -> None:
    now_s = 0.0
    budget = RetryBudget(lambda: now_s, messages=1000, size=1024)
    assert budget.take(8 * 1024 * 1024)
    assert not budget.take(1)
    now_s += 8 * 1024 * 1024 / FLOOR_BYTES_PER_S
    assert budget.take(1)


def test_first_sends_allow_a_tenth_as_many_retries() -> None:
    budget = RetryBudget(lambda: 0.0, messages=1000, size=10**9)
    while budget.take(1):
        pass
    for _ in range(500):
        budget.note_first(1)
    assert sum(budget.take(0) for _ in range(1000)) == int(500 * SHARE)
