"""What stores and processes say about themselves, for ``doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from noetl_stream.ports.stores.store import KnownServer


class DatabaseFacts(msgspec.Struct, frozen=True, gc=False):
    """Postgres as the connected user sees it.

    Attributes:
        now_ms: Its clock, ms since the epoch.
        size_bytes: What the database takes on disk.
        connections: Those of all users; ``max_connections`` is the bound.
        waits_for: Its setting ``synchronous_standby_names``: the standbys a commit waits for; ``""``: none.
        standbys: How many are connected.
        synchronous: How many of them a commit waits for; ``None``: this user may not see it.
        certificate_ends_ms: When the certificate it showed to this process ends; ``None`` without TLS.
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
    """A table of the schema, with its indexes, its partitions and theirs; ``rows`` if Postgres has estimated them."""

    name: str
    size_bytes: int
    rows: int | None


class DatabaseDiagnosis(Protocol):
    """Raises (any method): :class:`~noetl_stream.errors.Unreachable` when the database is away, or refuses."""

    async def facts(self) -> DatabaseFacts: ...

    async def tables(self) -> list[TableFacts]:
        """All of them, by name."""

    async def live_servers(self) -> list[KnownServer]:
        """The servers whose lease has not ended, by name."""

    async def excess_rights(self, role: str) -> list[str]:
        """What the connected user may do in the schema although members of ``role`` may not; [] if all is well."""

    async def newer_migrations(self) -> list[str]:
        """The migrations of the schema that this version does not know, by name."""


class NatsFacts(msgspec.Struct, frozen=True, gc=False):
    """NATS as the connected user sees it.

    Attributes:
        user: The identity of this connection; ``""`` if its url says who it is.
        cluster: The name of its cluster; ``""`` if it has none.
        certificate_ends_ms: When the certificate it showed to this process ends; ``None`` without TLS.
        sync_s: How long after it has acknowledged a message the message is on its disk at the latest, in seconds: its
            ``sync_interval``, 0 for ``always``; ``None``: nobody has told.
        keeps_copies_apart: Whether copies of a stream are on servers with different tags (``unique_tag``); ``None``:
            nobody has told.
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
        exists: The rest says nothing if it does not.
        differs: Its settings that differ from what this version needs.
        max_bytes: Its bound; ``None`` without one.
        now_ms: The clock of its leader, ms since the epoch; ``None`` if it did not say.
        replicas: How many copies it has by its settings.
        away: Servers whose copy is away or behind its leader's.
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
    """How full a store is.

    Attributes:
        name: A stream, ``all streams`` of the account, ``nats-server <host>:<port>``, or ``Postgres``.
        max_bytes: Its bound; ``None`` if it has none, or none is known.
        full_in_s: When it is full if it grows on as it did in the last hour, in seconds; ``None`` if it does not grow,
            has no bound, or nobody has watched it for long enough.
    """

    name: str
    bytes: int
    max_bytes: int | None
    full_in_s: float | None = None


class StoreUses(Protocol):
    """The stores as a process watches them."""

    async def watch(self) -> None:
        """Watches until cancelled."""

    def uses(self) -> Sequence[StoreUse]:
        """Returns what was seen last; empty before that."""


class NatsStorage(msgspec.Struct, frozen=True):
    """The files of all streams of the account; ``max_bytes`` is ``None`` if the account has no bound. ``servers`` are
    the nats-servers whose monitoring address is known, with their ``max_file_store``; ``failures`` why one of them is
    not healthy, such as a stream that it cannot write.
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
