"""Why a request to an execution is rejected: codes for programs (LANGUAGE §9)."""

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
    "unknown_execution": "no execution has that id",
    "exists": "another request has started the execution with that id",
    "not_started": "it is a rerun that is still reading its original",
    "ended": "the execution has ended",
    "ending": "the execution has failed or is being cancelled",
    "not_ended": "the original of a rerun has not ended",
    "not_failed": "no step run failed the original of a retry",
    "never_ran": "the original of a rerun never reached that step",
    "version_mismatch": "ctx has a version, or the original a playbook, other than expected",
    "unknown_step": "the playbook has no such step, the original no such step run",
    "too_large": "it exceeds a limit",
    "too_many_signals": "the queued signals have reached their limit",
    "invalid_playbook": "the playbook is unknown or has errors",
}
"""Every code with its meaning."""


class Rejection(NamedTuple):
    """Why a request is rejected; ``text`` is for people."""

    code: RejectionCode
    text: str
