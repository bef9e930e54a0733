"""Reports of stores and processes about themselves, for ``doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from noetl_stream.ports.stores.store import KnownServer


class DatabaseFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts about Postgres, as far as the connected user may see them.

    Attributes:
        now_ms: Its clock, ms since the epoch.
        size_bytes: The size of the database on disk.
        connections: The number of connections of all users, bounded by ``max_connections``.
        waits_for: The setting ``synchronous_standby_names``: the standbys that a commit waits for; ``""`` for none.
        standbys: The number of connected standbys.
        synchronous: The number of standbys that a commit waits for; ``None`` if this user may not see it.
        certificate_ends_ms: The end of the certificate that it showed to this process; ``None`` without TLS.
    """

    version: str
    user: str
    now_ms: int
    size_bytes: int
    connections: int
    max_connections: int
    waits_for: str
    standbys: int
    synchronous: int | None
    certificate_ends_ms: int | None


class TableFacts(msgspec.Struct, frozen=True, gc=False):
    """A table of the schema, with its indexes and partitions; ``rows`` if Postgres has estimated them."""

    name: str
    size_bytes: int
    rows: int | None


class DatabaseDiagnosis(Protocol):
    """Raises (any method): :class:`~noetl_stream.errors.Unreachable` when the database is away, or refuses."""

    async def facts(self) -> DatabaseFacts: ...

    async def tables(self) -> list[TableFacts]:
        """All tables, by name."""

    async def live_servers(self) -> list[KnownServer]:
        """The servers with an unexpired lease, by name."""

    async def excess_rights(self, role: str) -> list[str]:
        """Rights of the connected user in the schema that members of ``role`` must not have; [] if all is well."""

    async def newer_migrations(self) -> list[str]:
        """The migrations of the schema that this version does not know, by name."""


class NatsFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts about NATS, as far as the connected user may see them.

    Attributes:
        user: The identity of this connection; ``""`` if its URL contains the user.
        cluster: The name of its cluster; ``""`` if it has none.
        certificate_ends_ms: The end of the certificate that it showed to this process; ``None`` without TLS.
        sync_s: The longest time in seconds between the acknowledgement of a message and its write to disk: the
            ``sync_interval``, 0 for ``always``; ``None`` if unknown.
        keeps_copies_apart: Whether copies of a stream are on servers with different tags (``unique_tag``); ``None`` if
            unknown.
    """

    version: str
    user: str
    cluster: str
    certificate_ends_ms: int | None = None
    sync_s: float | None = None
    keeps_copies_apart: bool | None = None


class StreamFacts(msgspec.Struct, frozen=True, gc=False):
    """A stream.

    Attributes:
        exists: Whether it exists; if not, the other fields are meaningless.
        differs: Settings that differ from those this version needs.
        max_bytes: Its bound; ``None`` without one.
        now_ms: The clock of its leader, ms since the epoch; ``None`` if unknown.
        replicas: The number of copies in its settings.
        away: The servers whose copy is unreachable or behind its leader's.
        acknowledges_early: Whether NATS acknowledges a message before it has written it (``persist_mode: async``).
    """

    name: str
    exists: bool = False
    differs: Sequence[str] = ()
    size_bytes: int = 0
    max_bytes: int | None = None
    messages: int = 0
    now_ms: int | None = None
    replicas: int = 1
    away: Sequence[str] = ()
    acknowledges_early: bool = False


class StoreUse(msgspec.Struct, frozen=True, gc=False):
    """The fill level of a store.

    Attributes:
        name: A stream, ``all streams`` of the account, ``nats-server <host>:<port>``, ``Postgres``, or ``objects of
            executions``, wherever they are.
        max_bytes: Its bound; ``None`` if it has none, or it is unknown.
        full_in_s: The seconds until it is full at the growth of the last hour; ``None`` if it does not grow, has no
            bound, or was not watched for long enough.
    """

    name: str
    bytes: int
    max_bytes: int | None
    full_in_s: float | None = None


class StoreUses(Protocol):
    """The stores, watched by a process."""

    async def watch(self) -> None:
        """Watches until cancelled."""

    def uses(self) -> Sequence[StoreUse]:
        """Returns the last observation; empty before the first."""


class NatsStorage(msgspec.Struct, frozen=True):
    """The files of all streams of the account; ``max_bytes`` is ``None`` if the account has no bound. ``servers`` are
    the nats-servers with a known monitoring address, with their ``max_file_store``; ``failures`` are the reasons why
    servers are unhealthy, such as a stream that cannot be written.
    """

    size_bytes: int
    max_bytes: int | None
    servers: Sequence[StoreUse] = ()
    failures: Sequence[str] = ()


class NatsDiagnosis(Protocol):
    """Raises (any method): :class:`~noetl_stream.errors.Unreachable` when NATS does not answer, or refuses."""

    async def facts(self) -> NatsFacts: ...

    async def stream(self, name: str) -> StreamFacts: ...

    async def storage(self) -> NatsStorage: ...

    async def stored_since(self, stream: str, from_ms: int) -> int:
        """Counts the messages that a stream has stored since a time, in ms since the epoch."""
