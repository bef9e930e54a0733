"""Partition assignment: leases, the executions they bring into memory, and the reader that feeds them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from noetl_stream.errors import NoetlError, ReaderBroken, Unreachable
from noetl_stream.ports.clock import Clock
from noetl_stream.server.commit import Committer
from noetl_stream.server.execution_cache import ExecutionCache
from noetl_stream.server.inbox import Inbox
from noetl_stream.server.inputs import ServerInputs
from noetl_stream.server.partitions import OwnedPartition, PartitionOwnership
from noetl_stream.server.publications import Publications
from noetl_stream.server.reader import MAX_READERS, PartitionReader

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """What one server is made of, shared by its loop, its housekeeping and its partition assignment."""

    ownership: PartitionOwnership
    executions: ExecutionCache
    reader: PartitionReader
    inputs: ServerInputs
    inbox: Inbox
    publications: Publications
    committer: Committer


class PartitionAssignment:
    """Keeps memory and reader in step with the leases this server holds.

    Attributes:
        read_since_s: When the current readers were opened, by the monotonic clock.
        changed: Set when partitions are gained or readers reopened, so that the queue is reconciled.
    """

    def __init__(self, parts: ServerParts, clock: Clock, *, drain_s: float, retry_s: float) -> None:
        self._parts = parts
        self._clock = clock
        self._drain_s = drain_s
        self._retry_s = retry_s
        self.read_since_s = float("-inf")
        self.changed = False

    async def adopt(self, taken: Collection[OwnedPartition]) -> None:
        """Loads newly leased partitions and reads them from their cursors."""
        ids = {owned.id for owned in taken}
        await self._parts.inputs.synchronize()
        self._parts.inbox.expect_messages()
        await self._parts.executions.load_partitions(ids)
        if self._parts.reader.readers >= MAX_READERS:
            await self.reopen()
        else:
            await self._parts.reader.add(ids, min(owned.cursor for owned in taken))
        self.changed = True

    async def release(self, partitions: Collection[int]) -> None:
        """Releases these leases once everything published for them is acknowledged."""
        await self._parts.publications.drain(self._drain_s)
        await self._parts.ownership.release(partitions, self._parts.committer.published(partitions))
        await self.forget(partitions)

    async def forget(self, partitions: Collection[int]) -> None:
        """Drops partitions that another server now owns (PROTOCOL §2: memory is per epoch)."""
        self._parts.executions.forget_partitions(partitions)
        await self._parts.reader.drop(partitions)

    async def reopen(self) -> None:
        """Opens one reader for all owned partitions, from the committed cursors.

        Raises:
            StreamLost: EVENTS no longer holds what was folded.
        """
        await self._parts.reader.close()
        self.read_since_s = self._clock.monotonic_s()
        await self._parts.ownership.verify_stream()
        if len(self._parts.ownership):
            await self._parts.executions.load_partitions(set(self._parts.ownership.ids))
            await self._parts.reader.add(
                self._parts.ownership.ids, min(owned.cursor for owned in self._parts.ownership)
            )
            self.changed = True

    async def reload(self, is_stopping: Callable[[], bool]) -> None:
        """Drops all folded state and reads it again, after a failed tick or one of unknown outcome."""
        await self._parts.reader.close()
        self._parts.executions.forget_all()
        self._parts.inputs.forget()
        await self.retry_until_reached(self._reload, is_stopping)

    async def retry_until_reached(
        self, restore: Callable[[], Awaitable[None]], is_stopping: Callable[[], bool]
    ) -> None:
        """Retries ``restore`` until both stores are reachable."""
        while not is_stopping():
            try:
                await restore()
                return
            except (Unreachable, ReaderBroken) as error:
                log.warning("stores unreachable, will retry: %s", error)
                await self._clock.sleep(self._retry_s)

    async def release_all(self) -> None:
        """Releases all leases, so that other servers need not wait for them to expire."""
        try:
            await self.release(list(self._parts.ownership.ids))
        except NoetlError as error:
            log.warning("cannot release the leases, they will expire: %s", error)

    async def _reload(self) -> None:
        await self._parts.ownership.reload()
        await self.reopen()
