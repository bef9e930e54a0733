"""Counts of executions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from noetl_stream.model.status import ExecutionStatus


class TallyKey(msgspec.Struct, frozen=True, gc=False):
    """The key by which executions are counted, in addition to their status.

    Attributes:
        edges: Ids in order: the key is the number, from 1, of the pair between which an execution's id lies.
        label: Otherwise the key is the value of this label; without either it is the path.
    """

    edges: Sequence[str] = ()
    label: str | None = None


class ExecutionTally(NamedTuple):
    """The number of executions with this status and key; ``None`` is the key of executions without the label."""

    status: ExecutionStatus
    key: str | None
    executions: int


class RecentExecution(msgspec.Struct, frozen=True, gc=False):
    """The facts of an execution that statistics use. ``position`` is the last one of its journal."""

    execution_id: str
    status: ExecutionStatus
    started_ms: int
    finished_ms: int | None
    position: int
