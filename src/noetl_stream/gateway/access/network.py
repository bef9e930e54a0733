"""The host that a request addresses, and the address it comes from.

A name can be made to resolve to any address (DNS rebinding), an IP address cannot. A request is therefore admitted only
if its ``Host`` is ``localhost``, an IP address to which it can have been sent, or a configured name. Anybody can send
the headers in which proxies report the client, so they count only from a configured proxy; from any other sender they
show that an unknown proxy is in front.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from noetl_stream.errors import Forbidden
from noetl_stream.settings.gateway_settings import IpNetwork

FORWARDED: Final = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
FORWARDED_PREFIXES: Final = ("x-forwarded-", "x-original-")

_CLIENT: Final = web.RequestKey("client", str)


@dataclass(frozen=True, slots=True)
class Network:
    """
    Attributes:
        hosts: Names that resolve to this gateway, in lower case.
        proxies: The proxies whose forwarded headers count.
    """

    hosts: frozenset[str] = frozenset()
    proxies: tuple[IpNetwork, ...] = ()

    def admit(self, request: web.Request) -> None:
        """Checks the host and the sender of a request; :func:`client_of` then knows the client.

        Raises:
            Forbidden: it addresses another host, or was forwarded by an unknown proxy.
        """
        peer = request.remote or ""
        if not self.trusts(peer):
            _refuse_forwarded(request)
        elif clients := request.headers.getall("X-Forwarded-For", []):
            request[_CLIENT] = self._client(",".join(clients), peer)
        self._require_host(request)

    def trusts(self, address: str) -> bool:
        found = _ip(address)
        return found is not None and any(found in network for network in self.proxies)

    def _client(self, forwarded_for: str, peer: str) -> str:
        """The client by ``X-Forwarded-For``. Each proxy appends its sender; anything left of that may be forged."""
        client = peer
        for part in reversed(forwarded_for.split(",")):
            found = _ip(part.strip())
            if found is None:
                raise Forbidden("X-Forwarded-For does not end with an IP address", hint="check the proxy's settings")
            client = str(found)
            if not self.trusts(client):
                break
        return client

    def _require_host(self, request: web.Request) -> None:
        given = request.headers.getall("Host", [])
        name = _host_name(given[0]) if len(given) == 1 else ""
        if name == "localhost" or name in self.hosts or (name and _can_be_sent_to(name, request)):
            return
        shown = given[0][:100] if len(given) == 1 else ""
        hint = "use its IP address, or list the name in NOETL_GATEWAY_HOSTS"
        raise Forbidden(f"this gateway is not called {shown!r}", hint=hint)


def client_of(request: web.Request) -> str:
    """The IP address of the client: the sender's, or the one reported by a trusted proxy; "" if unknown."""
    client: str = request.get(_CLIENT, request.remote or "")
    return client


def host_of(request: web.Request) -> str:
    """The ``Host`` header."""
    return request.headers.get("Host", "")


def is_loopback(host: str) -> bool:
    """Whether this host, perhaps with a port, is always the user's own machine."""
    name = _host_name(host)
    found = _ip(name)
    return name == "localhost" or (found is not None and found.is_loopback)


def _refuse_forwarded(request: web.Request) -> None:
    for name in request.headers:
        if name.lower() in FORWARDED or name.lower().startswith(FORWARDED_PREFIXES):
            hint = "list the proxy's address in NOETL_GATEWAY_TRUSTED_PROXIES, if this gateway is to serve its clients"
            raise Forbidden(f"a proxy that is not trusted has sent {name}", hint=hint)


def _can_be_sent_to(name: str, request: web.Request) -> bool:
    """Whether this is an IP address that can lead to the connection of the request.

    On loopback, only loopback addresses can; elsewhere any can, since addresses may be translated on the way.
    """
    asked, own = _ip(name), _ip(_own_address(request))
    if asked is None or own is None:
        return False
    return asked.is_loopback or not own.is_loopback


def _own_address(request: web.Request) -> str:
    sock = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return str(sock[0]) if sock else ""


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found
