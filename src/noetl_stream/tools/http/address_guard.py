"""Which addresses ``kind: http`` may connect to: the public internet, and what the operator opened.

The guard sits where a socket is made, and looks at the address the socket is for. So it does not matter how the address
came about: written out in any notation, answered by a name server (another answer a moment later included), or named
by a redirect.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Any, Final

from noetl_stream.settings.tools import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses that a gateway translates into the IPv4 address of their last 32 bits (RFC 6052)."""


class ForbiddenAddress(OSError):
    """A connection that must not be made. An ``OSError``, so that further addresses of the host are tried."""

    def __init__(self, address: str) -> None:
        super().__init__("its address is not public")
        self.address = address


class AddressGuard:
    """Makes sockets for public addresses and those in ``opened``; refuses all others."""

    def __init__(self, opened: Iterable[Network]) -> None:
        self._opened = tuple(opened)

    def socket_for(self, target: tuple[Any, Any, int, str, Any]) -> socket.socket:
        """A socket for an entry of ``getaddrinfo``, which the client then connects to this very address.

        Raises:
            ForbiddenAddress: it leads somewhere that is not open.
        """
        family, kind, protocol, _, place = target
        if not self.allows(str(place[0])):
            raise ForbiddenAddress(str(place[0]))
        return socket.socket(family, kind, protocol)

    def allows(self, text: str) -> bool:
        """Whether the address ``text``, as the system writes it, is open."""
        address = _meant(ipaddress.ip_address(text))
        return _is_public(address) or any(address in network for network in self._opened)


def _meant(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one that only carries it: that is where packets end up."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _TRANSLATED:
        return ipaddress.IPv4Address(address.packed[-4:])
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else address)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)
