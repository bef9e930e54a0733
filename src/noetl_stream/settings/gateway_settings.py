"""Settings of a gateway: capacity limits, its names, the proxies in front of it, and the identity provider."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.bundles import MAX_BUNDLE_BYTES
from noetl_stream.model.rights import ROLES, Role, has_valid_segments
from noetl_stream.settings.sources.variables import words_of

GATEWAY_PREFIX: Final = "NOETL_GATEWAY_"

IpNetwork: TypeAlias = IPv4Network | IPv6Network

HOST_NAME: Final = r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*"


AgentAccess = Literal["off", "read", "changes"]
"""The access of agents at ``/mcp``, as far as their tokens allow."""

AGENT_ACCESS: Final[tuple[AgentAccess, ...]] = get_args(AgentAccess)


BodySize = Literal["json", "playbook", "webhook", "bundle"]
"""Kinds of bodies, each with a limit of its own."""


class GatewayLimits(msgspec.Struct, frozen=True, gc=False):
    """Capacity limits of a gateway. Errors name the variable; ``docs/reference/settings.md`` documents each."""

    max_requests: int = 1000
    max_waits: int = 1000
    max_streams: int = 1000
    max_large_bodies: int = 64
    max_checks: int = 16
    max_caller_processor_percent: int = 50
    max_query_s: int = 30
    max_connections: int = 4000
    max_connections_per_address: int = 1000
    max_behind: int = 100_000
    max_held_bytes: int = 256 * 1024 * 1024
    max_body_bytes: int = 4 * 1024 * 1024
    max_playbook_bytes: int = 1024 * 1024
    max_webhook_bytes: int = 256 * 1024
    max_bundle_bytes: int = MAX_BUNDLE_BYTES
    audit_days: int = 90
    drain_s: int = 10
    stop_delay_s: int = 5

    def body(self, size: BodySize) -> tuple[str, int]:
        """The variable that limits bodies of this kind, and its value in bytes."""
        name = "max_body_bytes" if size == "json" else f"max_{size}_bytes"
        return GATEWAY_PREFIX + name.upper(), getattr(self, name)


def read_hosts(variable: str, given: Mapping[str, str]) -> frozenset[str]:
    """Reads host names, in lower case.

    Raises:
        UsageError: one of them is not a host name.
    """
    names = words_of(variable, given)
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
    for part in words_of(variable, given):
        try:
            found.append(ip_network(part))
        except ValueError as error:
            hint = "use addresses and networks separated by commas: 10.0.0.7,10.1.0.0/16"
            raise UsageError(f"invalid network in {variable}: {error}", hint=hint) from None
    return tuple(found)


OIDC_PREFIX: Final = "NOETL_OIDC_"
OIDC_VARIABLES: Final = (
    *("ISSUER", "AUDIENCE", "JWKS_URL"),
    *("ROLE_CLAIM", "ROLES", "DEFAULT_ROLE", "PATHS_CLAIM", "PATHS", "CLIENTS"),
)
"""The endings of the variables of :class:`OidcSettings`, one for each field."""


class OidcSettings(msgspec.Struct, frozen=True):
    """An OpenID Connect provider whose tokens are accepted.

    Attributes:
        issuer: The value of ``iss`` in its tokens.
        audience: The value of ``aud`` in tokens for this gateway.
        jwks_url: The URL of its keys. Default: from its discovery document.
        role_claim: The claim that holds the caller's role.
        roles: The roles by value of the claim.
        default_role: The role of tokens whose claim matches none. Default: no access.
        clients: The clients (``azp``) whose tokens are accepted; empty: any.
        paths_claim: The claim that holds the paths a caller is limited to; ``None``: no caller is limited.
        paths: The paths by value of that claim; ``None``: the values are paths themselves.
    """

    issuer: str
    audience: str
    jwks_url: str | None = None
    role_claim: str = "noetl_role"
    roles: Mapping[str, Role] = msgspec.field(default_factory=lambda: MappingProxyType({name: name for name in ROLES}))
    default_role: Role | None = None
    clients: frozenset[str] = frozenset()
    paths_claim: str | None = None
    paths: Mapping[str, tuple[str, ...]] | None = None


def read_oidc(given: Mapping[str, str]) -> OidcSettings | None:
    """Reads the settings of the identity provider; ``None`` if no variable is set.

    Raises:
        UsageError: A variable is missing or invalid.
    """
    values = {name: given[OIDC_PREFIX + name] for name in OIDC_VARIABLES if OIDC_PREFIX + name in given}
    if not values:
        return None
    for name in ("ISSUER", "AUDIENCE"):
        if name not in values:
            message = f"{OIDC_PREFIX}{next(iter(values))} is set, but {OIDC_PREFIX}{name} is not"
            raise UsageError(message, hint="set both NOETL_OIDC_ISSUER and NOETL_OIDC_AUDIENCE")
    for name in ("ISSUER", "JWKS_URL"):
        if name in values and not _is_safe_address(values[name]):
            hint = "it must start with https://, or with http:// on this machine"
            raise UsageError(f"insecure address in {OIDC_PREFIX}{name}", hint=hint)
    parsed: dict[str, Any] = {name.lower(): value for name, value in values.items()}
    if "ROLES" in values:
        parsed["roles"] = _roles(values["ROLES"])
    if "DEFAULT_ROLE" in values:
        parsed["default_role"] = _role(values["DEFAULT_ROLE"], "DEFAULT_ROLE")
    if "CLIENTS" in values:
        parsed["clients"] = frozenset(filter(None, map(str.strip, values["CLIENTS"].split(","))))
    if "PATHS" in values:
        parsed["paths"] = _paths(values["PATHS"])
        if "PATHS_CLAIM" not in values:
            hint = "set the claim whose values it explains"
            raise UsageError(f"{OIDC_PREFIX}PATHS is set, but {OIDC_PREFIX}PATHS_CLAIM is not", hint=hint)
    return OidcSettings(**parsed)


def _roles(text: str) -> Mapping[str, Role]:
    """Parses roles, such as ``platform=admin,data team=author``. They replace the default mapping and its ``admin``."""
    found: dict[str, Role] = {}
    for entry in text.split(","):
        value, equals, role = (part.strip() for part in entry.rpartition("="))
        if not equals or not value:
            raise UsageError(f"invalid entry {entry!r} in {OIDC_PREFIX}ROLES", hint="write value=role, comma-separated")
        found[value] = _role(role, "ROLES")
    return MappingProxyType(found)


def _paths(text: str) -> Mapping[str, tuple[str, ...]]:
    """Parses paths, such as ``data team=team/data,ops=team/ops``; a value may come several times."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in text.split(","):
        value, equals, path = (part.strip() for part in entry.rpartition("="))
        if not equals or not value or not has_valid_segments(path.strip("/")):
            raise UsageError(f"invalid entry {entry!r} in {OIDC_PREFIX}PATHS", hint="write value=path, comma-separated")
        found[value] = (*found.get(value, ()), path.strip("/"))
    return MappingProxyType(found)


def _role(text: str, name: str) -> Role:
    for role in ROLES:
        if text.strip() == role:
            return role
    raise UsageError(f"unknown role {text!r} in {OIDC_PREFIX}{name}", hint=f"use one of {', '.join(ROLES)}")


def _is_safe_address(text: str) -> bool:
    try:
        address = urlsplit(text)
        host = address.hostname or ""
    except ValueError:
        return False
    if address.scheme == "https":
        return host != ""
    if host != "localhost":
        try:
            return address.scheme == "http" and ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False
    return address.scheme == "http"
