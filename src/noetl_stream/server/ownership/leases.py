"""Renewal of a server's leases apart from its work: a slow tick loses none (PROTOCOL §7 *Renewal apart from work*)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Final

from noetl_stream import __version__
from noetl_stream.concurrency import end_tasks, result_until
from noetl_stream.errors import NoetlError
from noetl_stream.ports.stores.store import LONGEST_LEASE_S
from noetl_stream.protocol import subjects
from noetl_stream.server.assembly import ServerParts
from noetl_stream.server.inputs.reader import Backlog

log = logging.getLogger(__name__)

ROUND_TRIPS: Final = 20
"""The shortest length of a lease, in round trips."""

MEASUREMENTS: Final = 5
"""The number of measurements of which a round trip is the median, so that a single slow answer changes nothing."""

RENEWALS: Final = 3
"""The number of renewals in the time of a lease."""

ATTEMPTS: Final = 12
"""The number of attempts to renew in the time of a lease, after a failure."""

PATIENCE: Final = 1 / 2
"""The part of a lease that its renewal may take: ten round trips, for the shortest lease."""

GIVE_BACK_AFTER: Final = 2 / 3
"""The part of a lease after which it is given back if it could not be renewed."""

SAID_ABOVE: Final = 1.25
"""The factor of change in a lease's length that is logged."""


class RoundTrips:
    """Round-trip times to each store, in seconds."""

    def __init__(self) -> None:
        self._taken: dict[str, deque[float]] = {}

    def add(self, store: str, took_s: float) -> None:
        self._taken.setdefault(store, deque(maxlen=MEASUREMENTS)).append(took_s)

    @property
    def longest_s(self) -> float:
        """The round-trip time of the slowest store; 0 before the first measurement."""
        return max(self.medians_s.values(), default=0.0)

    @property
    def medians_s(self) -> dict[str, float]:
        """The median round-trip times by store."""
        return {store: median(taken) for store, taken in self._taken.items()}

    def __str__(self) -> str:
        return ", ".join(f"{store} {taken_s * 1000:.0f} ms" for store, taken_s in self.medians_s.items())


