"""Purges commands of ended executions from the queue (PROTOCOL §5 *Retention*).

A nats-server that is killed may forget deletions: acknowledged commands are in the stream again, but no consumer
delivers them. A withdrawal is lost with the server that should have made it.
"""

from __future__ import annotations

import logging
from typing import Final

from noetl_stream.model.ids import is_valid_id
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.command_queue import CommandQueue

log = logging.getLogger(__name__)

EXECUTIONS_AT_ONCE: Final = 500


class QueueSweeper:
    """Purges commands of ended executions. Several servers may do so at once."""

    def __init__(self, queue: CommandQueue, store: Store) -> None:
        self._queue = queue
        self._store = store

    async def sweep(self) -> None:
        """Removes the commands of ended executions from the queue.

        Raises:
            Unreachable: no answer in time; the next sweep goes on.
        """
        present = await self._queue.present()
        executions, ended = sorted(set(present.values())), set[str]()
        for start in range(0, len(executions), EXECUTIONS_AT_ONCE):
            rows = await self._store.executions(executions[start : start + EXECUTIONS_AT_ONCE])
            ended |= {execution_id for execution_id, row in rows.items() if row.finished_ms is not None}
        gone = [
            (execution_id, command_id)
            for command_id, execution_id in present.items()
            if execution_id in ended and is_valid_id(command_id)
        ]
        if gone:
            await self._queue.withdraw(gone)
            log.info("purged %d commands of executions that have ended", len(gone))
