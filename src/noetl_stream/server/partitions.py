"""Partition ownership: leases, epochs, cursors, a fair share among live servers (PROTOCOL §2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from noetl_stream.errors import StreamLost
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.ports.event_log import EventLog
from noetl_stream.ports.store import PartitionAdvance, PartitionLease, Store
from noetl_stream.server.lost_stream import StreamExtent

PRESENCE_S = 5.0
"""A server silent for this long no longer counts for the fair share."""


class PartitionOwnership:
    """The leases of one owner, kept up to date with the ticks it commits."""

    def __init__(self, owner: str, store: Store, log: EventLog, lease_s: float) -> None:
        self.owner = owner
        self.lease_s = lease_s
        self._store = store
        self._log = log
        self._owned: dict[int, PartitionLease] = {}
        self._peers: dict[str, float] = {}

    def __iter__(self) -> Iterator[PartitionLease]:
        return iter(self._owned.values())

    def __len__(self) -> int:
        return len(self._owned)

    def get(self, partition: int) -> PartitionLease | None:
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
        return -(-PARTITIONS // len(self._peers))

    async def take(self, limit: int) -> Sequence[PartitionLease]:
        """Takes over up to ``limit`` free partitions.

        Raises:
            StreamLost: EVENTS no longer holds what Postgres has folded; the leases are released first.
        """
        if limit <= 0:
            return []
        leases = await self._store.take_over(self.owner, self.lease_s, limit)
        return await self._adopt(leases)

    async def reload(self) -> Sequence[PartitionLease]:
        """Forgets everything and reads this owner's leases again, after a failed tick."""
        self._owned.clear()
        return await self._adopt(await self._store.owned(self.owner))

    async def renew(self) -> set[int]:
        """Renews all leases; forgets and returns the partitions that were lost."""
        kept = await self._store.renew(self.owner, _epochs(self._owned.values()), self.lease_s)
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
            ticks = [published.get(lease.id, lease.published_tick) for lease in gone]
            await self._store.give_back(self.owner, _epochs(gone), ticks)

    def advance(self, moved: Mapping[int, tuple[int, int]], published: Mapping[int, int]) -> list[PartitionAdvance]:
        """The fence of a tick that moves these partitions' cursors to ``(sequence, stored ms)``, in id order."""
        leases = [self._owned[partition] for partition in sorted(moved)]
        return [
            PartitionAdvance(
                id=lease.id,
                epoch=lease.epoch,
                tick=lease.tick,
                last_seq=moved[lease.id][0],
                last_ms=moved[lease.id][1],
                published_tick=published.get(lease.id, lease.published_tick),
            )
            for lease in leases
        ]

    def committed(self, advances: Sequence[PartitionAdvance]) -> None:
        """Records that the tick with this fence is committed."""
        for advance in advances:
            self._owned[advance.id] = self._owned[advance.id]._replace(
                tick=advance.tick + 1,
                last_seq=advance.last_seq,
                last_ms=advance.last_ms,
                published_tick=advance.published_tick,
            )

    async def verify_stream(self) -> None:
        """Checks that the message at each cursor is still the one that was folded (PROTOCOL §5).

        Raises:
            StreamLost: names the partition and the sequence.
        """
        await self._check(self._owned.values())

    async def _adopt(self, leases: Sequence[PartitionLease]) -> Sequence[PartitionLease]:
        try:
            await self._check(leases)
        except StreamLost:
            await self._store.give_back(self.owner, _epochs(leases), [lease.published_tick for lease in leases])
            raise
        self._owned.update((lease.id, lease) for lease in leases)
        return leases

    async def _check(self, leases: Collection[PartitionLease]) -> None:
        cursors = {(lease.last_seq, lease.last_ms): lease.id for lease in leases if lease.last_seq}
        if not cursors:
            return
        extent = await StreamExtent.of(self._log)
        for (cursor, at_ms), partition in cursors.items():
            if not await extent.still_holds(self._log, cursor, at_ms):
                raise StreamLost(
                    f"EVENTS holds sequences {extent.first} to {extent.last}, and partition {partition} was folded to "
                    f"{cursor}: the stream has lost messages or is a different one",
                    hint="point NOETL_NATS_URL at the NATS this Postgres belongs to, or restore the stream's store; "
                    "if it is lost, run `noetl-stream stream reconcile` and start the servers again",
                )


def _epochs(leases: Collection[PartitionLease]) -> list[tuple[int, int]]:
    return [(lease.id, lease.epoch) for lease in leases]
