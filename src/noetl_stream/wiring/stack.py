"""The stack of a process: the user's own or the embedded one, the endpoint of each identity, and its ports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from noetl_stream.concurrency import closing
from noetl_stream.errors import NotReady, UsageError
from noetl_stream.local.home import read_private
from noetl_stream.local.nats_server import SYNC_S
from noetl_stream.local.stack import EmbeddedStack
from noetl_stream.local.startup_errors import system_errors_explained
from noetl_stream.model.ids import use_partitions
from noetl_stream.model.limits import operator_limits
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER, pool_of, role_of
from noetl_stream.settings.key_variables import ACCESS_KEY_VARIABLE, SERVER_KEY_VARIABLE
from noetl_stream.settings.servers import POSTGRES_VARIABLE, NatsSync, Spread
from noetl_stream.settings.sources.environment import SEEDS_VARIABLE, Settings
from noetl_stream.wiring import stores as connections
from noetl_stream.wiring.endpoint import Endpoint, with_own_key

log = logging.getLogger(__name__)

POSTGRES_USER = {ADMIN: "noetl", SERVER: "noetl_server", GATEWAY: "noetl_gateway"}
"""The embedded Postgres user of each identity. With own servers, the role that it should be a member of."""


class StackAccess(msgspec.Struct):
    """The stack of a command. ``embedded`` is its use of the embedded stack, if any; its ports may change."""

    settings: Settings
    embedded: EmbeddedStack | None

    @property
    def home(self) -> Path | None:
        """The home by which other commands find the same stack; ``None`` if the environment names it."""
        if self.embedded is not None:
            return self.embedded.address.home
        return self.settings.home if self.settings.is_of_home else None

    @property
    def endpoint(self) -> Endpoint:
        """Returns the endpoint of this command itself, as the local operator."""
        return self.endpoint_of(GATEWAY)

    def endpoint_of(self, identity: str) -> Endpoint:
        """Returns the endpoint of an identity: ``admin``, ``server``, ``gateway``, or ``worker-<pool>``."""
        if self.embedded is not None:
            return embedded_endpoint(self.embedded, self.settings, identity)
        return own_endpoint(self.settings, identity)


@contextmanager
def open_stack(settings: Settings, pool: str | None = None) -> Iterator[StackAccess]:
    """Opens the NATS and Postgres of the settings: the user's own or the embedded ones, started if necessary.

    Args:
        pool: The pool of a worker to run there; by default that of the settings.

    Raises:
        LocalStackError, UsageError: With a one-line message.
    """
    use_partitions(settings.partitions)
    if settings.nats_url is not None:
        yield StackAccess(settings, None)
        return
    with EmbeddedStack.join(settings.home, pool or settings.pool, settings.trigger_streams) as stack:
        for notice in stack.notices:
            log.warning("%s", notice)
        yield StackAccess(settings, stack)


class _Needed(NamedTuple):
    """A setting that some roles need, as in :class:`Endpoint` and in the words of the settings."""

    field: str
    variable: str
    meaning: str
    roles: Collection[str]


_NEEDED: Final = (
    _Needed("postgres_dsn", POSTGRES_VARIABLE, "the address of Postgres", (ADMIN, SERVER, GATEWAY)),
    _Needed("server_keys", SERVER_KEY_VARIABLE, "the key of what workers may do", (SERVER,)),
    _Needed("access_keys", ACCESS_KEY_VARIABLE, "the key that signs requests and seals results", (SERVER, GATEWAY)),
)


def own_endpoint(settings: Settings, identity: str) -> Endpoint:
    """Returns the endpoint of the user's own servers, from the addresses, identities and keys of the settings.

    Raises:
        UsageError: a setting that this identity needs is missing. The message names all of them.
    """
    assert settings.nats_url is not None
    by_identity = {SERVER: settings.postgres_server_dsn, GATEWAY: settings.postgres_gateway_dsn}
    postgres_dsn = by_identity.get(identity) or settings.postgres_dsn
    seed = settings.nats_nkey or _own_seed(settings.nats_seeds, identity)
    everything = replace(_endpoint(settings, settings.nats_url, postgres_dsn, embedded=False), nats_nkey=seed)
    missing = [one for one in _NEEDED if role_of(identity) in one.roles and not getattr(everything, one.field)]
    if missing:
        names = ", ".join(f"{one.variable} ({one.meaning})" for one in missing)
        raise UsageError(f"not set, with servers of your own: {names}", hint=connections.SETUP_HINT)
    return everything.only_for(identity)


def _own_seed(folder: Path | None, identity: str) -> str | None:
    if folder is None:
        return None
    file = folder / f"{identity}.nk"
    with system_errors_explained(folder):
        if file.exists():
            return read_private(file).strip()
    pool = f" --pool {pool_of(identity)}" if pool_of(identity) else ""
    hint = f"`noetl-stream nats accounts{pool} --seeds {folder}` makes it; NATS needs what it prints"
    raise UsageError(f"{SEEDS_VARIABLE} names {folder}, which has no seed of {identity}", hint=hint)


def embedded_endpoint(stack: EmbeddedStack, settings: Settings, identity: str) -> Endpoint:
    """Returns the endpoint of the embedded servers, which offer the playbooks' database (LANGUAGE §11)."""
    address = stack.address
    offered = {"local_postgres": address.playbooks_dsn} if identity == SERVER else {}
    postgres_dsn = address.dsns.get(POSTGRES_USER.get(identity, ""))
    everything = replace(
        _endpoint(settings, address.nats_url, postgres_dsn, embedded=True),
        credentials={**offered, **settings.credentials},
        # The user's own key comes first; credentials stored before it was set can still be read.
        credential_keys=(*_credential_keys(settings), address.keys.credential),
        nats_nkey=address.seeds[identity],
        nats_certificate=None,
        server_keys=(*settings.server_keys, address.keys.server),
        access_keys=(*settings.access_keys, address.keys.access),
        grants_open=True,
        retention=replace(settings.retention, archive_keys=with_own_key(settings.archive_keys, address.keys.archive)),
        spread=Spread(),
        nats_sync=NatsSync(SYNC_S),
        postgres_read_dsn=None,
    )
    return everything.only_for(identity)


