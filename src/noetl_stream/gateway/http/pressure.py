"""Admission by load: of each caller and in total, and of new work while the servers are far behind.

Law: no caller holds what others need. A principal can hold a part of any limit and an address half of it; the rest is
reserved for higher roles.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from noetl_stream.errors import NoetlError, TooBusy
from noetl_stream.gateway.http.budgets import CallerPace, CallerTurns, LeakyBuckets, ProcessorBudgets, QueryBudgets
from noetl_stream.gateway.http.problems import HttpProblem
from noetl_stream.gateway.metrics import BEHIND, CHECKS, IN_FLIGHT, LARGE_BODIES, STREAMS, WAITS, Metrics
from noetl_stream.model.rights import Role
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.cluster import Cluster, PartitionDocument
from noetl_stream.ports.stores.identities import Caller
from noetl_stream.settings.gateway_settings import GATEWAY_PREFIX, GatewayLimits

log = logging.getLogger(__name__)

Result = TypeVar("Result")

POLL_S: Final = 1.0
REST: Final = 20.0
"""The wait for the next poll, in durations of the last one."""
RETRY_AFTER_S: Final = 1.0
BEHIND_RETRY_AFTER_S: Final = 5.0

ROOM: Final[Mapping[Role, float]] = {"viewer": 0.8, "operator": 0.9, "author": 0.9, "admin": 1.0}
"""The part of a limit that callers of a role can fill. The rest is reserved for higher roles."""

SHARE: Final[Mapping[Role, float]] = {"viewer": 0.1, "operator": 0.25, "author": 0.25, "admin": 0.25}
"""The part of a limit that one principal can hold."""

ADDRESS_SHARE: Final = 0.5

VIEWER_CHANGES_AT_ONCE: Final = 30
VIEWER_CHANGES_PER_S: Final = 0.5
"""The rate at which a viewer may change anything: each change leaves an entry in the audit."""

LIGHT_AT_ONCE: Final = 10
LIGHT_PER_S: Final = 1.0
"""The new work that a caller may request even while servers are too far behind for that of others."""

LIGHT_BEHIND: Final = 2
"""The factor by which servers may be further behind for it."""

EVENTS_AT_ONCE: Final = 1000
EVENTS_PER_S: Final = 100.0
"""The rate at which an address may send events to webhooks, whether they are accepted or not."""


class Gate:
    """Counts concurrent calls of one kind, and refuses what exceeds a limit or a caller's share of it.

    Args:
        limit: The most concurrent calls.
        setting: The field of :class:`GatewayLimits` that sets it.
        noun: The name of the counted things, in the plural.
        retry_after_s: The seconds after which a refused caller should try again.

    Attributes:
        under_way: The number of concurrent calls.
    """

    def __init__(self, limit: int, setting: str, noun: str, retry_after_s: float) -> None:
        self._limit = limit
        self._variable = GATEWAY_PREFIX + setting.upper()
        self._noun = noun
        self._retry_after_s = retry_after_s
        self.under_way = 0
        self._of_principal: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()

    @contextmanager
    def entered(self, caller: Caller, address: str) -> Iterator[None]:
        """Counts one call until the end of the block.

        Args:
            address: The caller's, as grouped by :func:`~noetl_stream.gateway.http.connections.address_group`.

        Raises:
            TooBusy: there is no room for this caller.
        """
        self._check(caller, address)
        self.under_way += 1
        self._of_principal[caller.principal] += 1
        self._of_address[address] += 1
        try:
            yield
        finally:
            self.under_way -= 1
            _take(self._of_principal, caller.principal, 1)
            _take(self._of_address, address, 1)

    def _check(self, caller: Caller, address: str) -> None:
        room = ROOM[caller.role]
        for under_way, part, whose in (
            (self.under_way, room, f"for the role {caller.role}"),
            (self._of_principal[caller.principal], SHARE[caller.role], f"of {caller.principal}"),
            (self._of_address[address], ADDRESS_SHARE * room, f"of {address} for the role {caller.role}"),
        ):
            most = max(1, int(self._limit * part))
            if under_way >= most:
                message = f"too many {self._noun}: {most} {whose} are the most ({self._variable}={self._limit})"
                raise TooBusy(message, self._retry_after_s, hint="try again, or start another gateway")


class HeldBytes:
    """The memory that all requests hold: their bodies until they are answered, and answers while they are written.

    Attributes:
        limit: The most bytes.
        now: The bytes held at present.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.now = 0
        self._of_principal: Counter[str] = Counter()

    @contextmanager
    def reserved(self, size: int, who: Caller) -> Iterator[None]:
        """Counts a request that may hold ``size`` bytes. A single request is admitted, whatever its size.

        Raises:
            TooBusy: it would be more than this caller's share.
            HttpProblem: there is no room.
        """
        variable = f"{GATEWAY_PREFIX}MAX_HELD_BYTES"
        held, most = self._of_principal[who.principal], int(self.limit * SHARE[who.role])
        if held and size and held + size > most:
            message = f"requests of {who.principal} may hold {most} bytes together, and hold {held} ({variable})"
            raise TooBusy(message, RETRY_AFTER_S, hint="read the answers that you have asked for")
        if self.now and self.now + size > self.limit:
            raise HttpProblem("overloaded", f"all requests together may hold {self.limit} bytes ({variable})")
        with self.counted(size, who.principal):
            yield

    @contextmanager
    def counted(self, size: int, principal: str) -> Iterator[None]:
        """Counts bytes that a caller already holds."""
        self.now += size
        self._of_principal[principal] += size
        try:
            yield
        finally:
            self.now -= size
            _take(self._of_principal, principal, size)


