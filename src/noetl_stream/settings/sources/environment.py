"""Reads all settings from the environment, once. ``docs/reference/settings.md`` documents them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.bundles import MAX_BUNDLE_BYTES
from noetl_stream.model.ids import MOST_PARTITIONS, PARTITIONS
from noetl_stream.model.rights import GRANTS_DEFAULTS, GrantsDefault
from noetl_stream.sealing.file_keys import FileKeys
from noetl_stream.settings import children as child_settings
from noetl_stream.settings import egress, gateway_settings, monitoring, servers
from noetl_stream.settings import key_variables as keys
from noetl_stream.settings import retention_periods as periods
from noetl_stream.settings import tools as tool_settings
from noetl_stream.settings.children import ChildSettings, EnvironmentSettings
from noetl_stream.settings.egress import Allowed, Destination, EgressRules
from noetl_stream.settings.gateway_settings import AgentAccess, GatewayLimits, IpNetwork, OidcSettings
from noetl_stream.settings.places import OBJECTS_VARIABLE, Place, read_object_places
from noetl_stream.settings.retention_periods import RetentionRule, RetentionSettings
from noetl_stream.settings.servers import NatsSync, Spread
from noetl_stream.settings.sources.variables import (
    SETTINGS_FILE,
    SETTINGS_VARIABLE,
    EnvironmentVariable,
    Given,
    address,
    choice,
    is_set,
    number,
    number_setting,
    parse_with,
    secret,
    setting,
    with_files,
)
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.trigger.rates import MOST_PER_MINUTE, NAMESPACE_RATE_VARIABLE, TRIGGER_RATE_VARIABLE, TriggerRates
from noetl_stream.trigger.stream_messages import STREAMS_VARIABLE

LogFormat = Literal["text", "json"]

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS: tuple[LogFormat, ...] = ("text", "json")
NATS_SCHEMES = ("nats", "tls", "ws", "wss")
GATEWAY_SCHEMES = ("http", "https")

DEFAULT_HOME = "~/.noetl"
HOME_VARIABLE = "NOETL_HOME"
PARTITIONS_VARIABLE = "NOETL_PARTITIONS"
DEFAULT_CONFIG = "~/.config"
TOKEN_VARIABLE = "NOETL_TOKEN"
DEFAULT_POOL = "default"

EMBEDDED_CLUSTER = "noetl-embedded"
"""The `cluster_name` of the embedded Postgres."""

DEFAULT_SLOTS = 64
MAX_SLOTS = 10_000
DEFAULT_WORKER_DRAIN_S = 30
MAX_DRAIN_S = 3600
MAX_DUCKDB_THREADS = 1_024
LEAST_RESULT_BYTES, MOST_RESULT_BYTES = 1024, 1024**3
POOL_NAME = r"[A-Za-z0-9_-]{1,64}"
"""The pattern of a pool's name, which is a token of a NATS subject and part of a consumer's name."""

NATS_URL_VARIABLE = "NOETL_NATS_URL"
NKEY_VARIABLE = "NOETL_NATS_NKEY"
SEEDS_VARIABLE = "NOETL_NATS_SEEDS"
CERTIFICATE_VARIABLE = "NOETL_NATS_CERTIFICATE"
NATS_FOLDERS = (SEEDS_VARIABLE, CERTIFICATE_VARIABLE)
"""Folders with the files that identify this process to NATS."""
ENGINE_VARIABLES = frozenset(
    {
        NATS_URL_VARIABLE,
        NKEY_VARIABLE,
        servers.POSTGRES_VARIABLE,
        servers.SERVER_POSTGRES_VARIABLE,
        servers.GATEWAY_POSTGRES_VARIABLE,
        servers.READ_VARIABLE,
        keys.SERVER_KEY_VARIABLE,
        keys.ACCESS_KEY_VARIABLE,
        TOKEN_VARIABLE,
    }
    | {*keys.KEY_VARIABLES, *keys.SECRET_VARIABLES}
)
"""Addresses that hold passwords, identities and keys of the engine: each process gets only its own.