class PartitionLeaseKeeper:
    """Announces this server, measures round trips, and renews leases or gives them back if that fails.

    Only the server's loop changes which partitions it owns: it drops those that :meth:`take_lost` returns.

    Attributes:
        is_restoring: Whether the loop is reconnecting to its stores. Other servers do not count on it meanwhile.
        abstains_until_s: The time (monotonic) until which the server takes over no partition, since nothing comes from
            EVENTS.
    """

    def __init__(self, parts: ServerParts) -> None:
        self.is_restoring = False
        self.abstains_until_s = float("-inf")
        self.round_trips = RoundTrips()
        self._parts = parts
        self._store = parts.ports.store
        self._clock = parts.ports.clock
        self._presence = parts.ports.capabilities.presence(parts.owner)
        self._said_s = parts.times.lease_s
        self._renewed_s = self._heard_s = self._clock.monotonic_s()
        self._silences = 0
        self._complaint = ""
        self._lost: list[tuple[int, int]] = []
        self._backlog = Backlog(parts.reader, parts.ports.log)
        self._behind = 0
        """The average backlog of a partition, in messages: gateways admit no more work than is done."""

    @property
    def lease_s(self) -> float:
        """The length of a lease, in seconds."""
        return min(max(self._parts.times.lease_s, ROUND_TRIPS * self.round_trips.longest_s), LONGEST_LEASE_S)

    @property
    def is_late(self) -> bool:
        """Whether no lease was renewed for the length of one."""
        return self._clock.monotonic_s() - self._renewed_s > self.lease_s

    async def open(self) -> None:
        """Measures the first round trips, and learns the formats of other servers.

        Raises:
            Unreachable: a store does not answer.
            NotReady: a living server cannot read the formats that this one writes.
        """
        await self._learn_formats()
        for _ in range(2):  # the first connects and prepares the statements, which takes longer
            await self._store.lease_clock_ms()
            await self._store.renew(self._parts.owner, [], self.lease_s)
        await asyncio.gather(self._ask_clock(), self._reach_nats())

    async def run(self) -> None:
        """Renews leases until cancelled."""
        tasks = [asyncio.create_task(self._appear()), asyncio.create_task(self._renew_in_time())]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end_tasks(tasks)

    async def leave(self) -> None:
        """Tells other servers that this one has released its leases and ends."""
        self._parts.ports.bus.send(subjects.SERVERS, self._parts.ports.capabilities.farewell(self._parts.owner))
        with contextlib.suppress(NoetlError):  # otherwise it counts until its time has run out
            await self._store.appear(self._parts.owner, __version__, self._parts.formats.reads, 0)

    def note_contact(self) -> None:
        """Notes that the server's loop is reading EVENTS, though not with the reader of its partitions."""
        self._heard_s = self._clock.monotonic_s()

    def take_lost(self) -> set[int]:
        """Returns the partitions that this server has lost or given back since the last call."""
        lost, self._lost = self._lost, []
        ownership = self._parts.ownership
        gone = {id for id, epoch in lost if (lease := ownership.get(id)) is not None and lease.epoch == epoch}
        for partition in gone:
            ownership.forget(partition)
        return gone

    async def _appear(self) -> None:
        """Tells other servers regularly that this one is alive, and measures the round trip to NATS."""
        measured_s = self._clock.monotonic_s()
        while True:
            now_s = self._clock.monotonic_s()
            self._note_contact(now_s)
            if not self.is_restoring:
                self._parts.ports.bus.send(subjects.SERVERS, self._presence)
            if now_s - measured_s >= self.lease_s / RENEWALS:
                measured_s = now_s
                with contextlib.suppress(NoetlError):  # then EVENTS is silent too
                    await self._reach_nats()
                    self._behind = -(-await self._backlog.messages() // max(1, len(self._parts.ownership)))
                try:
                    await self._learn_formats()
                except NoetlError as error:
                    log.warning("cannot learn which formats other servers read: %s", error)
            await self._clock.sleep(self._parts.times.housekeeping_s)

    async def _renew_in_time(self) -> None:
        while True:
            began_s = self._clock.monotonic_s()
            is_renewed = await self._round(began_s)
            pause_s = self.lease_s / (RENEWALS if is_renewed else ATTEMPTS)
            await self._clock.sleep(max(0.0, began_s + pause_s - self._clock.monotonic_s()))

    async def _round(self, now_s: float) -> bool:
        """Renews the leases, but only while their partitions are read (PROTOCOL §2 *Reading*).

        Returns:
            Whether the leases need no earlier renewal; ``False``: try again soon.
        """
        held = self._parts.ownership.epochs()
        if held and self._is_silent(now_s):
            self._silences += 1
            if self._silences == 2:
                self._complain("nothing is received from EVENTS: giving all leases back")
                if await self._give_back(held):
                    self.abstains_until_s = self._clock.monotonic_s() + self.lease_s
            return True
        self._silences = 0
        reason = "no answer in time"
        try:
            if await result_until(self._renew(held), self._clock.sleep(PATIENCE * self.lease_s)):
                self._renewed_s, self._complaint = now_s, ""
                return True
        except NoetlError as error:
            reason = str(error)
        if held and self._clock.monotonic_s() - self._renewed_s >= GIVE_BACK_AFTER * self.lease_s:
            self._complain(f"cannot renew leases, giving them back: {reason}")
            await self._give_back(held)
        return False

    async def _renew(self, held: Sequence[tuple[int, int]]) -> bool:
        await self._ask_clock()
        self._say_length()
        if held:
            kept = await self._store.renew(self._parts.owner, held, self.lease_s, self._behind)
            self._drop([(id, epoch) for id, epoch in held if id not in kept])
        return True

    async def _give_back(self, held: Sequence[tuple[int, int]]) -> bool:
        """Gives leases back; returns whether Postgres recorded it. Any server, even this one, may then take them."""
        self._silences = 0

        async def give_back() -> bool:
            await self._store.give_back(self._parts.owner, held, [0] * len(held))  # published_tick stays unchanged
            return True

        reason = "no answer in time"
        try:
            if await result_until(give_back(), self._clock.sleep(self.lease_s / RENEWALS)):
                self._drop(held)
                return True
        except NoetlError as error:
            reason = str(error)
        log.debug("cannot give the leases back, they will expire: %s", reason)
        return False

    def _complain(self, text: str) -> None:
        """Logs a warning, unless it repeats the last one since a renewal."""
        if text != self._complaint:
            log.warning("%s", text)
            self._complaint = text

    def _drop(self, leases: Sequence[tuple[int, int]]) -> None:
        if leases:
            self._lost += leases
            self._parts.reader.nudge()

    def _is_silent(self, now_s: float) -> bool:
        self._note_contact(now_s)
        return now_s - self._heard_s > self._parts.times.silence_s + ROUND_TRIPS * self.round_trips.longest_s

    def _note_contact(self, now_s: float) -> None:
        """Notes the last time EVENTS was heard. Silence is expected between two readers and before the first one."""
        if not len(self._parts.ownership):
            self._heard_s = now_s
        elif self._parts.reader.is_open:
            self._heard_s = max(self._heard_s, now_s - self._parts.reader.silent_s(now_s))

    async def _ask_clock(self) -> None:
        asked_s = self._clock.monotonic_s()
        self._parts.waits.synchronize(await self._store.lease_clock_ms())
        self.round_trips.add("Postgres", self._clock.monotonic_s() - asked_s)

    async def _learn_formats(self) -> None:
        """Records which formats this server reads, and learns those of the other servers."""
        formats = self._parts.formats
        formats.learn(await self._store.appear(self._parts.owner, __version__, formats.reads, self.lease_s))

    async def _reach_nats(self) -> None:
        asked_s = self._clock.monotonic_s()
        await self._parts.ports.bus.flush()
        self.round_trips.add("NATS", self._clock.monotonic_s() - asked_s)

    def _say_length(self) -> None:
        lease_s = self.lease_s
        if not 1 / SAID_ABOVE < lease_s / self._said_s < SAID_ABOVE:
            log.warning("leases last %.1f s now: a round trip takes %s", lease_s, self.round_trips)
            self._said_s = lease_s
