"""LOGS: the output of tasks, in batches by execution. Bounded by size and age, and never in the way of work."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import msgspec

from noetl_stream.protocol.subjects import LogOwner

MAX_LOG_MESSAGE_BYTES = 64 * 1024
"""The largest message that LOGS accepts: a batch with its headers."""


class StoredBatch(msgspec.Struct, frozen=True, gc=False):
    """An encoded :class:`~noetl_stream.model.task_log.LogBatch`, published by workers of ``pool``."""

    sequence: int
    pool: str
    body: bytes


class BatchSize(NamedTuple):
    """The owner of a batch, and its bytes in the stream."""

    sequence: int
    owner: LogOwner
    bytes: int


class LogsExtent(msgspec.Struct, frozen=True, gc=False):
    """The first and the last sequence of the stream, its bytes, and their bound; ``None`` for no bound."""

    first: int
    last: int
    bytes: int
    max_bytes: int | None


class TaskLogs(Protocol):
    def publish(self, subject: str, message_id: str, body: bytes, done: Callable[[str], None]) -> None:
        """Sends at once, and again if it may be lost. ``done`` is called once, with the reason if it is not stored."""

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

    async def extent(self) -> LogsExtent:
        """Returns how much the stream holds.

        Raises:
            StoreMissing: the stream does not exist.
            Unreachable: no answer in time.
        """

    async def sizes(self, first: int) -> list[BatchSize]:
        """The sizes of some batches from the sequence ``first`` on; none at the end. Errors: as for :meth:`extent`."""

    async def trim(self, owner: LogOwner, through: int) -> None:
        """Deletes the batches of an owner up to a sequence. Errors: as for :meth:`extent`."""
