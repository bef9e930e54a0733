"""The rules of egress: where tasks may connect; part of :mod:`noetl_stream.settings.sources.environment`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from noetl_stream.errors import UsageError

ALLOW_VARIABLE: Final = "NOETL_EGRESS_ALLOW"
DENY_VARIABLE: Final = "NOETL_EGRESS_DENY"
WORDS: Final = {
    "none": (),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
}
MAX_PORT: Final = 65_535
NATS_PORT: Final = 4222

_NAME: Final = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*\.?"
_WITH_PORT: Final = r"(?:\[(?P<in_brackets>[^\]]+)\]|(?P<plain>[^:\[\]]+)):(?P<port>[0-9]{1,5})"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Destination(msgspec.Struct, frozen=True, gc=False):
    """A network, or a host by name at any address; on one port, or on all."""

    where: Network | str
    port: int | None = None

    def matches(self, address: Address, port: int, name: str = "") -> bool:
        """Whether a connection to ``port`` of ``address``, found as ``name``, goes to this destination."""
        if self.port not in (None, port):
            return False
        return self.where == name if isinstance(self.where, str) else address in self.where

    def is_exactly(self, address: Address, port: int) -> bool:
        """Whether the destination is this one ``address``, and no network around it."""
        return not isinstance(self.where, str) and self.where.num_addresses == 1 and self.matches(address, port)


class EgressRules(msgspec.Struct, frozen=True):
    """The destinations that tasks may connect to in addition to the public internet.

    Attributes:
        allowed: Networks and hosts.
        denied: Networks that are closed even if they are public or allowed.
        socket_folders: Folders whose Unix sockets may be connected to.
    """

    allowed: tuple[Destination, ...] = ()
    denied: tuple[Destination, ...] = ()
    socket_folders: tuple[Path, ...] = ()


class Allowed(msgspec.Struct, frozen=True, gc=False):
    """The parsed destinations of ``NOETL_EGRESS_ALLOW``."""

    targets: tuple[Destination, ...] = ()
    socket_folders: tuple[Path, ...] = ()


def read_allowed(text: str) -> Allowed:
    """Parses a comma-separated list of ``loopback``, ``private``, ``none``, addresses, networks and host names, each
    with or without ``:port``, and absolute paths of folders.

    Raises:
        UsageError: An entry is invalid.
    """
    targets: list[Destination] = []
    folders: list[Path] = []
    for entry in _entries(text):
        if entry.startswith("/"):
            folders.append(Path(entry))
        else:
            targets += _targets(entry, ALLOW_VARIABLE, names=True)
    return Allowed(tuple(targets), tuple(folders))


def read_denied(variable: str, given: Mapping[str, str]) -> tuple[Destination, ...]:
    """Parses a list like :func:`read_allowed`, without host names and folders.

    Raises:
        UsageError: An entry is invalid, or a name: its addresses may change.
    """
    entries = _entries(given[variable]) if variable in given else []
    return tuple(target for entry in entries for target in _targets(entry, variable, names=False))


def egress_rules(allow: str) -> EgressRules:
    """The rules of ``NOETL_EGRESS_ALLOW`` alone."""
    allowed = read_allowed(allow)
    return EgressRules(allowed.targets, socket_folders=allowed.socket_folders)


def servers_of(nats_url: str) -> tuple[Destination, ...]:
    """The servers of a ``nats://`` address that are given by address, or on this machine.

    A server given by name is omitted: its addresses may change, and it asks for credentials that no task has.
    """
    found: list[Destination] = []
    for part in nats_url.split(","):
        address = urlsplit(part.strip())
        host, port = address.hostname or "", address.port or NATS_PORT
        if host == "localhost":
            found += [Destination(ipaddress.ip_network(network), port) for network in WORDS["loopback"]]
            continue
        with suppress(ValueError):
            found.append(Destination(ipaddress.ip_network(host), port))
    return tuple(found)


def _entries(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _targets(entry: str, variable: str, *, names: bool) -> list[Destination]:
    place, port = _place_and_port(entry.lower())
    if port is None or (0 < port <= MAX_PORT and place != "none"):
        if place in WORDS:
            return [Destination(ipaddress.ip_network(network), port) for network in WORDS[place]]
        with suppress(ValueError):
            return [Destination(ipaddress.ip_network(place), port)]
        # Digits alone are a mistyped network, not a host name.
        if names and re.fullmatch(_NAME, place) is not None and not place.replace(".", "").isdecimal():
            return [Destination(place.rstrip("."), port)]
    known = "loopback, private, none, an address or a network such as 10.1.0.0/16"
    more = ", a host name, each with or without :port, or a folder of sockets" if names else ", with or without :port"
    raise UsageError(f"invalid entry {entry!r} in {variable}", hint=f"use {known}{more}")


def _place_and_port(entry: str) -> tuple[str, int | None]:
    found = re.fullmatch(_WITH_PORT, entry)
    if found is None:
        return entry, None
    return found["in_brackets"] or found["plain"], int(found["port"])
