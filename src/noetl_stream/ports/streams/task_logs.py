"""LOGS: what tasks write, in batches by execution. Bounded by size and age, and never in the way of work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

MAX_LOG_MESSAGE_BYTES = 64 * 1024
"""The largest message that LOGS takes: a batch with its headers."""


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """An encoded :class:`~noetl_stream.model.task_log.LogBatch`. Workers of ``pool`` have published it."""

    sequence: int
    pool: str
    body: bytes


class TaskLogs(Protocol):
    def publish(self, subject: str, message_id: str, body: bytes, done: Callable[[str], None]) -> None:
        """Sends at once, and again where it may be lost. ``done`` is called later, once: with why it is not stored, or
        with nothing.
        """

    async def read(self, execution_id: str, first: int) -> list[StoredBatch]:
        """Some of the batches of an execution from the sequence ``first`` on; none at the end.

        Raises:
            NotReady: the stream is missing, or an older release has made it.
            Unreachable: no answer in time.
        """

    async def delete(self, execution_id: str) -> None:
        """Deletes all batches of an execution.

        Raises:
            Unreachable: no answer in time.
        """
