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
from noetl_stream.settings.children import (
    CHILD_NETWORKS,
    CHILD_USERS,
    CONFINEMENTS,
    DEFAULT_PYTHON_CHILDREN,
    ISOLATIONS,
    PYTHON_CHILDREN_VARIABLE,
    PYTHON_PATH_VARIABLE,
    ChildNetwork,
    ChildSettings,
    ChildUser,
    Confinement,
    Isolation,
)
from noetl_stream.settings.egress import (
    ALLOW_VARIABLE,
    DENY_VARIABLE,
    Allowed,
    Destination,
    EgressRules,
    read_allowed,
    read_denied,
    servers_of,
)
from noetl_stream.settings.file_keys import (
    ARCHIVE_KEYS_VARIABLE,
    BACKUP_KEYS_VARIABLE,
    SECRET_VARIABLES,
    read_file_keys,
)
from noetl_stream.settings.gateway_settings import (
    AGENT_ACCESS,
    GATEWAY_PREFIX,
    AgentAccess,
    GatewayLimits,
    IpNetwork,
    OidcSettings,
    read_hosts,
    read_networks,
    read_oidc,
)
from noetl_stream.settings.key_variables import (
    ACCESS_KEY_VARIABLE,
    CREDENTIAL_VARIABLE,
    KEY_VARIABLE,
    KEY_VARIABLES,
    OLD_KEYS_VARIABLE,
    SERVER_KEY_VARIABLE,
    read_credentials,
    read_keys,
    read_old_keys,
    read_secret_key,
    read_seed,
)
from noetl_stream.settings.lineage import LINEAGE_VARIABLE, LineageSettings, read_lineage
from noetl_stream.settings.monitoring import (
    STATUS_VARIABLE,
    TRACES_VARIABLE,
    StatusAddress,
    TraceSettings,
    read_status_address,
    read_traces,
)
from noetl_stream.settings.places import OBJECTS_VARIABLE, Place, read_object_places
from noetl_stream.settings.python_environments import ENVIRONMENTS_VARIABLE, EnvironmentSettings, read_environments
from noetl_stream.settings.retention_periods import (
    ARCHIVE_VARIABLE,
    DEFAULT_EVENTS_MAX_AGE,
    DEFAULT_EVENTS_MAX_BYTES,
    EVENTS_MAX_AGE_VARIABLE,
    EVENTS_MAX_BYTES_VARIABLE,
    LOGS_MAX_AGE_VARIABLE,
    LOGS_MAX_BYTES_VARIABLE,
    RETENTION_VARIABLE,
    STORED_VARIABLE,
    RetentionRule,
    RetentionSettings,
    read_archive,
    read_retention,
    stream_age,
    stream_size,
)
from noetl_stream.settings.servers import (
    GATEWAY_POSTGRES_VARIABLE,
    MAX_REPLICAS,
    MONITOR_VARIABLE,
    PAGE_VARIABLE,
    PLACEMENT_VARIABLE,
    POOL_LABELS_VARIABLE,
    POSTGRES_MAX_BYTES_VARIABLE,
    POSTGRES_VARIABLE,
    READ_VARIABLE,
    REPLICAS_VARIABLE,
    SERVER_POSTGRES_VARIABLE,
    SYNC_VARIABLE,
    NatsSync,
    Spread,
    read_address,
    read_monitors,
    read_page_url,
    read_pool_labels,
    read_primary,
    read_sync_interval,
    read_tags,
    read_trigger_streams,
)
from noetl_stream.settings.sources.settings_file import SETTINGS_FILE, SETTINGS_VARIABLE, with_files
from noetl_stream.settings.sources.variables import (
    EnvironmentVariable,
    Given,
    address,
    choice,
    is_set,
    number,
    parse_with,
    setting,
)
from noetl_stream.settings.tools import (
    DEFAULT_DUCKDB_MAX_MEMORY,
    DEFAULT_DUCKDB_MAX_THREADS,
    DEFAULT_MAX_RESULT_BYTES,
    DEFAULT_MAX_SCRATCH,
    DUCKDB_MAX_MEMORY_VARIABLE,
    DUCKDB_MAX_THREADS_VARIABLE,
    HTTP_CA_VARIABLE,
    HTTP_PROXY_VARIABLE,
    KEYCHAIN_FOLDERS_VARIABLE,
    KINDS_OFF_VARIABLE,
    MAX_RESULT_BYTES_VARIABLE,
    MAX_SCRATCH_BYTES_VARIABLE,
    OWN_VARIABLE,
    ToolSettings,
    check_renamed,
    read_certificates,
    read_folders,
    read_kinds,
    read_own,
    read_proxy,
    read_size,
)
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
        POSTGRES_VARIABLE,
        SERVER_POSTGRES_VARIABLE,
        GATEWAY_POSTGRES_VARIABLE,
        READ_VARIABLE,
        SERVER_KEY_VARIABLE,
        ACCESS_KEY_VARIABLE,
        TOKEN_VARIABLE,
    }
    | {*KEY_VARIABLES, *SECRET_VARIABLES}
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
    default: int = getattr(GatewayLimits(), name)
    return setting(GATEWAY_PREFIX + name.upper(), str(default), number(default, most, least))


