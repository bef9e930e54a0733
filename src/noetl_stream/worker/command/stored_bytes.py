"""The bytes that executions have in the object store, as far as a worker knows."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from noetl_stream.errors import NoetlError
from noetl_stream.lru import LruCache
from noetl_stream.model.limits import VARIABLE_PREFIX
from noetl_stream.model.messages import NamespaceShare, StepCommand
from noetl_stream.settings.retention_periods import STORED_VARIABLE

EXECUTIONS_KEPT: Final = 16_384
NAMESPACES_KEPT: Final = 1_000


class StorageExhausted(NoetlError):
    """An execution may store no more objects of this size. ``kind`` is the error's kind as playbooks see it."""

    kind = "limit_exceeded"


class StoredBytes:
    """Counts the bytes that one worker has stored for each execution and namespace, in addition to what servers know.

    Servers count the objects in reports that they have folded. A worker counts its objects at once, so that concurrent
    commands cannot each store as much as was left when they were issued.
    """

    def __init__(self) -> None:
        self._known: LruCache[str, int] = LruCache(EXECUTIONS_KEPT)
        self._shares: LruCache[str, NamespaceShare] = LruCache(NAMESPACES_KEPT)

    def take(self, command: StepCommand, size: int) -> None:
        """Counts an object of the command's execution that is about to be stored.

        Raises:
            StorageExhausted: the object exceeds the limit of the execution, or of its namespace.
        """
        most, share = command.limits.max_stored_bytes, self._latest(command.share)
        stored = max(command.stored_bytes, self._known.get(command.execution_id) or 0)
        if stored + size > most:
            over = f"{size:,} bytes are too much beside the {stored:,} that the execution has stored"
            bound = f"limits.max_stored_bytes is {most:,}, at most what the operator allows"
            raise StorageExhausted(f"{over}; {bound} ({VARIABLE_PREFIX}MAX_STORED_BYTES)")
        if share.max_stored_bytes and share.stored_bytes + size > share.max_stored_bytes:
            over = f"{size:,} bytes are too much beside the {share.stored_bytes:,} of all executions of the namespace"
            bound = f"{share.namespace}, which may store {share.max_stored_bytes:,} ({STORED_VARIABLE})"
            raise StorageExhausted(f"{over} {bound}; deleting executions makes room")
        self._known.put(command.execution_id, stored + size)
        self._shares.put(share.namespace, replace(share, stored_bytes=share.stored_bytes + size))

    def _latest(self, given: NamespaceShare) -> NamespaceShare:
        """The last known share of a namespace, including the objects stored here since."""
        known = self._shares.get(given.namespace)
        if known is not None and given.max_stored_bytes and given.at_ms <= known.at_ms:
            return known
        self._shares.put(given.namespace, given)
        return given
