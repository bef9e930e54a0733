"""The operator's permissions for a worker's tools; part of :mod:`noetl_stream.settings.environment`."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from noetl_stream.errors import UsageError
from noetl_stream.settings.children import ChildSettings

HTTP_ALLOW_VARIABLE: Final = "NOETL_HTTP_ALLOW"
KINDS_OFF_VARIABLE: Final = "NOETL_KINDS_OFF"
OLD_SHELL_VARIABLE: Final = "NOETL_SHELL"
HTTP_ALLOW_WORDS: Final = {
    "none": (),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
}
HOST_NAME: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*\.?")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class HttpAllow:
    """What `http` tasks may reach besides the public internet: networks, and hosts by name, whatever their address."""

    networks: tuple[Network, ...] = ()
    host_names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """The operator's permissions for a worker's tools.

    Attributes:
        http_allow: What `http` tasks may reach besides the public internet.
        kinds_off: The kinds whose tasks must not run.
        duckdb_folders: Absolute paths of the folders whose files `duckdb` tasks may read and write.
        children: What the child processes of `python` and `shell` tasks may share and use.
    """

    http_allow: HttpAllow = HttpAllow()
    kinds_off: frozenset[str] = frozenset()
    duckdb_folders: tuple[Path, ...] = ()
    children: ChildSettings = field(default_factory=ChildSettings)


def read_http_allow(text: str) -> HttpAllow:
    """Parses a comma-separated list of ``loopback``, ``private``, ``none``, addresses, networks and host names.

    Raises:
        UsageError: An entry is invalid.
    """
    networks: list[Network] = []
    names: set[str] = set()
    for entry in (part.strip().lower() for part in text.split(",")):
        if entry in HTTP_ALLOW_WORDS:
            networks += map(ipaddress.ip_network, HTTP_ALLOW_WORDS[entry])
            continue
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError:
            # Digits alone are a mistyped network, not a host name.
            if HOST_NAME.fullmatch(entry) is None or entry.replace(".", "").isdecimal():
                hint = "use loopback, private, none, an address, a network such as 10.1.0.0/16, or a host name"
                raise UsageError(f"invalid entry {entry!r} in {HTTP_ALLOW_VARIABLE}", hint=hint) from None
            names.add(entry.rstrip("."))
    return HttpAllow(tuple(networks), frozenset(names))


def read_kinds_off(variable: str, given: Mapping[str, str]) -> frozenset[str]:
    """Parses a comma-separated list of kinds.

    Raises:
        UsageError: The setting that this one replaced is set: an operator who relied on it must not be ignored.
    """
    if OLD_SHELL_VARIABLE in given:
        raise UsageError(f"{OLD_SHELL_VARIABLE} is no longer a setting", hint=f"use {variable}=shell to switch it off")
    return frozenset(kind.strip().lower() for kind in given.get(variable, "").split(",") if kind.strip())


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
