"""Counts of executions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from noetl_stream.model.status import ExecutionStatus


class TallyKey(msgspec.Struct, frozen=True, gc=False):
    """What executions are counted by, beside their status.

    Attributes:
        edges: Ids in order: by the pair that an execution's id lies between, as the number of the first, from 1.
        label: Else by the value of this label; without either by path.
    """

    edges: Sequence[str] = ()
    label: str | None = None


class ExecutionTally(NamedTuple):
    """How many executions have this status and key; ``None`` is that of executions without the label."""

    status: ExecutionStatus
    key: str | None
    executions: int


class RecentExecution(msgspec.Struct, frozen=True, gc=False):
    """What statistics count of an execution. ``position`` is the last of its journal."""

    execution_id: str
    status: ExecutionStatus
    started_ms: int
    finished_ms: int | None
    position: int