class Pressure:
    """The gates of a gateway, and the backlog of the servers, polled once a second.

    Attributes:
        requests: Requests under way without a wait.
        waits: Requests with ``?wait=``.
        streams: Event streams.
        large_bodies: Requests with a large body, which is in memory until they are answered.
        checks: Playbooks being checked or registered, each of which may take seconds of processor time.
        held: The memory that all requests hold.
        turns: The turns of each caller at possibly long answers.
        processor: The part of the processor that each caller may use.
        pace: The delays of callers that use more of it than that while others call, too.
        queries: The part of Postgres, likewise.
        behind: The unfolded messages of EVENTS at the last poll.
        partitions: The same by partition; empty before the first poll.
    """

    def __init__(self, limits: GatewayLimits, cluster: Cluster, clock: Clock, metrics: Metrics) -> None:
        self._limits = limits
        self._cluster = cluster
        self._clock = clock
        self.requests = Gate(limits.max_requests, "max_requests", "requests", RETRY_AFTER_S)
        self.waits = Gate(limits.max_waits, "max_waits", "requests that wait", BEHIND_RETRY_AFTER_S)
        self.streams = Gate(limits.max_streams, "max_streams", "streams", BEHIND_RETRY_AFTER_S)
        self.large_bodies = Gate(limits.max_large_bodies, "max_large_bodies", "large bodies", RETRY_AFTER_S)
        self.checks = Gate(limits.max_checks, "max_checks", "playbooks being checked", RETRY_AFTER_S)
        self.held = HeldBytes(limits.max_held_bytes)
        self.turns = CallerTurns()
        self.processor = ProcessorBudgets(clock, limits.max_caller_processor_percent)
        self.pace = CallerPace(clock, limits.max_caller_processor_percent)
        self.queries = QueryBudgets(clock, limits.max_query_s)
        self._viewer_changes = LeakyBuckets(clock, VIEWER_CHANGES_AT_ONCE, VIEWER_CHANGES_PER_S)
        self._work = LeakyBuckets(clock, LIGHT_AT_ONCE, LIGHT_PER_S)
        self._events = LeakyBuckets(clock, EVENTS_AT_ONCE, EVENTS_PER_S)
        self.behind = 0
        self.partitions: Sequence[PartitionDocument] = ()
        metrics.watch(IN_FLIGHT, lambda: self.requests.under_way)
        metrics.watch(WAITS, lambda: self.waits.under_way)
        metrics.watch(STREAMS, lambda: self.streams.under_way)
        metrics.watch(LARGE_BODIES, lambda: self.large_bodies.under_way)
        metrics.watch(CHECKS, lambda: self.checks.under_way)
        metrics.watch(BEHIND, lambda: self.behind)

    def admit_change(self, caller: Caller) -> None:
        """Raises :class:`~noetl_stream.errors.TooBusy` if a viewer changes too much: only sessions."""
        if caller.role == "viewer" and caller.principal:
            message = f"{caller.principal} signs in and out too often"
            self._viewer_changes.require(caller.principal, message, "keep the session")
            self._viewer_changes.add(caller.principal)

    def admit_read(self, caller: Caller) -> None:
        """Raises :class:`~noetl_stream.errors.TooBusy` while answers to the caller have cost too much."""
        self.processor.admit(caller)
        self.queries.admit(caller)

    async def charged(self, caller: Caller, work: Coroutine[Any, Any, Result], *, changes: bool) -> Result:
        """Awaits ``work`` and charges its cost to the caller. Raises its errors.

        Args:
            changes: Whether it may change anything.
        """
        return await self.processor.charged(caller, self.queries.charged(caller, work, changes=changes))

    def admit_work(self, asker: str) -> None:
        """Counts new work for its asker.

        Raises:
            TooBusy: the servers are too far behind; callers with much recent work are refused first.
        """
        is_light = not self._work.full_for_s(asker)
        if self.behind > self._limits.max_behind * (LIGHT_BEHIND if is_light else 1):
            raise TooBusy(
                f"the servers are {self.behind} messages behind (NOETL_GATEWAY_MAX_BEHIND={self._limits.max_behind})",
                BEHIND_RETRY_AFTER_S,
                hint="try again, or start another server; cancel, pause and patch are still accepted",
            )
        if is_light:
            self._work.add(asker)

    def admit_event(self, address: str) -> None:
        """Raises :class:`~noetl_stream.errors.TooBusy` if too many events come to webhooks from one address."""
        self._events.require(address, f"too many events: {EVENTS_PER_S:g} a second from one address are the most")
        self._events.add(address)

    async def watch(self) -> None:
        """Polls the backlog of the servers; never returns. While it is unknown, the last value counts.

        If no server reports it, it is read from the stream, for a small part of the time.
        """
        while True:
            began_s = self._clock.monotonic_s()
            try:
                self.partitions = await self._cluster.partitions()
                self.behind = sum(row.behind for row in self.partitions)
            except NoetlError as error:
                log.debug("cannot see how far behind the servers are: %s", error)
            took_s = self._clock.monotonic_s() - began_s
            await self._clock.sleep(max(POLL_S, REST * took_s))


def _take(counter: Counter[str], key: str, amount: int) -> None:
    counter[key] -= amount
    if not counter[key]:
        del counter[key]