def _endpoint(settings: Settings, nats_url: str, postgres_dsn: str | None, *, embedded: bool) -> Endpoint:
    """The endpoint of a stack, with all settings that have the name of one of its fields."""
    made: dict[str, Any] = {
        "nats_url": nats_url,
        "postgres_dsn": postgres_dsn,
        "credential_keys": _credential_keys(settings),
        "tools": settings.tools(nats_url, embedded=embedded),
        "limits": operator_limits(settings.limits),
        "max_state_bytes": settings.server_max_state_bytes,
    }
    return Endpoint(**made, **settings.named_in(Endpoint, "identity", "grants_open", *made))


def _credential_keys(settings: Settings) -> tuple[str, ...]:
    return (settings.credential_key, *settings.credential_old_keys) if settings.credential_key else ()


async def prepare_embedded(stack: StackAccess) -> None:
    """Creates or upgrades the embedded stack's schema and streams. The user's own need explicit commands."""
    from noetl_stream.adapters.postgres.schema.migrate import schema_mark  # a worker uses no Postgres

    if stack.embedded is not None:
        admin = stack.endpoint_of(ADMIN)
        await asyncio.gather(connections.migrate_schema(admin), connections.ensure_all_streams(admin))
        stack.embedded.note_prepared(schema_mark())


async def prepare_once(stack: StackAccess) -> None:
    """Prepares an embedded stack, unless a program of the same version has done so."""
    from noetl_stream.adapters.postgres.schema.migrate import schema_mark

    if stack.embedded is not None and not stack.embedded.is_prepared(schema_mark()):
        await prepare_embedded(stack)


@asynccontextmanager
async def ports_of_command(
    stack: StackAccess, name: str, *, publishes: bool
) -> AsyncIterator[connections.OperatorPorts]:
    """Opens the ports of a command, on a prepared stack: an embedded one is prepared once for each version.

    Args:
        publishes: Whether the command sends requests to executions, or follows them. Others connect to NATS on first
            use.

    Raises:
        NotReady: The user's own stack is not prepared.
        Unreachable: Postgres or NATS does not answer.
    """
    await prepare_once(stack)
    opening = connected_to(stack, name) if publishes else connections.connected_when_used(stack.endpoint, name=name)
    async with opening as ports:
        try:
            await _verify(ports, publishes)
        except NotReady:  # its folders have changed since
            await prepare_embedded(stack)
            await _verify(ports, publishes)
        yield ports


async def _verify(ports: connections.OperatorPorts, publishes: bool) -> None:
    await ports.store.verify_version()
    if publishes:
        await ports.log.verify()


@asynccontextmanager
async def connected_to(
    stack: StackAccess, name: str, identity: str = GATEWAY, *, nats_wait_s: float = connections.COMMAND_WAIT_S
) -> AsyncIterator[connections.Connected]:
    """Connects to the stack with an identity until the end of the block."""
    async with closing(
        await connections.connect(stack.endpoint_of(identity), name=name, nats_wait_s=nats_wait_s)
    ) as connected:
        yield connected
