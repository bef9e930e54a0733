"""Reconcile: finds owed commands that the queue does not hold (PROTOCOL §2 *Reconcile*).

The order matters: the queue is listed first, then the log is folded to its end. A report is stored before its command
is acknowledged, so the report of a command missing from the list is at or before that end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from noetl_stream.ports.streams.command_queue import CommandQueue
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.server.memory.execution_cache import ExecutionCache, OwedCommand

ISSUED_AT_ONCE: Final = 500
"""How many commands one tick issues again."""


class Reconciler:
    """Lists commands missing from the queue, and returns them once the log is folded far enough."""

    def __init__(self, queue: CommandQueue, log: EventLog) -> None:
        self._queue = queue
        self._log = log
        self._missing: Sequence[OwedCommand] = ()
        self._through = 0

    async def list_missing(self, executions: ExecutionCache, under_way: Collection[str]) -> None:
        """Lists the owed commands that neither the queue nor this owner's publications hold."""
        self.forget()
        candidates = [owed for owed in executions.owed_commands() if owed.command_id not in under_way]
        if candidates:
            present = await self._queue.present()
            self._through = await self._log.last_sequence()
            self._missing = [owed for owed in candidates if owed.command_id not in present]

    def forget(self) -> None:
        """Discards the list of missing commands."""
        self._missing = ()

    async def take_missing(self, executions: ExecutionCache, folded: Callable[[], int]) -> Sequence[OwedCommand]:
        """Returns some of the listed commands still owed at the same issue, and loads their executions; empty until the
        log is folded to its end at the time of the list.

        Args:
            folded: Returns the sequence up to which all owned partitions are folded.
        """
        if not self._missing or folded() < self._through:
            return ()
        missing, self._missing = self._missing[:ISSUED_AT_ONCE], self._missing[ISSUED_AT_ONCE:]
        await executions.load(owed.execution_id for owed in missing if executions.is_evicted(owed.execution_id))
        assignments = [(owed, executions.assignment(owed.execution_id, owed.command_id)) for owed in missing]
        return [owed for owed, present in assignments if present is not None and present.issue == owed.issue]
