"""The endpoint of a process: its addresses, identity and keys, and the keys of its files."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

import msgspec
from msgspec.structs import replace

from noetl_stream.local.home import Home, read_private
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.placement import PoolLabels
from noetl_stream.model.rights import GrantsDefault
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER
from noetl_stream.sealing.file_keys import FileKeys, public_key_of
from noetl_stream.sealing.keys import Unprinted
from noetl_stream.settings.monitoring import LineageSettings, TraceSettings
from noetl_stream.settings.places import Place
from noetl_stream.settings.retention_periods import RetentionSettings
from noetl_stream.settings.servers import NatsSync, Spread
from noetl_stream.settings.sources.environment import DEFAULT_STATE_BYTES, Settings
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.trigger.rates import TriggerRates


class Endpoint(Unprinted, frozen=True):
    """The addresses, the identity and the keys of one process. :meth:`only_for` reduces it to an identity.

    Fields with the name of one of the :class:`~noetl_stream.settings.sources.environment.Settings` are described there.

    Attributes:
        postgres_dsn: ``None`` for a worker.
        postgres_read_dsn: A replica for reading executions, if there is one. Gateways and the command line only.
        credentials: The credentials that a server offers to playbooks, or a worker's own, by lower-case name.
        credential_keys: The keys that encrypt stored credentials, the current key first; empty if not configured.
        tools: The settings of the tools of a worker here.
        limits: Limits of executions that a server here starts; a playbook may lower them.
        identity: The identity of the process: ``admin``, ``server``, ``gateway`` or ``worker-<pool>``.
        server_keys, access_keys: As base64. Servers only, and not for workers.
        grants_open: Whether playbooks may use everything without anybody having configured so.
        retention: The time for which a server here keeps finished executions, EVENTS, and lines in LOGS.
        max_state_bytes: Memory that a server here uses for the states of living executions.
        objects: Not for workers.
        spread: How `stream ensure` spreads the streams over a NATS cluster.
        nats_sync: What is known of how NATS writes to its disks.
    """

    nats_url: str
    postgres_dsn: str | None
    credentials: Mapping[str, str]
    credential_keys: tuple[str, ...] = ()
    tools: ToolSettings = msgspec.field(default_factory=ToolSettings)
    limits: Limits = DEFAULT_LIMITS
    nats_nkey: str | None = None
    nats_certificate: Path | None = None
    identity: str = GATEWAY
    server_keys: tuple[str, ...] = ()
    access_keys: tuple[str, ...] = ()
    grants_file: Path | None = None
    grants_default: GrantsDefault | None = None
    grants_open: bool = False
    retention: RetentionSettings = RetentionSettings()
    max_state_bytes: int = DEFAULT_STATE_BYTES
    traces: TraceSettings | None = None
    lineage: LineageSettings | None = None
    spread: Spread = Spread()
    nats_sync: NatsSync = NatsSync()
    postgres_read_dsn: str | None = None
    postgres_max_bytes: int | None = None
    trigger_streams: tuple[str, ...] = ()
    trigger_rates: TriggerRates = TriggerRates()
    page_url: str = ""
    pool_labels: PoolLabels = MappingProxyType({})
    objects: tuple[Place | None, ...] = ()

    def only_for(self, identity: str) -> Self:
        """Returns the part of this endpoint that a process with the identity may hold."""
        if identity == SERVER:
            return replace(self, identity=identity, postgres_read_dsn=None)
        retention = replace(self.retention, archive_keys=FileKeys())
        if identity == GATEWAY:
            return replace(self, identity=identity, credentials={}, server_keys=(), retention=retention, lineage=None)
        with_keys = replace(self, identity=identity, postgres_read_dsn=None, retention=retention, lineage=None)
        without_keys = replace(with_keys, credential_keys=(), server_keys=(), access_keys=())
        if identity == ADMIN:
            return replace(without_keys, credentials={})
        return replace(without_keys, postgres_dsn=None, objects=())


def process_name(role: str) -> str:
    """Makes a unique process name: role, host, pid and four random bytes (PROTOCOL §1 *Partition row*)."""
    return process_prefix(role, os.getpid()) + os.urandom(4).hex()


def process_prefix(role: str, pid: int) -> str:
    """Returns the prefix of the names of a process's servers and workers."""
    host = "".join(c if c.isalnum() else "-" for c in socket.gethostname())[:24]
    return f"{role}-{host}-{pid}-"


def backup_keys(settings: Settings) -> FileKeys:
    """Returns the keys of backups, including that of the embedded stack's home if it has one."""
    return with_own_key(settings.backup_keys, _kept_key(settings, "backup_key"))


def archive_keys(settings: Settings) -> FileKeys:
    """Returns the keys of archives, like :func:`backup_keys`."""
    return with_own_key(settings.archive_keys, _kept_key(settings, "archive_key"))


def with_own_key(keys: FileKeys, own: str) -> FileKeys:
    """Adds a home's own signing key, which is trusted, and used if there is no other."""
    if not own or keys.signing_key == own:
        return keys
    if not keys.signing_key:
        return replace(keys, signing_key=own)
    return replace(keys, trusted_keys=(*keys.trusted_keys, public_key_of(own)))


def maker() -> str:
    """Returns the maker of backups and archives here, as ``user@host``; for a user without a name, by number."""
    user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    with contextlib.suppress(KeyError, OSError):
        user = getpass.getuser()
    return f"{user}@{platform.node()}"


def _kept_key(settings: Settings, name: str) -> str:
    if settings.nats_url is not None or settings.home_folder is None:
        return ""
    try:
        return read_private(getattr(Home(settings.home_folder), name)).strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
