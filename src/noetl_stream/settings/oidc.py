"""What the environment says of an identity provider: a part of :mod:`noetl_stream.settings.environment`."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal
from urllib.parse import urlsplit

from noetl_stream.errors import UsageError

RoleName = Literal["viewer", "operator", "author", "admin"]
ROLE_NAMES: Final[tuple[RoleName, ...]] = ("viewer", "operator", "author", "admin")

OIDC_PREFIX: Final = "NOETL_OIDC_"
OIDC_VARIABLES: Final = ("ISSUER", "AUDIENCE", "JWKS_URL", "ROLE_CLAIM", "ROLES", "DEFAULT_ROLE")


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """An OpenID Connect provider whose tokens are taken.

    Attributes:
        issuer: As tokens spell it in ``iss``.
        audience: What tokens for this gateway have in ``aud``.
        jwks_url: Where its keys are; ``None``: where its discovery document says.
        role_claim: The claim that says who may do what.
        roles: What the claim's values stand for.
        default_role: Of those whose claim says no role; ``None``: they may nothing.
    """

    issuer: str
    audience: str
    jwks_url: str | None = None
    role_claim: str = "noetl_role"
    roles: Mapping[str, RoleName] = field(default_factory=lambda: MappingProxyType({name: name for name in ROLE_NAMES}))
    default_role: RoleName | None = None


def read_oidc(given: Mapping[str, str]) -> OidcSettings | None:
    """``None`` where no variable speaks of a provider.

    Raises:
        UsageError: one is missing, or cannot be.
    """
    said = {name: given[OIDC_PREFIX + name] for name in OIDC_VARIABLES if OIDC_PREFIX + name in given}
    if not said:
        return None
    for name in ("ISSUER", "AUDIENCE"):
        if name not in said:
            known = f"{OIDC_PREFIX}{next(iter(said))} is set and {OIDC_PREFIX}{name} is not"
            raise UsageError(known, hint="an identity provider takes both NOETL_OIDC_ISSUER and NOETL_OIDC_AUDIENCE")
    for name in ("ISSUER", "JWKS_URL"):
        if name in said and not _is_safe_address(said[name]):
            hint = "it begins with https://, or on this machine with http://"
            raise UsageError(f"{OIDC_PREFIX}{name} is no address to trust", hint=hint)
    found = OidcSettings(said["ISSUER"], said["AUDIENCE"])
    return OidcSettings(
        found.issuer,
        found.audience,
        said.get("JWKS_URL"),
        said.get("ROLE_CLAIM", found.role_claim),
        _roles(said["ROLES"]) if "ROLES" in said else found.roles,
        _role(said["DEFAULT_ROLE"], "DEFAULT_ROLE") if "DEFAULT_ROLE" in said else None,
    )


def _roles(text: str) -> Mapping[str, RoleName]:
    """``platform=admin,data team=author``: what is not named here is no role any more, not even ``admin``."""
    found: dict[str, RoleName] = {}
    for entry in text.split(","):
        value, equals, role = (part.strip() for part in entry.rpartition("="))
        if not equals or not value:
            raise UsageError(f"{OIDC_PREFIX}ROLES has the entry {entry!r}", hint="value=role, with commas between")
        found[value] = _role(role, "ROLES")
    return MappingProxyType(found)


def _role(text: str, name: str) -> RoleName:
    for role in ROLE_NAMES:
        if text.strip() == role:
            return role
    raise UsageError(f"{OIDC_PREFIX}{name} names the role {text!r}", hint=f"one of {', '.join(ROLE_NAMES)}")


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
