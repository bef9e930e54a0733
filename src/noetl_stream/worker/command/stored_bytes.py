"""What a worker knows of the bytes that executions have in the object store."""

from __future__ import annotations

from typing import Final

from noetl_stream.errors import NoetlError
from noetl_stream.lru import LruCache
from noetl_stream.model.limits import VARIABLE_PREFIX
from noetl_stream.model.messages import StepCommand

EXECUTIONS_KEPT: Final = 16_384


class StorageExhausted(NoetlError):
    """An execution may store no more objects of this size. ``kind`` is the error's kind as playbooks see it."""

    kind = "limit_exceeded"


class StoredBytes:
    """Counts what one worker has stored for each execution, with what servers know of all workers.

    Servers count what is in reports that they have folded. A worker counts its objects at once, so that many commands
    at the same time cannot each store as much as was left when they were issued.
    """

    def __init__(self) -> None:
        self._known: LruCache[str, int] = LruCache(EXECUTIONS_KEPT)

    def take(self, command: StepCommand, size: int) -> None:
        """Counts an object of the command's execution that is about to be stored.

        Raises:
            StorageExhausted: it is beyond the limit of the execution.
        """
        most = command.limits.max_stored_bytes
        stored = max(command.stored_bytes, self._known.get(command.execution_id) or 0)
        if stored + size > most:
            over = f"{size:,} bytes are too much beside the {stored:,} that the execution has stored"
            bound = f"limits.max_stored_bytes is {most:,}, at most what the operator allows"
            raise StorageExhausted(f"{over}; {bound} ({VARIABLE_PREFIX}MAX_STORED_BYTES)")
        self._known.put(command.execution_id, stored + size)
