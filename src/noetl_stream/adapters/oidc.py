"""Bearer tokens of an OpenID Connect provider: signed by it, for us, now, by somebody who has a role here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jwt

from noetl_stream.adapters.oidc_keys import ProviderKeys, SigningKey
from noetl_stream.errors import Forbidden, Unauthenticated
from noetl_stream.model.roles import ROLES, Role
from noetl_stream.ports.access import Caller
from noetl_stream.settings.oidc import OidcSettings

LEEWAY_S: Final = 30
"""How far the provider's clock may be from ours."""

MAX_PRINCIPAL_CHARACTERS: Final = 200
REQUIRED: Final = ["iss", "sub", "aud", "exp", "iat"]

_REASONS: Final = {
    jwt.ExpiredSignatureError: "has expired",
    jwt.ImmatureSignatureError: "is not valid yet",
    jwt.InvalidAudienceError: "is for somebody else (aud)",
    jwt.InvalidIssuerError: "is from another issuer (iss)",
    jwt.InvalidSignatureError: "is not signed by the provider",
    jwt.InvalidAlgorithmError: "is signed by a way that its key is not for",
}


class OidcProvider:
    """An :class:`~noetl_stream.ports.access.IdentityProvider`. ``keys`` stay their owner's to close."""

    def __init__(self, settings: OidcSettings, keys: ProviderKeys) -> None:
        self._settings = settings
        self._keys = keys

    async def caller(self, bearer: str) -> Caller:
        """See :meth:`noetl_stream.ports.access.IdentityProvider.caller`."""
        try:
            kid = jwt.get_unverified_header(bearer).get("kid")
        except jwt.PyJWTError:
            raise Unauthenticated("not a token of the identity provider") from None
        key = await self._keys.find(kid)
        if key is None:
            raise Unauthenticated("the token is signed with a key that the identity provider does not show")
        claims = self._verified(bearer, key)
        principal = _principal(claims)
        role = self._role(claims)
        if role is None:
            raise Forbidden(
                f"{principal} has no role here",
                hint=f"the token's claim {self._settings.role_claim!r} says none; NOETL_OIDC_DEFAULT_ROLE gives one",
            )
        return Caller(principal, role)

    def _verified(self, bearer: str, key: SigningKey) -> Mapping[str, Any]:
        """The claims. The key says which algorithms there are, never the token."""
        try:
            return jwt.decode(
                bearer,
                key.public_key,
                algorithms=list(key.algorithms),
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=LEEWAY_S,
                options={"require": REQUIRED, "enforce_minimum_key_length": True},
            )
        except jwt.PyJWTError as error:
            reason = next((words for kind, words in _REASONS.items() if isinstance(error, kind)), "does not hold")
            raise Unauthenticated(f"the identity provider's token {reason}") from None

    def _role(self, claims: Mapping[str, Any]) -> Role | None:
        """The highest of those that the claim says."""
        said = _claim(claims, self._settings.role_claim)
        values = said if isinstance(said, list) else [said]
        roles = self._settings.roles
        found = [roles[value] for value in values if isinstance(value, str) and value in roles]
        return max(found, key=ROLES.index, default=self._settings.default_role)


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim of that name, or with dots a member within one: ``realm_access.roles``."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _principal(claims: Mapping[str, Any]) -> str:
    """By the address if the provider vouches for it: another one anybody may claim."""
    email = claims.get("email") if claims.get("email_verified") is True else None
    name = email if isinstance(email, str) and email else claims["sub"]
    shown = "".join(character if character.isprintable() else "?" for character in name)
    return f"oidc:{shown[:MAX_PRINCIPAL_CHARACTERS]}"
