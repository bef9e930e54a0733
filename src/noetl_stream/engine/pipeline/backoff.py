"""How long a retry waits (LANGUAGE §5 *retry*). Deterministic: the jitter derives from the command, not from chance."""

from __future__ import annotations

from typing import Final

from noetl_stream.model.ids import derive
from noetl_stream.playbook.plan import Backoff

DEFAULT_DELAY_S: Final = 1.0
MAX_JITTER: Final = 0.1
_MAX_DOUBLINGS: Final = 60
_DIGITS: Final = 8


def retry_delay_s(
    backoff: Backoff, delay_s: float, attempt: int, *, max_delay_s: float, retry_after_s: float | None, seed: str
) -> float:
    """Seconds between the attempt that just finished and the next.

    The jitter of 0–10 % comes on top of the backoff, ``max_delay_s`` bounds both, and ``retry_after_s``, which the
    other side asked for, is the least whatever the rule says.

    Args:
        attempt: The attempt that just finished, from 1.
        seed: What the jitter derives from: the same seed and attempt always wait alike.
    """
    grown_s = delay_s
    if backoff == "linear":
        grown_s = delay_s * attempt
    elif backoff == "exponential":
        grown_s = delay_s * 2.0 ** min(attempt - 1, _MAX_DOUBLINGS)
    chosen_s = min(grown_s * (1.0 + jitter(seed, attempt)), max_delay_s)
    return max(chosen_s, retry_after_s or 0.0)


def jitter(seed: str, attempt: int) -> float:
    """A share from 0 up to :data:`MAX_JITTER`, a function of its arguments."""
    drawn = int(derive(seed, "jitter", attempt)[:_DIGITS], 16)
    return MAX_JITTER * drawn / 16**_DIGITS
