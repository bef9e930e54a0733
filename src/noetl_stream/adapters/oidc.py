"""Bearer tokens of an OpenID Connect provider: signed by it, for us, now, by somebody who has a role here."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import jwt

from noetl_stream.errors import Forbidden, Unauthenticated, Unreachable
from noetl_stream.model.roles import ROLES, Role
from noetl_stream.ports.access import Caller
from noetl_stream.ports.clock import Clock
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
        try:
            kid = jwt.get_unverified_header(bearer).get("kid")
        except jwt.PyJWTError:
            raise Unauthenticated("this is no token of the identity provider") from None
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


log = logging.getLogger(__name__)

FETCH_TIMEOUT_S: Final = 5.0
MAX_DOCUMENT_BYTES: Final = 512 * 1024
MAX_KEYS: Final = 100

FRESH_S: Final = 600.0
"""Older keys are fetched anew."""

KEPT_S: Final = 3600.0
"""How long keys hold while the provider does not answer."""

ASKED_EVERY_S: Final = 30.0
"""How often at most the provider is asked for a key that it did not show before."""

RETRIED_EVERY_S: Final = 5.0
"""How often at most a provider is asked that did not answer."""

ALGORITHMS: Final = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""What a key of each kind may sign with: never a shared secret, never nothing."""


class SigningKey(NamedTuple):
    public_key: Any
    algorithms: tuple[str, ...]


class ProviderKeys:
    """Keys by id.

    Args:
        jwks_url: Where they are; ``None``: where the issuer's discovery document says.
    """

    def __init__(self, issuer: str, jwks_url: str | None, clock: Clock) -> None:
        self._issuer = issuer
        self._jwks_url = jwks_url
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._asking: asyncio.Task[None] | None = None
        self._keys: Mapping[str | None, SigningKey] = {}
        self._fetched_s: float | None = None
        self._asked_s: float | None = None
        self._failure: str | None = None

    async def find(self, kid: str | None) -> SigningKey | None:
        """The key of this id; tokens and keys may have none. Only who has an unknown one waits for the provider.

        Raises:
            Unreachable: the provider does not answer, and nothing of it is remembered, or for too long.
        """
        known = kid in self._keys and self._age_s() <= KEPT_S
        if self._wants(kid):
            self._asked_s = self._clock.monotonic_s()
            self._asking = asyncio.create_task(self._fetch())
        if not known and self._asking is not None:
            await asyncio.shield(self._asking)
        if self._age_s() > KEPT_S:
            hint = "is NOETL_OIDC_ISSUER right? API tokens of this gateway work meanwhile"
            raise Unreachable(f"the identity provider {self._issuer} shows no keys: {self._failure}", hint=hint)
        return self._keys.get(kid)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def _wants(self, kid: str | None) -> bool:
        """Whether to ask now."""
        if (self._asking is not None and not self._asking.done()) or (kid in self._keys and self._age_s() <= FRESH_S):
            return False
        pause_s = ASKED_EVERY_S if self._failure is None else RETRIED_EVERY_S
        return self._asked_s is None or self._clock.monotonic_s() - self._asked_s >= pause_s

    def _age_s(self) -> float:
        return float("inf") if self._fetched_s is None else self._clock.monotonic_s() - self._fetched_s

    async def _fetch(self) -> None:
        try:
            document = await self._document(self._jwks_url or await self._discovered())
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as error:
            self._failure = str(error) or type(error).__name__
            log.warning("the identity provider %s shows no keys: %s", self._issuer, self._failure)
            return
        self._keys = _keys_in(document)
        self._fetched_s = self._clock.monotonic_s()
        self._failure = None

    async def _discovered(self) -> str:
        document = await self._document(self._issuer.rstrip("/") + "/.well-known/openid-configuration")
        if document.get("issuer") != self._issuer:
            raise ValueError(f"its discovery document is that of {document.get('issuer')!r}")
        url = document.get("jwks_uri")
        # A provider that is spoken to safely must not send us where anybody could answer.
        if not isinstance(url, str) or urlsplit(url).scheme not in ("https", urlsplit(self._issuer).scheme):
            raise ValueError("its discovery document has no safe jwks_uri")
        return url

    async def _document(self, url: str) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=FETCH_TIMEOUT_S))
        async with self._session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"{url} answers {response.status}")
            data = bytearray()
            async for chunk in response.content.iter_any():
                data += chunk
                if len(data) > MAX_DOCUMENT_BYTES:
                    raise ValueError(f"{url} answers with more than {MAX_DOCUMENT_BYTES} bytes")
        document = json.loads(data)
        if not isinstance(document, dict):
            raise ValueError(f"{url} answers with no JSON object")
        return document


def _keys_in(document: Mapping[str, Any]) -> dict[str | None, SigningKey]:
    """Those that may sign and that we can use; the others are other people's business."""
    listed = document.get("keys")
    found: dict[str | None, SigningKey] = {}
    for given in (listed if isinstance(listed, list) else [])[:MAX_KEYS]:
        if not isinstance(given, dict) or given.get("use", "sig") != "sig":
            continue
        kid, kind = given.get("kid"), given.get("kty")
        suited = ALGORITHMS.get((str(kind), None if kind == "RSA" else given.get("crv")), ())
        algorithms = tuple(name for name in suited if given.get("alg", name) == name)
        if not algorithms or not isinstance(kid, str | None) or "d" in given:
            continue
        try:
            found[kid] = SigningKey(jwt.PyJWK(given, algorithms[0]).key, algorithms)
        except jwt.PyJWTError as error:
            log.warning("a key of the identity provider cannot be used: %s", error)
    return found
