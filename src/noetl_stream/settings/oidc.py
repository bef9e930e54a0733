"""Settings of the identity provider; part of :mod:`noetl_stream.settings.sources.environment`."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from noetl_stream.errors import UsageError
from noetl_stream.model.rights import ROLES, Role, has_valid_segments

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
