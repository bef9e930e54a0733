"""The operator's permissions for a worker's tools; part of :mod:`noetl_stream.settings.sources.environment`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import msgspec
from msgspec.structs import replace

from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import split_address
from noetl_stream.settings.children import ChildSettings, EnvironmentSettings
from noetl_stream.settings.egress import ALLOW_VARIABLE, EgressRules
from noetl_stream.settings.sources.variables import measure, setting, words_of

KINDS_OFF_VARIABLE: Final = "NOETL_KINDS_OFF"
OWN_PREFIX: Final = "NOETL_TOOL_"
OWN_VARIABLE: Final = "NOETL_TOOL_<KIND>"
KEYCHAIN_FOLDERS_VARIABLE: Final = "NOETL_KEYCHAIN_FOLDERS"
HTTP_PROXY_VARIABLE: Final = "NOETL_HTTP_PROXY"
HTTP_CA_VARIABLE: Final = "NOETL_HTTP_CA"
MAX_RESULT_BYTES_VARIABLE: Final = "NOETL_MAX_RESULT_BYTES"
DEFAULT_MAX_RESULT_BYTES: Final = 256 * 1024 * 1024
MAX_SCRATCH_BYTES_VARIABLE: Final = "NOETL_MAX_SCRATCH_BYTES"
DEFAULT_MAX_SCRATCH: Final = "64GiB"
DEFAULT_MAX_SCRATCH_BYTES: Final = 64 * 1024**3
DUCKDB_MAX_MEMORY_VARIABLE: Final = "NOETL_DUCKDB_MAX_MEMORY"
DUCKDB_MAX_THREADS_VARIABLE: Final = "NOETL_DUCKDB_MAX_THREADS"
DEFAULT_DUCKDB_MAX_MEMORY: Final = "4GB"
DEFAULT_DUCKDB_MAX_MEMORY_BYTES: Final = 4_000_000_000
DEFAULT_DUCKDB_MAX_THREADS: Final = 8

_SIZE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([kmgt])(i?)b", re.IGNORECASE)


class ToolSettings(msgspec.Struct, frozen=True):
    """The operator's permissions for a worker's tools.

    Attributes:
        egress: The destinations that tasks may connect to.
        kinds_off: The kinds whose tasks must not run.
        duckdb_folders: Absolute paths of the folders whose files `duckdb` tasks may read and write.
        keychain_folders: Absolute paths of the folders below which entries of the keychain may name files.
        duckdb_max_memory_bytes: Memory that one `duckdb` task may ask for.
        duckdb_max_threads: Threads that one `duckdb` task may ask for.
        http_proxy: The URL of the proxy through which `http` tasks reach the public internet, if any.
        http_ca: The PEM file of authorities that `http` tasks trust in addition to the system's, if any.
        children: The settings of the child processes of `python` and `shell` tasks.
        python_environments: The environments of `python` tasks.
        own: The settings of kinds from plugins, by kind.
        max_result_bytes: The upper bound of the options ``max_…_bytes`` of one task.
        max_scratch_bytes: The most bytes that one task may write to the worker's disk.
    """

    egress: EgressRules = msgspec.field(default_factory=EgressRules)
    kinds_off: frozenset[str] = frozenset()
    duckdb_folders: tuple[Path, ...] = ()
    keychain_folders: tuple[Path, ...] = ()
    duckdb_max_memory_bytes: int = DEFAULT_DUCKDB_MAX_MEMORY_BYTES
    duckdb_max_threads: int = DEFAULT_DUCKDB_MAX_THREADS
    http_proxy: str | None = None
    http_ca: Path | None = None
    children: ChildSettings = msgspec.field(default_factory=ChildSettings)
    own: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES
    max_scratch_bytes: int = DEFAULT_MAX_SCRATCH_BYTES
    python_environments: EnvironmentSettings = EnvironmentSettings()

    def of_home(self, home: Path | None) -> Self:
        """The permissions of a worker of the embedded stack in ``home``, where it may keep environments."""
        return replace(self, python_environments=self.python_environments.of_home(home))


def check_renamed(given: Mapping[str, str]) -> None:
    """Refuses variables of renamed restrictions, so that none is ignored because its name has changed.

    Raises:
        UsageError: One is set.
    """
    if "NOETL_HTTP_ALLOW" in given:
        hint = "it now holds for every kind that connects"
        raise UsageError(f"NOETL_HTTP_ALLOW has become {ALLOW_VARIABLE}: rename it", hint=hint)
    if "NOETL_SHELL" in given:
        hint = f"{KINDS_OFF_VARIABLE}=shell switches it off"
        raise UsageError(f"NOETL_SHELL has become {KINDS_OFF_VARIABLE}, a list of kinds", hint=hint)


def read_kinds(variable: str, given: Mapping[str, str]) -> frozenset[str]:
    """Parses a comma-separated list of kinds. Whether they exist is checked where the kinds are known."""
    return frozenset(kind.lower() for kind in words_of(variable, given))


def read_own(_variable: str, given: Mapping[str, str]) -> Mapping[str, Mapping[str, Any]]:
    """Parses the settings of kinds from plugins. The kinds themselves validate them.

    Raises:
        UsageError: The settings of a kind are not a JSON object.
    """
    found = {name: value for name, value in given.items() if name.startswith(OWN_PREFIX)}
    return MappingProxyType({name[len(OWN_PREFIX) :].lower(): _read_object(name, found[name]) for name in found})


def _read_object(variable: str, text: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise UsageError(f"{variable} is not a JSON object", hint='write its settings as in {"name": 1}')
    return read


def check_proxy(text: str) -> None:
    """Checks the URL of a proxy.

    Raises:
        ValueError: This is not the URL of a proxy. The message shows no part of it, which may hold a password.
    """
    parts = split_address(text)
    is_address = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
    if parts is None or not is_address or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("must be http:// or https://, a host and a port")


def read_proxy(variable: str, given: Mapping[str, str]) -> str | None:
    """Reads the URL of a proxy.

    Raises:
        UsageError: The text is not the URL of a proxy.
    """
    text = given.get(variable)
    if text is not None:
        try:
            check_proxy(text)
        except ValueError as error:
            raise UsageError(f"{variable}: {error}", hint=f"write {variable}=http://proxy.example.com:3128") from None
    return text


def read_certificates(variable: str, given: Mapping[str, str]) -> Path | None:
    """Reads the path of a file of certificates.

    Raises:
        UsageError: The file has no certificates.
    """
    text = given.get(variable)
    if text is None:
        return None
    import ssl  # few set this, and importing it takes a while

    try:
        ssl.create_default_context(cafile=text)
    except OSError as error:  # SSLError is one
        is_there = isinstance(error, ssl.SSLError)
        reason = "holds no certificate in PEM" if is_there else error.strerror
        raise UsageError(f"{variable}: {text}: {reason}", hint="name a PEM file of certificates") from None
    return Path(text).absolute()


def read_folders(variable: str, given: Mapping[str, str]) -> tuple[Path, ...]:
    """Parses folders, separated as in ``PATH``.

    Raises:
        UsageError: A path is not absolute.
    """
    folders = tuple(Path(part) for part in given.get(variable, "").split(os.pathsep) if part)
    for folder in folders:
        if not folder.is_absolute():
            raise UsageError(f"relative path {str(folder)!r} in {variable}", hint="use absolute paths")
    return folders


def size_bytes(text: str) -> int | None:
    """The bytes of a size: ``512MB`` or ``1.5 GiB``; ``None`` if it is not a size."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    return int(float(found[1]) * (1024 if found[3] else 1000) ** ("kmgt".index(found[2].lower()) + 1))


def size_setting(variable: str, default: str) -> Any:
    return setting(variable, default, measure(size_bytes, default, 1, "write a size such as 512MB or 4GiB"))
