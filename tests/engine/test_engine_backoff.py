from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl_stream.engine.pipeline import MAX_JITTER, jitter, retry_delay_s


def wait(
    backoff: str, attempt: int, *, delay_s: float = 2.0, most: float = 300.0, retry_after_s: float | None = None
) -> float:
    return retry_delay_s(
        backoff,  # type: ignore[arg-type]
        delay_s,
        attempt,
        max_delay_s=most,
        retry_after_s=retry_after_s,
        seed="command",
    )


@pytest.mark.parametrize(
    ("backoff", "factors"),
    [("none", (1, 1, 1, 1)), ("fixed", (1, 1, 1, 1)), ("linear", (1, 2, 3, 4)), ("exponential", (1, 2, 4, 8))],
)
def test_each_backoff_grows_as_the_language_says(backoff: str, factors: tuple[int, ...]) -> None:
    for attempt, factor in enumerate(factors, start=1):
        assert 2.0 * factor <= wait(backoff, attempt) <= 2.0 * factor * (1 + MAX_JITTER)


def test_no_wait_is_longer_than_max_delay() -> None:
    assert wait("exponential", 50, most=30.0) == 30.0


def test_very_many_attempts_do_not_overflow() -> None:
    assert wait("exponential", 10_000) == 300.0


def test_the_wait_is_never_shorter_than_retry_after() -> None:
    assert wait("none", 1, delay_s=0.5, retry_after_s=42.0) == 42.0


def test_max_delay_wins_over_retry_after() -> None:
    assert wait("none", 1, most=10.0, retry_after_s=42.0) == 10.0
    assert wait("none", 1, most=60.0, retry_after_s=42.0) == 42.0


def test_a_shorter_retry_after_changes_nothing() -> None:
    assert wait("fixed", 1, retry_after_s=0.1) == wait("fixed", 1) >= 2.0


def test_a_delay_of_zero_stays_zero() -> None:
    assert wait("exponential", 3, delay_s=0.0) == 0.0


def test_the_same_command_and_attempt_always_have_the_same_delay() -> None:
    assert wait("linear", 3) == wait("linear", 3) == 6.0 * (1 + jitter("command", 3))


def test_different_commands_have_different_delays() -> None:
    assert len({jitter(f"command-{number}", 1) for number in range(50)}) > 40


def test_different_attempts_have_different_delays() -> None:
    assert len({jitter("command", attempt) for attempt in range(50)}) > 40


@given(st.text(max_size=20), st.integers(1, 1000))
def test_jitter_stays_between_nothing_and_a_tenth(seed: str, attempt: int) -> None:
    assert 0.0 <= jitter(seed, attempt) < MAX_JITTER
