"""Task logs in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from noetl_stream.adapters.memory.line import Line
from noetl_stream.errors import Unreachable
from noetl_stream.ports.streams.task_logs import MAX_LOG_MESSAGE_BYTES, StoredBatch

READ_BATCHES: Final = 64


class MemoryTaskLogs:
    """:class:`~noetl_stream.ports.streams.task_logs.TaskLogs` in memory. Lines published to a stopped broker are
    lost.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._stored: list[tuple[str, StoredBatch]] = []
        self._last = 0

    def publish(self, subject: str, message_id: str, body: bytes, done: Callable[[str], None]) -> None:
        try:
            self._line.check()
        except Unreachable as error:
            done(error.message)
            return
        if len(body) > MAX_LOG_MESSAGE_BYTES:
            done("message size exceeds maximum allowed")
            return
        _, _, pool, execution_id, _ = subject.split(".")
        self._last += 1
        self._stored.append((execution_id, StoredBatch(self._last, pool, body)))
        done("")

    async def read(self, execution_id: str, first: int) -> list[StoredBatch]:
        self._line.check()
        found = [batch for owner, batch in self._stored if owner == execution_id and batch.sequence >= first]
        return found[:READ_BATCHES]

    async def delete(self, execution_id: str) -> None:
        self._line.check()
        self._stored = [one for one in self._stored if one[0] != execution_id]
