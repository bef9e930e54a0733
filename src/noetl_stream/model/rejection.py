"""Why something asked of an execution cannot be done: codes for programs (LANGUAGE §9)."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

RejectionCode = Literal[
    "unknown_execution",
    "exists",
    "not_started",
    "ended",
    "ending",
    "not_ended",
    "not_failed",
    "never_ran",
    "version_mismatch",
    "unknown_step",
    "too_large",
    "too_many_signals",
    "invalid_playbook",
]

REFUSALS: Final[dict[RejectionCode, str]] = {
    "unknown_execution": "there is no execution of that id",
    "exists": "another request has begun the execution of that id",
    "not_started": "it is a rerun that is still looking at its original",
    "ended": "the execution has ended",
    "ending": "the execution has failed or is being cancelled",
    "not_ended": "the original of a rerun has not ended",
    "not_failed": "no step run failed the original of a retry",
    "never_ran": "the original of a rerun never came to that step",
    "version_mismatch": "ctx has another version, or the original another playbook, than was expected",
    "unknown_step": "the playbook has no such step, the original no such step run",
    "too_large": "it is larger than a limit allows",
    "too_many_signals": "as many signals of that name wait as a limit allows",
    "invalid_playbook": "the playbook is unknown here, or has errors",
}
"""Every code, and what it says."""


class Rejection(NamedTuple):
    """Why something cannot be done now: ``text`` is for people."""

    code: RejectionCode
    text: str
