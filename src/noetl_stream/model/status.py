"""Statuses of executions and of step runs, as they are stored and shown (LANGUAGE §9)."""

from __future__ import annotations

from typing import Final, Literal, cast

EndStatus = Literal["completed", "failed", "cancelled"]
ExecutionStatus = Literal["pending", "running", "waiting", "paused", "completed", "failed", "cancelled"]
LIVE: Final[tuple[ExecutionStatus, ...]] = ("pending", "running", "waiting", "paused")
ENDED: Final[tuple[EndStatus, ...]] = ("completed", "failed", "cancelled")
STATUSES: Final[tuple[ExecutionStatus, ...]] = (*LIVE, *ENDED)

RunStatus = Literal["waiting", "running", "done", "failed", "cancelled", "reused"]
"""Of a step run, of all runs of a step, and of an iteration."""


def status_of(text: str) -> ExecutionStatus:
    """The status that is stored as ``text``."""
    return cast(ExecutionStatus, text)
