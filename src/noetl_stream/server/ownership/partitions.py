"""Partition ownership: leases, epochs, cursors, a fair share among live servers (PROTOCOL §2)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from noetl_stream.errors import Fenced, StreamLost
from noetl_stream.model.ids import partition_count, partition_of
from noetl_stream.ports.stores.cursors import Cursor
from noetl_stream.ports.stores.dead_letters import storable_text
from noetl_stream.ports.stores.store import PartitionAdvance, PartitionLease, Store
from noetl_stream.ports.streams.command_queue import CommandQueue
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.server.journal_records import (
    StreamExtent,
    accept_head,
    lost_cursors,
    refuse_records_of_others,
    refuse_stream_of_others,
    repairs_of,
)

log = logging.getLogger(__name__)

PRESENCE_S = 1.5
"""The longest silence of a server that counts for the fair share. Its leased partitions are never taken."""

ALIVE_S = 3.0
"""The longest silence of a server that counts as alive. One that crashed and lost its lease was silent for longer: a
lease lasts 6 s or more, and is renewed every third of it.
"""

LEFT_S = 30.0
"""The time for which a server does not take back a partition that it has left to a newer server."""

CAREFUL_FROM = 2
"""The number of crashes of a partition after which its inputs are folded one at a time."""

SOUND_AFTER = 16
"""The number of turns that fold inputs of a partition without a crash, after which it counts as sound again."""

LOADING: Final = "load "
"""Prefixes the id of an execution that is being loaded; once condemned, it is not loaded again."""

SUSPICIONS = 3
"""The number of consecutive crashes that must suspect an execution before it is quarantined."""


class PartitionOwnership:
    """The leases of one owner, updated with the ticks it commits.

    Attributes:
        unsound: The partitions whose owners have crashed, with the turns until they count as sound again.
        fences: By partition, the queue's fence under which its commands are issued.
        condemned: The execution to quarantine, by partition: owners have crashed repeatedly while folding it, or
            loading it, marked by :data:`LOADING`.
    """

    def __init__(self, owner: str, store: Store, log: EventLog, queue: CommandQueue) -> None:
        self.owner = owner
        self._store = store
        self._log = log
        self._queue = queue
        self._owned: dict[int, PartitionLease] = {}
        self._peers: dict[str, float] = {}
        self.fences: dict[int, int] = {}
        self.unsound: dict[int, int] = {}
        self.condemned: dict[int, str] = {}
        self._grown: set[int] = set()
        self._left: dict[int, float] = {}
        self._behind: set[int] = set()

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

    def record_departure(self, owner: str) -> None:
        """Records that a server has ended, so that its released partitions are shared out at once."""
        self._peers.pop(owner, None)

    def fair_share(self, now_s: float) -> int:
        """Returns how many partitions each live server should own, rounded up."""
        self._peers[self.owner] = now_s
        self._peers = {name: at_s for name, at_s in self._peers.items() if now_s - at_s < ALIVE_S}
        return -(-partition_count() // sum(now_s - at_s < PRESENCE_S for at_s in self._peers.values()))

    async def take(self, limit: int, lease_s: float, now_s: float) -> Sequence[PartitionLease]:
        """Takes over up to ``limit`` free partitions. Those that a frozen owner holds locked become free soon
        afterwards.

        Partitions whose last folded message EVENTS no longer holds are repaired instead (PROTOCOL §5 *A lost tail*):
        they can be taken over again.

        Raises:
            StreamLost: EVENTS belongs to another database; the leases are released first.
        """
        if limit <= 0:
            return []
        alive = [name for name, at_s in self._peers.items() if now_s - at_s < ALIVE_S]
        self._left = {id: until_s for id, until_s in self._left.items() if now_s < until_s}
        taken = await self._store.take_over(self.owner, lease_s, limit, alive, self._left)
        if len(taken) < limit:
            for frozen in await self._store.end_frozen(alive):
                log.warning("ended the transaction of %s, which held partitions and was not heard of", frozen)
        return await self._adopt(taken)

    def is_careful(self, partition: int) -> bool:
        """Returns whether inputs of this partition are folded one at a time."""
        lease = self._owned.get(partition)
        return lease is not None and lease.crashes >= CAREFUL_FROM

    @contextlib.asynccontextmanager
    async def folding_alone(self, execution_id: str) -> AsyncIterator[None]:
        """Records that an input of this execution is being folded, until its tick, if any, is committed.

        Raises:
            Fenced: the lease is lost.
        """
        lease = self._owned[partition_of(execution_id)]
        await self._store.set_folding(self.owner, lease.id, lease.epoch, storable_text(execution_id))
        yield
        if self._owned.get(lease.id) is lease:
            await self._store.set_folding(self.owner, lease.id, lease.epoch, None)

    async def note_loading(self, execution_id: str) -> None:
        """Records that this execution is being loaded, alone. Executions loaded before it are not suspect.

        Raises:
            Fenced: the lease is lost.
        """
        lease = self._owned[partition_of(execution_id)]
        marked = f"{LOADING}{storable_text(execution_id)}"
        await self._store.set_folding(self.owner, lease.id, lease.epoch, marked, True)

    async def note_loaded(self, partition: int) -> None:
        """Records that all executions of the partition are loaded.

        Raises:
            Fenced: the lease is lost.
        """
        await self._store.set_folding(self.owner, partition, self._owned[partition].epoch, None, True)

    def is_condemned(self, execution_id: str) -> bool:
        name = storable_text(execution_id)
        return self.condemned.get(partition_of(execution_id)) in (name, f"{LOADING}{name}")

    def acquit(self, execution_id: str) -> None:
        """Removes an execution from the condemned ones, after its quarantine or the refusal of its request."""
        self.condemned.pop(partition_of(execution_id), None)

    async def reload(self) -> Sequence[PartitionLease]:
        """Reads this owner's leases again, after a failed tick. Until then they are renewed."""
        owned = await self._store.owned(self.owner)
        left = [lease for lease in owned if lease.id in self._left or self._is_restored(lease)]
        if left:
            await self._give_back(left)
        leases = await self._adopt([lease for lease in owned if lease not in left], instead=True)
        for lease in leases:
            if self.is_careful(lease.id):
                with contextlib.suppress(Fenced):  # the folded inputs have not killed this server
                    await self._store.set_folding(self.owner, lease.id, lease.epoch, None)
        return leases

    def _is_restored(self, lease: PartitionLease) -> bool:
        """Returns whether Postgres has lost ticks of this owner. What it still publishes of them is late only in a
        later epoch.
        """
        held = self._owned.get(lease.id)
        return held is not None and held.tick > lease.tick

    def epochs(self) -> list[tuple[int, int]]:
        """Returns the leases, as ``(partition, epoch)``."""
        return _epochs(self._owned.values())

    def forget(self, partition: int) -> None:
        """Drops a partition whose lease is lost."""
        del self._owned[partition]
        del self.fences[partition]
        self.unsound.pop(partition, None)
        self.condemned.pop(partition, None)

    def leave(self, partition: int, now_s: float) -> None:
        """Gives a partition back with the next :meth:`reload`, and takes it no more for a while."""
        self._left[partition] = now_s + LEFT_S

    async def release(self, partitions: Collection[int], published: Mapping[int, int]) -> None:
        """Releases the leases of these partitions now."""
        gone = [self._owned[partition] for partition in sorted(partitions) if partition in self._owned]
        for lease in gone:
            self.forget(lease.id)
        if gone:
            ticks = [published.get(lease.id, lease.published_tick) for lease in gone]
            await self._store.give_back(self.owner, _epochs(gone), ticks)

    def advance(self, moved: Mapping[int, tuple[int, int]], published: Mapping[int, int]) -> list[PartitionAdvance]:
        """Returns the fence of a tick that moves these partitions' cursors to ``(sequence, stored ms)``, by id."""
        leases = [self._owned[partition] for partition in sorted(moved)]
        return [
            PartitionAdvance(
                id=lease.id,
                epoch=lease.epoch,
                tick=lease.tick,
                last_seq=moved[lease.id][0],
                last_ms=moved[lease.id][1],
                published_tick=published.get(lease.id, lease.published_tick),
                crashes=lease.crashes if self.unsound.get(lease.id) else 0,
            )
            for lease in leases
        ]

    def lower_published(self, ticks: Mapping[int, int]) -> None:
        """Notes that EVENTS has records of these partitions only up to these ticks; their next tick commits that."""
        for partition, tick in ticks.items():
            self._owned[partition] = replace(self._owned[partition], published_tick=tick)

    def record_commit(self, advances: Sequence[PartitionAdvance], has_events: bool) -> None:
        if self.unsound:
            self._note_soundness(advances, has_events)
        for advance in advances:
            self._owned[advance.id] = replace(
                self._owned[advance.id],
                tick=advance.tick + 1,
                last_seq=advance.last_seq,
                last_ms=advance.last_ms,
                published_tick=advance.published_tick,
                crashes=advance.crashes,
            )

    def _note_soundness(self, advances: Sequence[PartitionAdvance], has_events: bool) -> None:
        if has_events:
            self._grown |= {advance.id for advance in advances}
        for sound in (advance.id for advance in advances if not advance.crashes):
            self.unsound.pop(sound, None)
            self.condemned.pop(sound, None)

    def count_turn(self) -> None:
        """Counts a turn for the unsound partitions that folded an input in it."""
        if self._grown:
            self.unsound = {id: left - (id in self._grown and left > 0) for id, left in self.unsound.items()}
            self._grown.clear()

    async def give_up_lost(self) -> set[int]:
        """Repairs the partitions whose last folded message EVENTS no longer holds, and forgets them. Returns them, with
        partitions that turn out to be lost to another server.

        Raises:
            StreamLost: EVENTS belongs to another database.
        """
        lost = await self._repair_lost(self._owned.values())
        for partition in lost:
            self.forget(partition)
        return lost

    async def fence_again(self, partitions: Collection[int]) -> set[int]:
        """Renews fences after the queue has refused commands of these partitions. Partitions with another owner are
        forgotten and returned; for the others the queue had lost the fence.
        """
        owned = set(_epochs(await self._store.owned(self.owner)))
        looked_at = [lease for partition in partitions if (lease := self._owned.get(partition)) is not None]
        own = [lease for lease in looked_at if (lease.id, lease.epoch) in owned]
        kept = await self._fence(own, await self._queue.fence(self.owner, dict(_epochs(own))))
        lost = {lease.id for lease in looked_at} - {lease.id for lease in kept}
        for partition in lost:
            self.forget(partition)
        return lost

    async def _fence(self, leases: Collection[PartitionLease], fences: Mapping[int, int]) -> Sequence[PartitionLease]:
        """Fences EVENTS for these partitions, after the queue. Returns their leases without those that have a later
        fence: these are given back, since Postgres must have lost an epoch, and takeovers count up to a later one.

        Args:
            fences: The fences that the queue has for this owner.
        """
        held = await self._log.fence(self.owner, {lease.id: lease.epoch for lease in leases if lease.id in fences})
        behind = [lease for lease in leases if lease.id not in held]
        if behind:
            self._say_behind({lease.id for lease in behind})
            await self._give_back(behind)
        self._behind -= set(held)
        self.fences |= {partition: fences[partition] for partition in held}
        return [lease for lease in leases if lease.id in held]

    def _say_behind(self, partitions: set[int]) -> None:
        """Logs once that partitions are behind their fences: each takeover raises their epochs by one."""
        if partitions - self._behind:
            many = len(partitions)
            log.warning("NATS has fences of later epochs: giving %d partitions back until theirs are later", many)
        self._behind |= partitions

    async def _give_back(self, leases: Collection[PartitionLease]) -> None:
        await self._store.give_back(self.owner, _epochs(leases), [lease.published_tick for lease in leases])

    async def _adopt(self, leases: Sequence[PartitionLease], *, instead: bool = False) -> Sequence[PartitionLease]:
        try:  # before any fence: those of another installation must stay as they are
            await refuse_records_of_others(self._log, leases)
            lost = await self._repair_lost(leases)
        except StreamLost:
            await self._give_back(leases)
            raise
        leases = [lease for lease in leases if lease.id not in lost]
        leases = await self._fence(leases, await self._queue.fence(self.owner, dict(_epochs(leases))))
        if instead:
            self._owned.clear()
            self.unsound.clear()
            self.condemned.clear()
        self.fences = {lease.id: self.fences[lease.id] for lease in (*self._owned.values(), *leases)}
        self._owned.update((lease.id, lease) for lease in leases)
        self.unsound.update((lease.id, SOUND_AFTER) for lease in leases if lease.crashes)
        self.condemned.update((one.id, one.suspect) for one in leases if one.suspect and one.suspicions >= SUSPICIONS)
        return leases

    async def _repair_lost(self, leases: Collection[PartitionLease]) -> set[int]:
        cursors = [Cursor(lease.id, lease.last_seq, lease.last_ms, lease.published_tick) for lease in leases]
        if not any(cursor.last_seq for cursor in cursors):
            return set()
        extent = await StreamExtent.of(self._log)
        lost = await lost_cursors(self._log, cursors, extent)
        owned = await self._still_owned([cursor.partition for cursor in lost]) if lost else set()
        mine = [cursor for cursor in lost if cursor.partition in owned]
        if mine:
            await refuse_stream_of_others(self._log, self._store)
            repairs = await repairs_of(self._log, mine, extent)
            log.error(
                "EVENTS holds sequences %d to %d and has lost what %d partitions folded, or was made anew: reading on "
                "from %d, and publishing the lost records again",
                *extent, len(mine), min(one.last_seq for one in repairs),
            )  # fmt: skip
            await accept_head(extent, self._store.cursors)
            await self._store.cursors.repair(repairs, self.owner)
        return {cursor.partition for cursor in lost}

    async def _still_owned(self, partitions: Collection[int]) -> set[int]:
        """Returns the partitions that no other server took: that may have advanced, and EVENTS been trimmed to
        there.
        """
        views = await self._store.read_partitions(partitions)
        return {view.id for view in views if view.owner == self.owner}


def _epochs(leases: Iterable[PartitionLease]) -> list[tuple[int, int]]:
    return [(lease.id, lease.epoch) for lease in leases]
