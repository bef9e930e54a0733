"""The egress guard, through which all connections requested by tasks go, of any kind.

Addresses are checked, not names: a name is resolved, and the connection is made to a checked address. The source of an
address is therefore irrelevant: any notation, a name server (even if it answers differently a moment later), a
redirect, a list of hosts. Kinds differ only in how their libraries are given the checked address: http gets a factory
of sockets, postgres and nats get literal addresses.

If a proxy makes the connection, the one to the proxy is checked, and its target as far as this machine can see it; the
rest is for the proxy to refuse.

``python`` and ``shell`` run programs, which are guarded if their network leads through a proxy of the worker (see
:mod:`~noetl_stream.tools.proxy.egress_proxy`). Otherwise the operator gives workers of such pools a network of their
own, or switches the kinds off.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final

from noetl_stream.settings.egress import ALLOW_VARIABLE, DENY_VARIABLE, Address, EgressRules, Network
from noetl_stream.tools.contract import ToolCall

AddressInfo = tuple[Any, Any, int, str, Any]
"""An entry of ``getaddrinfo``."""

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""The IPv6 addresses that a gateway translates to the IPv4 address in their last 32 bits (RFC 6052)."""

METADATA: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "169.254.0.0/16",  # link-local: AWS, Google Cloud, Azure, OpenStack and others hand out credentials there
        "fe80::/10",
        "fd00:ec2::/32",  # AWS
        "fd20:ce::/32",  # Google Cloud
        "fd00:42::42/128",  # Scaleway
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure; public by its number
        "192.0.0.192/32",  # Oracle Cloud
    )
)
"""The link-local addresses, and those where clouds give machines their credentials."""


class Reach(Enum):
    PUBLIC = "public"
    """Public addresses only: after a redirect from one."""
    ALLOWED = "allowed"
    """Also addresses that the operator permits to tasks."""
    OWN = "own"
    """Also private networks and this machine: the operator has chosen the address."""


class ForbiddenAddress(OSError):
    """A forbidden connection. An ``OSError``, so that clients try the host's other addresses."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(errno.EACCES, f"{address} {reason}")  # clients show only the text

    def __str__(self) -> str:
        return str(self.strerror)


class Egress:
    """Checks connections against the operator's rules."""

    def __init__(self, rules: EgressRules | None = None) -> None:
        self._rules = rules or EgressRules()
        self._names = frozenset(target.where for target in self._rules.allowed if isinstance(target.where, str))

    def allowed_name(self, host: str) -> str:
        """Returns ``host`` as it is named in the operator's rules; else empty."""
        name = host.rstrip(".").lower()
        return name if name in self._names else ""

    def check(self, text: str, port: int, *, name: str = "", reach: Reach = Reach.ALLOWED) -> None:
        """Checks a connection to an address in the system's notation.

        Args:
            name: The host name that resolved to the address, as returned by :meth:`allowed_name`.

        Raises:
            ForbiddenAddress: the connection may not be made.
        """
        address = _effective_address(ipaddress.ip_address(text))
        allowed = self._rules.allowed
        if address.is_unspecified or address.is_multicast:
            raise ForbiddenAddress(text, "is not the address of a host")
        if any(address in network for network in METADATA if network.version == address.version) and not any(
            target.is_exactly(address, port) for target in allowed
        ):
            reason = f"is link-local or a metadata service; only {ALLOW_VARIABLE} with this very address allows it"
            raise ForbiddenAddress(text, reason)
        if reach is Reach.OWN:
            return
        if any(target.matches(address, port) for target in self._rules.denied):
            raise ForbiddenAddress(text, f"port {port} is closed to tasks by the worker's operator ({DENY_VARIABLE})")
        if is_public(text):
            return
        if reach is Reach.PUBLIC:
            raise ForbiddenAddress(text, "is not public, and a public address redirected to it")
        if not any(target.matches(address, port, name) for target in allowed):
            raise ForbiddenAddress(text, f"is not public; the worker's operator can allow it with {ALLOW_VARIABLE}")

    def sockets(self, name: str = "", reach: Reach = Reach.ALLOWED) -> Callable[[AddressInfo], socket.socket]:
        """Returns a factory of sockets to the checked address. Arguments and errors: as for :meth:`check`."""

        def socket_for(info: AddressInfo) -> socket.socket:
            family, kind, protocol, _, address = info
            self.check(str(address[0]), address[1], name=name, reach=reach)
            return socket.socket(family, kind, protocol)

        return socket_for

    async def addresses(self, host: str, port: int, reach: Reach = Reach.ALLOWED) -> list[str]:
        """Returns the addresses of ``host`` that may be connected to, at least one.

        Raises:
            ForbiddenAddress: no address may be.
            OSError: the name does not resolve.
            ValueError: ``host`` is not a valid name.
        """
        name = self.allowed_name(host)
        passed: list[str] = []
        refusal: ForbiddenAddress | None = None
        for address in await _resolve(host, port):
            try:
                self.check(address, port, name=name, reach=reach)
                passed.append(address)
            except ForbiddenAddress as forbidden:
                refusal = forbidden
        if not passed:
            raise refusal or OSError(f"{host} has no address")
        return passed

    async def is_inside(self, host: str, port: int) -> bool:
        """Returns whether no address of ``host``, as this machine sees it, is public."""
        found = await _addresses_seen(host, port)
        return bool(found) and not any(map(is_public, found))

    async def check_host(self, host: str, port: int, reach: Reach = Reach.ALLOWED) -> None:
        """Checks a connection that a proxy will make, as far as this machine sees its target: an unknown name passes.

        Raises:
            ForbiddenAddress: the connection may not be made.
        """
        for address in await _addresses_seen(host, port):
            self.check(address, port, name=self.allowed_name(host), reach=reach)

    def check_socket(self, path: str, reach: Reach = Reach.ALLOWED) -> None:
        """Checks a connection to the Unix socket ``path``.

        Raises:
            ForbiddenAddress: the connection may not be made.
        """
        if reach is not Reach.OWN and Path(os.path.normpath(path)).parent not in self._rules.socket_folders:
            reason = f"is a Unix socket; the worker's operator can allow its folder with {ALLOW_VARIABLE}"
            raise ForbiddenAddress(path, reason)


async def reach_of(call: ToolCall, auth: object) -> Reach:
    """Returns the reach of the connection that ``auth`` describes: the operator's own credential names its host."""
    return Reach.OWN if isinstance(auth, str) and await call.is_operators(auth) else Reach.ALLOWED


def is_public(text: str) -> bool:
    """Returns whether the address belongs to the public internet."""
    address = _effective_address(ipaddress.ip_address(text))
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


async def _resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


async def _addresses_seen(host: str, port: int) -> list[str]:
    try:
        return await _resolve(host, port)
    except (OSError, ValueError):
        return []


def _effective_address(address: Address) -> Address:
    """Returns the IPv4 address embedded in an IPv6 address, to which packets go; else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)
