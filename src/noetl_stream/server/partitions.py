"""Partition ownership: leases, epochs, cursors, a fair share among live servers (PROTOCOL §2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from noetl_stream.errors import StreamLost
from noetl_stream.ports.event_log import EventLog
from noetl_stream.ports.store import PartitionAdvance, PartitionLease, Store

PRESENCE_S = 5.0
"""A server not heard of for this long no longer counts for the fair share."""


@dataclass(slots=True)
class OwnedPartition:
    """An owned partition. ``cursor`` is the last sequence folded, ``tick`` the last tick committed."""

    id: int
    epoch: int
    tick: int
    cursor: int
    cursor_ms: int
    published_tick: int


class PartitionOwnership:
    """The leases of one owner. Nothing is folded here; the fold asks what it owns."""

    def __init__(self, owner: str, store: Store, log: EventLog, *, partitions: int, lease_s: float) -> None:
        self.owner = owner
        self.lease_s = lease_s
        self._store = store
        self._log = log
        self._total = partitions
        self._owned: dict[int, OwnedPartition] = {}
        self._peers: dict[str, float] = {}

    def __iter__(self) -> Iterator[OwnedPartition]:
        return iter(self._owned.values())

    def __len__(self) -> int:
        return len(self._owned)

    def get(self, partition: int) -> OwnedPartition | None:
        return self._owned.get(partition)

    @property
    def ids(self) -> Collection[int]:
        return self._owned.keys()

    def record_presence(self, owner: str, now_s: float) -> None:
        """Records that a server, this one or another, is alive."""
        self._peers[owner] = now_s

    def fair_share(self, now_s: float) -> int:
        """How many partitions each live server should own, rounded up."""
        self._peers[self.owner] = now_s
        self._peers = {name: at for name, at in self._peers.items() if now_s - at < PRESENCE_S}
        return -(-self._total // len(self._peers))

    async def take(self, limit: int) -> list[OwnedPartition]:
        """Takes over up to ``limit`` free partitions.

        Raises:
            StreamLost: EVENTS no longer holds what Postgres has folded; the leases are released first.
        """
        if limit <= 0:
            return []
        leases = await self._store.take_over(self.owner, self.lease_s, limit)
        return await self._adopt(leases)

    async def reload(self) -> list[OwnedPartition]:
        """Forgets everything and reads this owner's leases again, after a failed tick."""
        self._owned.clear()
        return await self._adopt(await self._store.owned(self.owner))

    async def renew(self) -> set[int]:
        """Renews all leases; forgets and returns the partitions that were lost."""
        kept = await self._store.renew(self.owner, self._epochs(self._owned.values()), self.lease_s)
        lost = set(self._owned) - kept
        for partition in lost:
            self.forget(partition)
        return lost

    def forget(self, partition: int) -> None:
        """Drops a partition whose lease is lost."""
        del self._owned[partition]

    async def release(self, partitions: Collection[int], published: Mapping[int, int]) -> None:
        """Releases the leases of these partitions now."""
        gone = [self._owned.pop(partition) for partition in sorted(partitions) if partition in self._owned]
        if gone:
            ticks = [published.get(owned.id, owned.published_tick) for owned in gone]
            await self._store.give_back(self.owner, self._epochs(gone), ticks)

    def advance(self, moved: Mapping[int, tuple[int, int]], published: Mapping[int, int]) -> list[PartitionAdvance]:
        """The fence of a tick that moves these partitions' cursors to ``(sequence, stored ms)``, in id order."""
        advances = []
        for partition in sorted(moved):
            owned = self._owned[partition]
            cursor, at_ms = moved[partition]
            mark = published.get(partition, owned.published_tick)
            advances.append(
                PartitionAdvance(
                    id=partition,
                    epoch=owned.epoch,
                    tick=owned.tick,
                    last_seq=cursor,
                    last_ms=at_ms,
                    published_tick=mark,
                )
            )
        return advances

    def committed(self, advances: Sequence[PartitionAdvance]) -> None:
        """Records that the tick with this fence is committed."""
        for advance in advances:
            owned = self._owned[advance.id]
            owned.tick = advance.tick + 1
            owned.cursor, owned.cursor_ms = advance.last_seq, advance.last_ms
            owned.published_tick = advance.published_tick

    async def verify_stream(self) -> None:
        """Checks that the message at each cursor is still the one that was folded (PROTOCOL §5).

        Raises:
            StreamLost: names the partition and the sequence.
        """
        await self._check(self._owned.values())

    async def _adopt(self, leases: Sequence[PartitionLease]) -> list[OwnedPartition]:
        taken = [
            OwnedPartition(lease.id, lease.epoch, lease.tick, lease.last_seq, lease.last_ms, lease.published_tick)
            for lease in leases
        ]
        try:
            await self._check(taken)
        except StreamLost:
            await self._store.give_back(self.owner, self._epochs(taken), [owned.published_tick for owned in taken])
            raise
        self._owned.update((owned.id, owned) for owned in taken)
        return taken

    async def _check(self, owned: Collection[OwnedPartition]) -> None:
        cursors = {(each.cursor, each.cursor_ms): each.id for each in owned if each.cursor}
        if not cursors:
            return
        first = await self._log.first_sequence()
        last = await self._log.last_sequence()
        for (cursor, at_ms), partition in cursors.items():
            found = await self._log.stored_at(cursor) if first <= cursor <= last else None
            lost = cursor > last or first > cursor + 1 or (found is not None and at_ms and found != at_ms)
            if lost:
                raise StreamLost(
                    f"EVENTS holds sequences {first} to {last}, and partition {partition} was folded to {cursor}: "
                    "the stream has lost messages or is a different one",
                    hint="restore the stream's store, or point NOETL_NATS_URL at the NATS this Postgres belongs to",
                )

    @staticmethod
    def _epochs(owned: Collection[OwnedPartition]) -> list[tuple[int, int]]:
        return [(each.id, each.epoch) for each in owned]
