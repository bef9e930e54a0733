"""Settings of a gateway: its capacity limits, the names it is called by, and the proxies in front of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from noetl_stream.errors import UsageError

GATEWAY_PREFIX: Final = "NOETL_GATEWAY_"

IpNetwork: TypeAlias = IPv4Network | IPv6Network

HOST_NAME: Final = r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*"


AgentAccess = Literal["off", "read", "changes"]
"""The access of agents at ``/mcp``, as far as their tokens allow."""

AGENT_ACCESS: Final[tuple[AgentAccess, ...]] = get_args(AgentAccess)


BodySize = Literal["json", "playbook", "webhook"]
"""Kinds of bodies, each with a limit of its own."""


class GatewayLimits(msgspec.Struct, frozen=True, gc=False):
    """Capacity limits of a gateway. Errors name the variable; ``docs/reference/settings.md`` documents each."""

    max_requests: int = 1000
    max_waits: int = 1000
    max_streams: int = 1000
    max_large_bodies: int = 64
    max_checks: int = 16
    max_connections: int = 4000
    max_connections_per_address: int = 1000
    max_behind: int = 100_000
    max_held_bytes: int = 256 * 1024 * 1024
    max_body_bytes: int = 4 * 1024 * 1024
    max_playbook_bytes: int = 1024 * 1024
    max_webhook_bytes: int = 256 * 1024
    audit_days: int = 90
    drain_s: int = 10

    def body(self, size: BodySize) -> tuple[str, int]:
        """The variable that limits bodies of this kind, and its value in bytes."""
        if size == "json":
            return f"{GATEWAY_PREFIX}MAX_BODY_BYTES", self.max_body_bytes
        if size == "webhook":
            return f"{GATEWAY_PREFIX}MAX_WEBHOOK_BYTES", self.max_webhook_bytes
        return f"{GATEWAY_PREFIX}MAX_PLAYBOOK_BYTES", self.max_playbook_bytes


def read_hosts(variable: str, given: Mapping[str, str]) -> frozenset[str]:
    """Reads host names, in lower case.

    Raises:
        UsageError: one of them is not a host name.
    """
    names = _parts(variable, given)
    for name in names:
        if re.fullmatch(HOST_NAME, name.lower()) is None:
            hint = "use host names separated by commas, without scheme and port: noetl.example.com"
            raise UsageError(f"invalid host name {name!r} in {variable}", hint=hint)
    return frozenset(name.lower() for name in names)


def read_networks(variable: str, given: Mapping[str, str]) -> tuple[IpNetwork, ...]:
    """Reads networks; an address alone is a network of one.

    Raises:
        UsageError: one of them is not a network.
    """
    found: list[IpNetwork] = []
    for part in _parts(variable, given):
        try:
            found.append(ip_network(part))
        except ValueError as error:
            hint = "use addresses and networks separated by commas: 10.0.0.7,10.1.0.0/16"
            raise UsageError(f"invalid network in {variable}: {error}", hint=hint) from None
    return tuple(found)


def _parts(variable: str, given: Mapping[str, str]) -> list[str]:
    return [part.strip() for part in given.get(variable, "").split(",") if part.strip()]
