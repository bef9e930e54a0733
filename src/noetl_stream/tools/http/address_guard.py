"""The addresses that ``kind: http`` may connect to: the public internet, and what the operator allows.

The guard checks the address for which a socket is created. So it does not matter where the address comes from: any
notation, a name server (even if it answers differently a moment later), or a redirect.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Any, Final

from noetl_stream.settings.tools import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses that a gateway translates to the IPv4 address in their last 32 bits (RFC 6052)."""


class ForbiddenAddress(OSError):
    """A forbidden connection. An ``OSError``, so that the client tries the host's other addresses."""

    def __init__(self, address: str) -> None:
        super().__init__("its address is not public")
        self.address = address


class AddressGuard:
    """Creates sockets for public addresses and those in ``allowed``, and no others."""

    def __init__(self, allowed: Iterable[Network]) -> None:
        self._allowed = tuple(allowed)

    def socket_for(self, target: tuple[Any, Any, int, str, Any]) -> socket.socket:
        """A socket for an entry of ``getaddrinfo``, which the client connects to this address.

        Raises:
            ForbiddenAddress: The address is not allowed.
        """
        family, kind, protocol, _, address = target
        if not self.allows(str(address[0])):
            raise ForbiddenAddress(str(address[0]))
        return socket.socket(family, kind, protocol)

    def allows(self, text: str) -> bool:
        """Whether the address ``text``, as the system writes it, is allowed."""
        address = _effective_address(ipaddress.ip_address(text))
        return _is_public(address) or any(address in network for network in self._allowed)


def _effective_address(address: Address) -> Address:
    """The IPv4 address embedded in an IPv6 address, which is where packets go; else the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