Each may be in a file instead, named by the variable of this name with ``_FILE``.
"""

WORKER_VARIABLES = frozenset({NATS_URL_VARIABLE, NKEY_VARIABLE})

PROCESSES = Path("/proc")
"""The folder that holds the environment of every process, on Linux."""

LIMIT_PREFIX = "NOETL_LIMIT_"
LIMIT_VARIABLE = "NOETL_LIMIT_<NAME>"

CHILD_PREFIX = "NOETL_CHILD_"
MAX_CHILD_LIMIT = 2**53
MAX_PYTHON_CHILDREN = 10_000

DEFAULT_STATE_BYTES = 512 * 1024 * 1024
MIN_STATE_BYTES = 1024 * 1024
MAX_STATE_BYTES = 2**40

MAX_GATEWAY_LIMIT = 2**31 - 1


def _gateway_limit(name: str, least: int = 1, most: int = MAX_GATEWAY_LIMIT) -> Any:
    variable = gateway_settings.GATEWAY_PREFIX + name.upper()
    return number_setting(variable, getattr(GatewayLimits(), name), most, least)


def _child_limit(name: str) -> Any:
    return number_setting(CHILD_PREFIX + name.upper(), getattr(ChildSettings(), name), MAX_CHILD_LIMIT)


def read_home(variable: str, given: Given) -> Path | None:
    """Reads the home folder, absolute; ``None`` if there is no ``HOME`` for the default."""
    value = given.get(variable) or DEFAULT_HOME
    if value == "~" or value.startswith("~/"):
        own = given.get("HOME")
        return None if own is None else Path(own, value[2:]).absolute()
    if value.startswith("~"):
        raise UsageError(f"{variable} cannot use ~ for another user's folder", hint="write the absolute path")
    return Path(value).absolute()


def _read_folders_apart(variable: str, given: Given) -> tuple[Path, ...]:
    folders = tool_settings.read_folders(variable, given)
    own = [PROCESSES, home] if (home := read_home(HOME_VARIABLE, given)) else [PROCESSES]
    for folder in folders:
        if any(folder.is_relative_to(place) or place.is_relative_to(folder) for place in own):
            message = f"{variable} names {folder}, where noetl-stream's own keys and variables can be read"
            raise UsageError(message, hint="name a folder that holds only what playbooks may use")
    return folders


def _expand_home(folder: str) -> Path | None:
    with suppress(RuntimeError):  # the user may have no home
        return Path(folder).expanduser()
    return None


def _read_pool(variable: str, given: Given) -> str:
    value = given.get(variable, DEFAULT_POOL)
    if re.fullmatch(POOL_NAME, value) is None:
        raise UsageError(f"invalid {variable} {value!r}", hint="use 1 to 64 letters, digits, _ and -")
    return value


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The validated settings.

    Attributes:
        nats_url: One or more ``nats://`` addresses, comma-separated, or ``None`` for the embedded NATS.
        nats_certificate: The folder with the ``tls.crt`` and ``tls.key`` that this process presents to NATS, if any.
        nats_nkey: The seed of this process's NATS user, or ``None`` if the address names the user.
        nats_seeds: The folder with a seed for each identity, for a process with several; ``None`` if there is none.
        postgres_dsn: A ``postgresql://`` address, or ``None``. Only with ``nats_url``; workers need none.
        postgres_server_dsn, postgres_gateway_dsn: The same Postgres, by a user for servers and one for gateways.
        postgres_read_dsn: The ``postgresql://`` address of a replica to read from, or ``None``.
        postgres_max_bytes: The disk space for the database; ``None`` if it is not configured.
        home_folder: The absolute path of the embedded servers' folder; ``None`` if unknown. Use :attr:`home`.
        settings_file: The file that these settings are from, or ``None`` if all are from the environment.
        pool, slots: The worker pool that ``worker`` serves, and how many tasks it runs at the same time.
        partitions: P of the stores.
        worker_drain_s: The time in seconds for which a stopping worker lets running tasks finish.
        log_level: ``debug``, ``info``, ``warning`` or ``error``.
        log_format: ``text`` or ``json``, with one line per record.
        status_address: The address at which a server, worker or gateway answers probes and scrapes, if any.
        traces, lineage: The receiver of spans of a server or worker, and that of lineage from servers, if any.
        credentials: DSNs or JSON text by lower-case name (LANGUAGE §11).
        credential_key: The key that encrypts stored credentials, or ``None`` for the embedded stack's own.
        credential_old_keys: Keys that only decrypt, until everything is rotated.
        server_keys: Keys of the capabilities that commands carry, the current one first. For servers.
        access_keys: Keys that sign requests and seal objects, the current one first. Not for workers.
        grants_file: The file of what playbooks may use, by path; ``None``: there is no file.
        grants_default: What playbooks may use that no grant covers; ``None``: everything, or nothing with grants.
        backup_keys: The keys of backups; to them, the embedded stack adds its own.
        retention_rules, archive, archive_keys, events_max_bytes, …, namespace_max_stored_bytes: Use :attr:`retention`.
        trigger_streams: The names of the streams that triggers may read.
        page_url: The address of the page, for links to it; empty if it is not configured.
        pool_labels: The labels of pools, by which servers choose the pool of a step.
        trigger_rate, …, stream_replicas, …, nats_monitors: Use :attr:`trigger_rates`, :attr:`spread`, :attr:`nats_sync`
        objects: The places of objects, the first for writing; ``None`` is NATS. Empty: only NATS.
        egress_allow: Destinations that tasks may connect to beyond the public internet; ``None``: the stack's default.
        egress_deny: Destinations that tasks may not connect to, even if another rule allows it.
        kinds_off, tools_own, http_proxy, …, keychain_folders: Use :meth:`tools`.
        isolation, child_user, …, gateway_max_requests, …: Use :attr:`children` and :attr:`gateway_limits`.
        limits: Numbers as written, by lower-case name; ``model.limits.operator_limits`` parses them.
        server_max_state_bytes: Memory that a server uses for the states of living executions.
        gateway_hosts: Names of a gateway, in addition to IP addresses and ``localhost``.
        gateway_mcp: The access of agents to ``/mcp``.
        gateway_proxies: Networks of proxies whose forwarded headers a gateway believes.
        oidc: The identity provider whose tokens a gateway accepts.
        url, token, context: The gateway for commands, the token to send, and its name in :attr:`contexts_file`.
        no_color: Whether to omit colors from output (https://no-color.org).
    """

    nats_url: str | None = secret(NATS_URL_VARIABLE, "the embedded NATS", address(NATS_SCHEMES, several=True))
    nats_nkey: str | None = secret(NKEY_VARIABLE, "none", keys.read_seed)
    nats_certificate: Path | None = setting(CERTIFICATE_VARIABLE, "none", parse_with(Path))
    nats_seeds: Path | None = setting(SEEDS_VARIABLE, "none", parse_with(Path))
    postgres_dsn: str | None = secret(servers.POSTGRES_VARIABLE, "the embedded Postgres", servers.read_primary)
    postgres_server_dsn: str | None = secret(
        servers.SERVER_POSTGRES_VARIABLE, servers.POSTGRES_VARIABLE, servers.read_primary
    )
    postgres_gateway_dsn: str | None = secret(
        servers.GATEWAY_POSTGRES_VARIABLE, servers.POSTGRES_VARIABLE, servers.read_primary
    )
    postgres_read_dsn: str | None = secret(servers.READ_VARIABLE, "none", servers.read_address)
    postgres_max_bytes: int | None = setting(servers.POSTGRES_MAX_BYTES_VARIABLE, "unknown", periods.stream_size(None))
    home_folder: Path | None = setting(HOME_VARIABLE, DEFAULT_HOME, read_home)
    settings_file: Path | None = setting(SETTINGS_VARIABLE, f"{SETTINGS_FILE} of the home", parse_with(Path))
    pool: str = setting("NOETL_POOL", DEFAULT_POOL, _read_pool)
    slots: int = number_setting("NOETL_SLOTS", DEFAULT_SLOTS, MAX_SLOTS)
    partitions: int = number_setting(PARTITIONS_VARIABLE, PARTITIONS, MOST_PARTITIONS)
    worker_drain_s: int = number_setting("NOETL_WORKER_DRAIN_S", DEFAULT_WORKER_DRAIN_S, MAX_DRAIN_S)
    log_level: str = setting("NOETL_LOG_LEVEL", "info", choice(LOG_LEVELS, "info"))
    log_format: LogFormat = setting("NOETL_LOG_FORMAT", "text", choice(LOG_FORMATS, "text"))
    status_address: monitoring.StatusAddress | None = setting(
        monitoring.STATUS_VARIABLE, "none", monitoring.read_status_address
    )
    traces: monitoring.TraceSettings | None = secret(monitoring.TRACES_VARIABLE, "none", monitoring.read_traces)
    lineage: monitoring.LineageSettings | None = secret(monitoring.LINEAGE_VARIABLE, "none", monitoring.read_lineage)
    credentials: Mapping[str, str] = secret(keys.CREDENTIAL_VARIABLE, "none", keys.read_credentials)
    credential_key: str | None = secret(keys.KEY_VARIABLE, "the embedded stack's own", keys.read_secret_key)
    credential_old_keys: tuple[str, ...] = secret(keys.OLD_KEYS_VARIABLE, "none", keys.read_old_keys)
    server_keys: tuple[str, ...] = secret(keys.SERVER_KEY_VARIABLE, "the embedded stack's own", keys.read_keys)
    access_keys: tuple[str, ...] = secret(keys.ACCESS_KEY_VARIABLE, "the embedded stack's own", keys.read_keys)
    grants_file: Path | None = setting("NOETL_GRANTS", "none", parse_with(Path))
    grants_default: GrantsDefault | None = setting(
        "NOETL_GRANTS_DEFAULT", "everything, or nothing with grants", choice(GRANTS_DEFAULTS, None)
    )
    backup_keys: FileKeys = secret(keys.BACKUP_KEYS_VARIABLE, "the embedded stack's own", keys.read_file_keys)
    archive_keys: FileKeys = secret(keys.ARCHIVE_KEYS_VARIABLE, "the embedded stack's own", keys.read_file_keys)
    retention_rules: tuple[RetentionRule, ...] = setting(periods.RETENTION_VARIABLE, "none", periods.read_retention)
    archive: Place | None = setting(periods.ARCHIVE_VARIABLE, "none", periods.read_archive)
    events_max_bytes: int = setting(
        periods.EVENTS_MAX_BYTES_VARIABLE,
        periods.DEFAULT_EVENTS_MAX_BYTES,
        periods.stream_size(periods.DEFAULT_EVENTS_MAX_BYTES),
    )
    events_max_age_s: float = setting(
        periods.EVENTS_MAX_AGE_VARIABLE,
        periods.DEFAULT_EVENTS_MAX_AGE,
        periods.stream_age(periods.DEFAULT_EVENTS_MAX_AGE),
    )
    logs_max_bytes: int | None = setting(
        periods.LOGS_MAX_BYTES_VARIABLE, "1GiB for a new stream", periods.stream_size(None)
    )
    logs_max_age_s: float | None = setting(
        periods.LOGS_MAX_AGE_VARIABLE, "7d for a new stream", periods.stream_age(None)
    )
    namespace_max_stored_bytes: int | None = setting(periods.STORED_VARIABLE, "none", periods.stream_size(None))
    objects: tuple[Place | None, ...] = setting(OBJECTS_VARIABLE, "nats", read_object_places)
    trigger_streams: tuple[str, ...] = setting(STREAMS_VARIABLE, "none", servers.read_trigger_streams)
    trigger_rate: int = number_setting(TRIGGER_RATE_VARIABLE, MOST_PER_MINUTE, MOST_PER_MINUTE)
    namespace_trigger_rate: int = number_setting(NAMESPACE_RATE_VARIABLE, MOST_PER_MINUTE, MOST_PER_MINUTE)
    page_url: str = setting(servers.PAGE_VARIABLE, "none", servers.read_page_url)
    pool_labels: dict[str, dict[str, str]] = setting(servers.POOL_LABELS_VARIABLE, "none", servers.read_pool_labels)
    stream_replicas: int = number_setting(servers.REPLICAS_VARIABLE, 1, servers.MAX_REPLICAS)
    stream_placement_tags: tuple[str, ...] = setting(servers.PLACEMENT_VARIABLE, "none", servers.read_tags)
    nats_sync_interval_s: float | None = setting(servers.SYNC_VARIABLE, "unknown", servers.read_sync_interval)
    nats_monitors: tuple[str, ...] = setting(servers.MONITOR_VARIABLE, "none", servers.read_monitors)
    egress_allow: Allowed | None = setting(
        egress.ALLOW_VARIABLE, "loopback with the embedded stack, else none", parse_with(egress.read_allowed)
    )
    egress_deny: tuple[Destination, ...] = setting(egress.DENY_VARIABLE, "none", egress.read_denied)
    kinds_off: frozenset[str] = setting(tool_settings.KINDS_OFF_VARIABLE, "none", tool_settings.read_kinds)
    tools_own: Mapping[str, Mapping[str, Any]] = secret(tool_settings.OWN_VARIABLE, "none", tool_settings.read_own)
    http_proxy: str | None = secret(tool_settings.HTTP_PROXY_VARIABLE, "none", tool_settings.read_proxy)
    http_ca: Path | None = setting(tool_settings.HTTP_CA_VARIABLE, "none", tool_settings.read_certificates)
    duckdb_folders: tuple[Path, ...] = setting("NOETL_DUCKDB_PATHS", "none", tool_settings.read_folders)
    max_result_bytes: int = number_setting(
        tool_settings.MAX_RESULT_BYTES_VARIABLE,
        tool_settings.DEFAULT_MAX_RESULT_BYTES,
        MOST_RESULT_BYTES,
        LEAST_RESULT_BYTES,
    )
    max_scratch_bytes: int = tool_settings.size_setting(
        tool_settings.MAX_SCRATCH_BYTES_VARIABLE, tool_settings.DEFAULT_MAX_SCRATCH
    )
    duckdb_max_memory_bytes: int = tool_settings.size_setting(
        tool_settings.DUCKDB_MAX_MEMORY_VARIABLE, tool_settings.DEFAULT_DUCKDB_MAX_MEMORY
    )
    duckdb_max_threads: int = number_setting(
        tool_settings.DUCKDB_MAX_THREADS_VARIABLE, tool_settings.DEFAULT_DUCKDB_MAX_THREADS, MAX_DUCKDB_THREADS
    )
    keychain_folders: tuple[Path, ...] = setting(tool_settings.KEYCHAIN_FOLDERS_VARIABLE, "none", _read_folders_apart)
    isolation: child_settings.Isolation = setting(
        "NOETL_ISOLATION", "shared", choice(child_settings.ISOLATIONS, "shared")
    )
    child_user: child_settings.ChildUser = setting("NOETL_CHILD_USER", "own", choice(child_settings.CHILD_USERS, "own"))
    child_paths: tuple[Path, ...] = setting("NOETL_CHILD_PATHS", "none", _read_folders_apart)
    child_confinement: child_settings.Confinement = setting(
        "NOETL_CHILD_CONFINEMENT", "none", choice(child_settings.CONFINEMENTS, "none")
    )
    child_network: child_settings.ChildNetwork = setting(
        "NOETL_CHILD_NETWORK", "host", choice(child_settings.CHILD_NETWORKS, "host")
    )
    child_memory_bytes: int = _child_limit("memory_bytes")
    child_cpu_s: int = _child_limit("cpu_s")
    child_processes: int = _child_limit("processes")
    child_files: int = _child_limit("files")
    python_children: int = setting(
        child_settings.PYTHON_CHILDREN_VARIABLE,
        "the number of processors, at least 4",
        number(child_settings.DEFAULT_PYTHON_CHILDREN, MAX_PYTHON_CHILDREN),
    )
    python_path: tuple[Path, ...] = setting(child_settings.PYTHON_PATH_VARIABLE, "none", _read_folders_apart)
    python_environments: EnvironmentSettings = setting(
        child_settings.ENVIRONMENTS_VARIABLE,
        "folder `environments` in the home with the embedded stack, else off",
        child_settings.read_environments,
    )
    limits: Mapping[str, str] = setting(
        LIMIT_VARIABLE, "see limits.md", lambda _, given: MappingProxyType(limit_settings(given))
    )
    server_max_state_bytes: int = number_setting(
        "NOETL_SERVER_MAX_STATE_BYTES", DEFAULT_STATE_BYTES, MAX_STATE_BYTES, MIN_STATE_BYTES
    )
    gateway_max_requests: int = _gateway_limit("max_requests")
    gateway_max_waits: int = _gateway_limit("max_waits")
    gateway_max_streams: int = _gateway_limit("max_streams")
    gateway_max_large_bodies: int = _gateway_limit("max_large_bodies")
    gateway_max_checks: int = _gateway_limit("max_checks")
    gateway_max_caller_processor_percent: int = _gateway_limit("max_caller_processor_percent")
    gateway_max_query_s: int = _gateway_limit("max_query_s", 1, 3600)
    gateway_max_connections: int = _gateway_limit("max_connections")
    gateway_max_connections_per_address: int = _gateway_limit("max_connections_per_address")
    gateway_max_behind: int = _gateway_limit("max_behind")
    gateway_max_held_bytes: int = _gateway_limit("max_held_bytes", 1024 * 1024)
    gateway_max_body_bytes: int = _gateway_limit("max_body_bytes")
    gateway_max_playbook_bytes: int = _gateway_limit("max_playbook_bytes")
    gateway_max_webhook_bytes: int = _gateway_limit("max_webhook_bytes")
    gateway_max_bundle_bytes: int = _gateway_limit("max_bundle_bytes", 1, MAX_BUNDLE_BYTES)
    gateway_audit_days: int = _gateway_limit("audit_days", 30, 400)
    gateway_drain_s: int = _gateway_limit("drain_s", 1, MAX_DRAIN_S)
    gateway_stop_delay_s: int = _gateway_limit("stop_delay_s", 0, MAX_DRAIN_S)
    gateway_hosts: frozenset[str] = setting("NOETL_GATEWAY_HOSTS", "none", gateway_settings.read_hosts)
    gateway_mcp: AgentAccess = setting("NOETL_GATEWAY_MCP", "read", choice(gateway_settings.AGENT_ACCESS, "read"))
    gateway_proxies: tuple[IpNetwork, ...] = setting(
        "NOETL_GATEWAY_TRUSTED_PROXIES", "none", gateway_settings.read_networks
    )
    oidc: OidcSettings | None = setting("NOETL_OIDC_<NAME>", "none", lambda _, given: gateway_settings.read_oidc(given))
    url: str | None = setting("NOETL_URL", "none", address(GATEWAY_SCHEMES))
    token: str | None = secret(TOKEN_VARIABLE, "none", parse_with(str))
    context: str | None = setting("NOETL_CONTEXT", "the current one", parse_with(str))
    config_folder: Path | None = setting("XDG_CONFIG_HOME", DEFAULT_CONFIG, parse_with(Path))
    no_color: bool = setting("NO_COLOR", "colours on a terminal", is_set)

    @classmethod
    def variables(cls) -> dict[str, EnvironmentVariable]:
        """The environment variable of each field."""
        return {name: one.factory for name, one in zip(cls.__struct_fields__, cls.__struct_defaults__, strict=True)}

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name, one in self.variables().items() if not one.is_secret)
        return f"Settings({', '.join(shown)})"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Reads the settings from ``environ``, by default that of the process. An empty variable counts as unset.

        Raises:
            UsageError: A value is invalid. The message names the variable and never shows an address or credential.
        """
        held = {name: value for name, value in (os.environ if environ is None else environ).items() if value}
        given = with_files(held, ENGINE_VARIABLES)
        settings = cls(**{field: one.read(one.name, given) for field, one in cls.variables().items()})
        tool_settings.check_renamed(given)
        if settings.postgres_read_dsn is not None and settings.postgres_dsn is None:
            hint = "set both, or neither"
            raise UsageError(f"{servers.READ_VARIABLE} is set, but {servers.POSTGRES_VARIABLE} is not", hint=hint)
        if settings.postgres_dsn is not None and settings.nats_url is None:
            hint = "set both for your own servers, or neither"
            raise UsageError(f"{servers.POSTGRES_VARIABLE} is set, but {NATS_URL_VARIABLE} is not", hint=hint)
        return settings

    @property
    def retention(self) -> RetentionSettings:
        """The retention of executions and streams."""
        return RetentionSettings(rules=self.retention_rules, **self.named_in(RetentionSettings, "rules"))

    def named_in(self, group: type[msgspec.Struct], *but: str) -> dict[str, Any]:
        """The settings that have the same name in a group of them."""
        return {name: getattr(self, name) for name in group.__struct_fields__ if name not in but}

    @property
    def trigger_rates(self) -> TriggerRates:
        """The bounds on starts by triggers, a minute."""
        return TriggerRates(self.trigger_rate, self.namespace_trigger_rate)

    @property
    def spread(self) -> Spread:
        """The spread of streams over a NATS cluster of the user's own."""
        return Spread(self.stream_replicas, self.stream_placement_tags)

    @property
    def nats_sync(self) -> NatsSync:
        """The known settings of how NATS syncs to its disks."""
        return NatsSync(self.nats_sync_interval_s, self.nats_monitors)

    @property
    def gateway_limits(self) -> GatewayLimits:
        return GatewayLimits(*(getattr(self, f"gateway_{name}") for name in GatewayLimits.__struct_fields__))

    @property
    def home(self) -> Path:
        """The home folder, absolute.

        Raises:
            UsageError: Neither ``NOETL_HOME`` nor ``HOME`` is set. Checked only here, since commands with their own
                servers need no home.
        """
        if self.home_folder is None:
            hint = "set NOETL_HOME to a folder for the embedded stack"
            raise UsageError("neither NOETL_HOME nor HOME is set", hint=hint)
        return self.home_folder

    @property
    def contexts_file(self) -> Path | None:
        """The file with the names of gateways; ``None`` if there is no config folder."""
        folder = self.config_folder or _expand_home(DEFAULT_CONFIG)
        return folder and folder / "noetl-stream" / "contexts.yaml"

    @property
    def is_of_home(self) -> bool:
        """Whether the servers are those of the home's settings file."""
        return self.home_folder is not None and self.settings_file == self.home_folder / SETTINGS_FILE

    @property
    def selects_stack(self) -> bool:
        """Whether the environment selects the NATS and Postgres for commands."""
        is_default = self.home_folder in (None, _expand_home(DEFAULT_HOME))
        return not is_default or (self.nats_url is not None and not self.is_of_home)

    def tools(self, nats_url: str, *, embedded: bool) -> ToolSettings:
        """The permissions of tools. With the embedded stack, they may reach this machine by default.

        Args:
            nats_url: The engine's own NATS, which tasks never reach.
        """
        default = egress.read_allowed("loopback") if embedded else Allowed()
        allowed = default if self.egress_allow is None else self.egress_allow
        denied = (*self.egress_deny, *egress.servers_of(nats_url))
        rules = EgressRules(allowed.targets, denied, allowed.socket_folders)
        found = ToolSettings(egress=rules, own=self.tools_own, **self.named_in(ToolSettings, "egress", "own"))
        return found.of_home(self.home_folder) if embedded else found

    @property
    def children(self) -> ChildSettings:
        """The settings of the child processes of tools."""
        names = [name for name in ChildSettings.__struct_fields__ if hasattr(self, f"child_{name}")]
        given = {name: getattr(self, f"child_{name}") for name in names} | {"paths": tuple(map(str, self.child_paths))}
        given["python_path"] = tuple(map(str, self.python_path))
        return ChildSettings(isolation=self.isolation, python_children=self.python_children, **given)


def limit_settings(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The limits of :attr:`Settings.limits` without the other settings."""
    given, prefix = os.environ if environ is None else environ, LIMIT_PREFIX
    return {name[len(prefix) :].lower(): value for name, value in given.items() if name.startswith(prefix) and value}


def python_path() -> tuple[Path, ...]:
    """Reads only :attr:`Settings.python_path`, as folders. Raises ``UsageError`` if it is invalid."""
    return _read_folders_apart(child_settings.PYTHON_PATH_VARIABLE, os.environ)


def environment_settings(*, at_home: bool = False) -> EnvironmentSettings:
    """Reads only :attr:`Settings.python_environments`. ``at_home``: with the defaults of the embedded stack."""
    found = child_settings.read_environments(child_settings.ENVIRONMENTS_VARIABLE, os.environ)
    return found.of_home(read_home(HOME_VARIABLE, os.environ)) if at_home else found


def kinds_off() -> frozenset[str]:
    """The kinds of :attr:`Settings.kinds_off` without the other settings."""
    return tool_settings.read_kinds(tool_settings.KINDS_OFF_VARIABLE, os.environ)
