"""Statuses of executions and step runs, as stored and shown; reasons for rejecting requests (LANGUAGE §9)."""

from __future__ import annotations

from typing import Final, Literal, get_args

import msgspec

EndStatus = Literal["completed", "failed", "cancelled"]
FoldedStatus = Literal["pending", "running", EndStatus]
"""The status by the journal. ``waiting``, ``paused``, ``compensating`` and ``quarantined`` are derived."""

ExecutionStatus = Literal["waiting", "paused", "compensating", "quarantined", FoldedStatus]
LIVE: Final[tuple[ExecutionStatus, ...]] = ("pending", "running", "waiting", "paused", "compensating", "quarantined")
ENDED: Final[tuple[EndStatus, ...]] = ("completed", "failed", "cancelled")
STATUSES: Final[tuple[ExecutionStatus, ...]] = (*LIVE, *ENDED)

RunStatus = Literal["waiting", "running", "done", "failed", "cancelled", "reused"]
"""The status of a step run, of all runs of a step, or of an iteration."""
RUN_STATUSES: Final[tuple[RunStatus, ...]] = get_args(RunStatus)

RejectionCode = Literal[
    "unknown_execution",  # no execution has that id
    "exists",  # another request has started the execution with that id
    "not_started",  # its playbook, or the original of a rerun, is still being read
    "ended",  # the execution has ended
    "ending",  # the execution has failed or is being cancelled
    "not_ended",  # the original of a rerun has not ended
    "not_failed",  # no step run failed the original of a retry
    "never_ran",  # the original of a rerun never reached that step
    "undone",  # step runs of the original that would be reused were undone
    "nothing_to_undo",  # no step run of the execution is left to be undone
    "version_mismatch",  # ctx has a version, or the original a playbook, other than expected
    "unknown_step",  # the playbook has no such step, the original no such step run
    "too_large",  # it exceeds a limit
    "too_many_signals",  # the queued signals have reached their limit
    "quarantined",  # the execution is set aside, or a request could not be stored
    "answer_lost",  # it changed nothing, and Postgres has lost why
    "unreadable",  # no server here can read it: it was written by a newer version, or is not as it should be
    "unsigned",  # neither a gateway nor the local operator has signed it
    "invalid_playbook",  # the playbook is unknown or has errors
    "invalid_workload",  # it does not match what the playbook declares
    "unknown_playbook",  # the catalog has no such playbook or version
    "unknown_aggregate",  # no schedule or other aggregate is registered there
    "other_kind",  # an aggregate of another kind is registered there
    "forbidden",  # who asks, or has registered it, may not start this playbook
    "paused",  # the schedule is paused
    "under_way",  # a backfill of the schedule is under way
    "nothing_due",  # the schedule has no occurrence there
    "older_servers",  # servers of an older version still run
    "key_taken",  # another execution of the playbook has the unique key
]

KEY_TAKEN: Final[RejectionCode] = "key_taken"


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """The reason for rejecting a request; ``text`` is for people."""

    code: RejectionCode
    text: str
