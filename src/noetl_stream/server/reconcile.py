"""Reconcile: what Postgres says is owed and the queue does not hold (PROTOCOL §2 *Reconcile*).

The order matters: the queue is listed first, then the log's end is read and folded to. A report is stored before its
command is acknowledged, so the report of a command that is absent from the list stands at or before that end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from noetl_stream.ports.command_queue import CommandQueue
from noetl_stream.ports.event_log import EventLog
from noetl_stream.server.execution_cache import ExecutionCache


class OwedCommand(NamedTuple):
    """A command that had been issued, and not ended, when the queue was about to be listed."""

    execution_id: str
    command_id: str
    issue: int


class Reconciler:
    def __init__(self, queue: CommandQueue, log: EventLog) -> None:
        self._queue = queue
        self._log = log

    @staticmethod
    def candidates(executions: ExecutionCache, under_way: Collection[str]) -> list[OwedCommand]:
        """Every command owed now that is not in this owner's publish pipeline."""
        return [
            OwedCommand(execution_id, assignment.command_id, assignment.issue)
            for execution_id, one in executions
            if one.state is not None
            for assignment in one.state.assignments.values()
            if assignment.command_id not in under_way
        ]

    async def missing(self, candidates: Iterable[OwedCommand]) -> tuple[list[OwedCommand], int]:
        """The candidates absent from the queue, and the sequence that must be folded before any is issued again."""
        present = await self._queue.present()
        through = await self._log.last_sequence()
        return [owed for owed in candidates if owed.command_id not in present], through

    @staticmethod
    def still_owed(executions: ExecutionCache, owed: OwedCommand) -> bool:
        """Whether it is owed at the same issue after the fold has gone on."""
        one = executions.get(owed.execution_id)
        if one is None or one.state is None:
            return False
        assignment = one.state.assignments.get(owed.command_id)
        return assignment is not None and assignment.issue == owed.issue