def _child_limit(name: str) -> Any:
    default: int = getattr(ChildSettings(), name)
    return setting(CHILD_PREFIX + name.upper(), str(default), number(default, MAX_CHILD_LIMIT))


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
    folders = read_folders(variable, given)
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
        kinds_off: The kinds whose tasks must not run.
        tools_own: The settings of kinds from plugins, by kind.
        http_proxy: The URL of the proxy through which `http` tasks reach the public internet, if any.
        http_ca: The PEM file of authorities that `http` tasks trust in addition to the system's, if any.
        duckdb_folders: Absolute paths of the folders whose files `duckdb` tasks may use.
        max_result_bytes, max_scratch_bytes: The bound of one task's options ``max_…_bytes``, and of its files on the
            worker's disk.
        duckdb_max_memory_bytes, duckdb_max_threads: The upper bounds of one `duckdb` task's options.
        keychain_folders: Absolute paths of the folders below which entries of the keychain may name files.
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

    nats_url: str | None = setting(
        NATS_URL_VARIABLE, "the embedded NATS", address(NATS_SCHEMES, several=True), is_secret=True
    )
    nats_nkey: str | None = setting(NKEY_VARIABLE, "none", read_seed, is_secret=True)
    nats_certificate: Path | None = setting(CERTIFICATE_VARIABLE, "none", parse_with(Path))
    nats_seeds: Path | None = setting(SEEDS_VARIABLE, "none", parse_with(Path))
    postgres_dsn: str | None = setting(POSTGRES_VARIABLE, "the embedded Postgres", read_primary, is_secret=True)
    postgres_server_dsn: str | None = setting(SERVER_POSTGRES_VARIABLE, POSTGRES_VARIABLE, read_primary, is_secret=True)
    postgres_gateway_dsn: str | None = setting(
        GATEWAY_POSTGRES_VARIABLE, POSTGRES_VARIABLE, read_primary, is_secret=True
    )
    postgres_read_dsn: str | None = setting(READ_VARIABLE, "none", read_address, is_secret=True)
    postgres_max_bytes: int | None = setting(POSTGRES_MAX_BYTES_VARIABLE, "unknown", stream_size(None))
    home_folder: Path | None = setting(HOME_VARIABLE, DEFAULT_HOME, read_home)
    settings_file: Path | None = setting(SETTINGS_VARIABLE, f"{SETTINGS_FILE} of the home", parse_with(Path))
    pool: str = setting("NOETL_POOL", DEFAULT_POOL, _read_pool)
    slots: int = setting("NOETL_SLOTS", str(DEFAULT_SLOTS), number(DEFAULT_SLOTS, MAX_SLOTS))
    partitions: int = setting(PARTITIONS_VARIABLE, str(PARTITIONS), number(PARTITIONS, MOST_PARTITIONS))
    worker_drain_s: int = setting(
        "NOETL_WORKER_DRAIN_S", str(DEFAULT_WORKER_DRAIN_S), number(DEFAULT_WORKER_DRAIN_S, MAX_DRAIN_S)
    )
    log_level: str = setting("NOETL_LOG_LEVEL", "info", choice(LOG_LEVELS, "info"))
    log_format: LogFormat = setting("NOETL_LOG_FORMAT", "text", choice(LOG_FORMATS, "text"))
    status_address: StatusAddress | None = setting(STATUS_VARIABLE, "none", read_status_address)
    traces: TraceSettings | None = setting(TRACES_VARIABLE, "none", read_traces, is_secret=True)
    lineage: LineageSettings | None = setting(LINEAGE_VARIABLE, "none", read_lineage, is_secret=True)
    credentials: Mapping[str, str] = setting(CREDENTIAL_VARIABLE, "none", read_credentials, is_secret=True)
    credential_key: str | None = setting(KEY_VARIABLE, "the embedded stack's own", read_secret_key, is_secret=True)
    credential_old_keys: tuple[str, ...] = setting(OLD_KEYS_VARIABLE, "none", read_old_keys, is_secret=True)
    server_keys: tuple[str, ...] = setting(SERVER_KEY_VARIABLE, "the embedded stack's own", read_keys, is_secret=True)
    access_keys: tuple[str, ...] = setting(ACCESS_KEY_VARIABLE, "the embedded stack's own", read_keys, is_secret=True)
    grants_file: Path | None = setting("NOETL_GRANTS", "none", parse_with(Path))
    grants_default: GrantsDefault | None = setting(
        "NOETL_GRANTS_DEFAULT", "everything, or nothing with grants", choice(GRANTS_DEFAULTS, None)
    )
    backup_keys: FileKeys = setting(BACKUP_KEYS_VARIABLE, "the embedded stack's own", read_file_keys, is_secret=True)
    archive_keys: FileKeys = setting(ARCHIVE_KEYS_VARIABLE, "the embedded stack's own", read_file_keys, is_secret=True)
    retention_rules: tuple[RetentionRule, ...] = setting(RETENTION_VARIABLE, "none", read_retention)
    archive: Place | None = setting(ARCHIVE_VARIABLE, "none", read_archive)
    events_max_bytes: int = setting(
        EVENTS_MAX_BYTES_VARIABLE, DEFAULT_EVENTS_MAX_BYTES, stream_size(DEFAULT_EVENTS_MAX_BYTES)
    )
    events_max_age_s: float = setting(
        EVENTS_MAX_AGE_VARIABLE, DEFAULT_EVENTS_MAX_AGE, stream_age(DEFAULT_EVENTS_MAX_AGE)
    )
    logs_max_bytes: int | None = setting(LOGS_MAX_BYTES_VARIABLE, "1GiB for a new stream", stream_size(None))
    logs_max_age_s: float | None = setting(LOGS_MAX_AGE_VARIABLE, "7d for a new stream", stream_age(None))
    namespace_max_stored_bytes: int | None = setting(STORED_VARIABLE, "none", stream_size(None))
    objects: tuple[Place | None, ...] = setting(OBJECTS_VARIABLE, "nats", read_object_places)
    trigger_streams: tuple[str, ...] = setting(STREAMS_VARIABLE, "none", read_trigger_streams)
    trigger_rate: int = setting(TRIGGER_RATE_VARIABLE, str(MOST_PER_MINUTE), number(MOST_PER_MINUTE, MOST_PER_MINUTE))
    namespace_trigger_rate: int = setting(
        NAMESPACE_RATE_VARIABLE, str(MOST_PER_MINUTE), number(MOST_PER_MINUTE, MOST_PER_MINUTE)
    )
    page_url: str = setting(PAGE_VARIABLE, "none", read_page_url)
    pool_labels: dict[str, dict[str, str]] = setting(POOL_LABELS_VARIABLE, "none", read_pool_labels)
    stream_replicas: int = setting(REPLICAS_VARIABLE, "1", number(1, MAX_REPLICAS))
    stream_placement_tags: tuple[str, ...] = setting(PLACEMENT_VARIABLE, "none", read_tags)
    nats_sync_interval_s: float | None = setting(SYNC_VARIABLE, "unknown", read_sync_interval)
    nats_monitors: tuple[str, ...] = setting(MONITOR_VARIABLE, "none", read_monitors)
    egress_allow: Allowed | None = setting(
        ALLOW_VARIABLE, "loopback with the embedded stack, else none", parse_with(read_allowed)
    )
    egress_deny: tuple[Destination, ...] = setting(DENY_VARIABLE, "none", read_denied)
    kinds_off: frozenset[str] = setting(KINDS_OFF_VARIABLE, "none", read_kinds)
    tools_own: Mapping[str, Mapping[str, Any]] = setting(OWN_VARIABLE, "none", read_own, is_secret=True)
    http_proxy: str | None = setting(HTTP_PROXY_VARIABLE, "none", read_proxy, is_secret=True)
    http_ca: Path | None = setting(HTTP_CA_VARIABLE, "none", read_certificates)
    duckdb_folders: tuple[Path, ...] = setting("NOETL_DUCKDB_PATHS", "none", read_folders)
    max_result_bytes: int = setting(
        MAX_RESULT_BYTES_VARIABLE,
        str(DEFAULT_MAX_RESULT_BYTES),
        number(DEFAULT_MAX_RESULT_BYTES, MOST_RESULT_BYTES, LEAST_RESULT_BYTES),
    )
    max_scratch_bytes: int = setting(MAX_SCRATCH_BYTES_VARIABLE, DEFAULT_MAX_SCRATCH, read_size)
    duckdb_max_memory_bytes: int = setting(DUCKDB_MAX_MEMORY_VARIABLE, DEFAULT_DUCKDB_MAX_MEMORY, read_size)
    duckdb_max_threads: int = setting(
        DUCKDB_MAX_THREADS_VARIABLE,
        str(DEFAULT_DUCKDB_MAX_THREADS),
        number(DEFAULT_DUCKDB_MAX_THREADS, MAX_DUCKDB_THREADS),
    )
    keychain_folders: tuple[Path, ...] = setting(KEYCHAIN_FOLDERS_VARIABLE, "none", _read_folders_apart)
    isolation: Isolation = setting("NOETL_ISOLATION", "shared", choice(ISOLATIONS, "shared"))
    child_user: ChildUser = setting("NOETL_CHILD_USER", "own", choice(CHILD_USERS, "own"))
    child_paths: tuple[Path, ...] = setting("NOETL_CHILD_PATHS", "none", _read_folders_apart)
    child_confinement: Confinement = setting("NOETL_CHILD_CONFINEMENT", "none", choice(CONFINEMENTS, "none"))
    child_network: ChildNetwork = setting("NOETL_CHILD_NETWORK", "host", choice(CHILD_NETWORKS, "host"))
    child_memory_bytes: int = _child_limit("memory_bytes")
    child_cpu_s: int = _child_limit("cpu_s")
    child_processes: int = _child_limit("processes")
    child_files: int = _child_limit("files")
    python_children: int = setting(
        PYTHON_CHILDREN_VARIABLE,
        "the number of processors, at least 4",
        number(DEFAULT_PYTHON_CHILDREN, MAX_PYTHON_CHILDREN),
    )
    python_path: tuple[Path, ...] = setting(PYTHON_PATH_VARIABLE, "none", _read_folders_apart)
    python_environments: EnvironmentSettings = setting(
        ENVIRONMENTS_VARIABLE, "folder `environments` in the home with the embedded stack, else off", read_environments
    )
    limits: Mapping[str, str] = setting(
        LIMIT_VARIABLE, "see limits.md", lambda _, given: MappingProxyType(limit_settings(given))
    )
    server_max_state_bytes: int = setting(
        "NOETL_SERVER_MAX_STATE_BYTES",
        str(DEFAULT_STATE_BYTES),
        number(DEFAULT_STATE_BYTES, MAX_STATE_BYTES, MIN_STATE_BYTES),
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
    gateway_hosts: frozenset[str] = setting("NOETL_GATEWAY_HOSTS", "none", read_hosts)
    gateway_mcp: AgentAccess = setting("NOETL_GATEWAY_MCP", "read", choice(AGENT_ACCESS, "read"))
    gateway_proxies: tuple[IpNetwork, ...] = setting("NOETL_GATEWAY_TRUSTED_PROXIES", "none", read_networks)
    oidc: OidcSettings | None = setting("NOETL_OIDC_<NAME>", "none", lambda _, given: read_oidc(given))
    url: str | None = setting("NOETL_URL", "none", address(GATEWAY_SCHEMES))
    token: str | None = setting(TOKEN_VARIABLE, "none", parse_with(str), is_secret=True)
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
        check_renamed(given)
        if settings.postgres_read_dsn is not None and settings.postgres_dsn is None:
            raise UsageError(f"{READ_VARIABLE} is set, but {POSTGRES_VARIABLE} is not", hint="set both, or neither")
        if settings.postgres_dsn is not None and settings.nats_url is None:
            hint = "set both for your own servers, or neither"
            raise UsageError(f"{POSTGRES_VARIABLE} is set, but {NATS_URL_VARIABLE} is not", hint=hint)
        return settings

    @property
    def retention(self) -> RetentionSettings:
        """The retention of executions and streams."""
        return RetentionSettings(rules=self.retention_rules, **self._named_in(RetentionSettings, "rules"))

    def _named_in(self, group: type[msgspec.Struct], *but: str) -> dict[str, Any]:
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
            raise UsageError(
                "neither NOETL_HOME nor HOME is set", hint="set NOETL_HOME to a folder for the embedded stack"
            )
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
        default = read_allowed("loopback") if embedded else Allowed()
        allowed = default if self.egress_allow is None else self.egress_allow
        denied = (*self.egress_deny, *servers_of(nats_url))
        egress = EgressRules(allowed.targets, denied, allowed.socket_folders)
        found = ToolSettings(egress=egress, own=self.tools_own, **self._named_in(ToolSettings, "egress", "own"))
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
    return _read_folders_apart(PYTHON_PATH_VARIABLE, os.environ)


def environment_settings(*, at_home: bool = False) -> EnvironmentSettings:
    """Reads only :attr:`Settings.python_environments`. ``at_home``: with the defaults of the embedded stack."""
    found = read_environments(ENVIRONMENTS_VARIABLE, os.environ)
    return found.of_home(read_home(HOME_VARIABLE, os.environ)) if at_home else found


def kinds_off() -> frozenset[str]:
    """The kinds of :attr:`Settings.kinds_off` without the other settings."""
    return read_kinds(KINDS_OFF_VARIABLE, os.environ)
