"""Statuses of executions and of step runs, as they are stored and shown (LANGUAGE §9)."""

from __future__ import annotations

from typing import Final, Literal

EndStatus = Literal["completed", "failed", "cancelled"]
FoldedStatus = Literal["pending", "running", EndStatus]
"""What the journal says. ``waiting`` and ``paused`` are running executions of which nothing runs: they are derived."""

ExecutionStatus = Literal["waiting", "paused", FoldedStatus]
LIVE: Final[tuple[ExecutionStatus, ...]] = ("pending", "running", "waiting", "paused")
ENDED: Final[tuple[EndStatus, ...]] = ("completed", "failed", "cancelled")
STATUSES: Final[tuple[ExecutionStatus, ...]] = (*LIVE, *ENDED)

RunStatus = Literal["waiting", "running", "done", "failed", "cancelled", "reused"]
"""Of a step run, of all runs of a step, and of an iteration."""
