"""Bearer tokens of an OpenID Connect provider, and its public keys (OpenID Connect Discovery 1.0, RFC 7517)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import jwt

from noetl_stream.concurrency import end_tasks
from noetl_stream.errors import Forbidden, Unauthenticated, Unreachable
from noetl_stream.model.rights import ROLES, Role, has_valid_segments
from noetl_stream.model.secrets.urls import redact_urls
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.identities import Caller
from noetl_stream.settings.gateway_settings import OidcSettings
from noetl_stream.tools.egress import Egress, Reach

log = logging.getLogger(__name__)

LEEWAY_S: Final = 30
"""The accepted difference between the provider's clock and this machine's, in seconds."""

MAX_PRINCIPAL_CHARACTERS: Final = 200
REQUIRED: Final = ["iss", "sub", "aud", "exp", "iat"]

ID_TOKEN_CLAIMS: Final = frozenset({"nonce", "at_hash", "c_hash", "s_hash"})
"""Claims that only ID tokens have (OpenID Connect Core 1.0)."""

MAX_PATHS: Final = 100

_REASONS: Final = {
    jwt.ExpiredSignatureError: "has expired",
    jwt.ImmatureSignatureError: "is not valid yet",
    jwt.InvalidAudienceError: "is for another audience (aud)",
    jwt.InvalidIssuerError: "is from another issuer (iss)",
    jwt.InvalidSignatureError: "is not signed by the provider",
    jwt.InvalidAlgorithmError: "is signed with an algorithm its key is not for",
}

FETCH_TIMEOUT_S: Final = 5.0
MAX_DOCUMENT_BYTES: Final = 512 * 1024
MAX_KEYS: Final = 100

FRESH_S: Final = 600.0
"""The age from which cached keys are fetched again."""

KEPT_S: Final = 3600.0
"""The time for which cached keys are used while the provider does not answer."""

REFETCH_AFTER_S: Final = 30.0
"""The shortest interval between fetches for an unknown key."""

RETRY_AFTER_S: Final = 5.0
"""The delay of a fetch after a failure."""

ALGORITHMS: Final = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The algorithms of each kind of key: never a shared secret, never ``none``."""


class OidcProvider:
    """An :class:`~noetl_stream.ports.stores.identities.IdentityProvider` of bearer tokens. Leaves ``keys`` open."""

    def __init__(self, settings: OidcSettings, keys: ProviderKeys) -> None:
        self._settings = settings
        self._keys = keys

    async def caller(self, bearer: str) -> Caller:
        try:
            header = jwt.get_unverified_header(bearer)
        except jwt.PyJWTError:
            raise Unauthenticated("not a token of the identity provider") from None
        key = await self._keys.find(header.get("kid"))
        if key is None:
            raise Unauthenticated("the token is signed with a key the identity provider does not publish")
        claims = self._verify(bearer, key)
        _check_access_token(header, claims, self._settings)
        principal = _principal(claims)
        role = self._role(claims)
        if role is None:
            hint = f"the claim {self._settings.role_claim!r} names none; NOETL_OIDC_DEFAULT_ROLE sets a default"
            raise Forbidden(f"{principal} has no role here", hint=hint)
        paths = () if role == "admin" else self._paths(claims, principal)
        return Caller(principal, role, paths, id=f"oidc:{claims['sub']}")

    def _verify(self, bearer: str, key: SigningKey) -> Mapping[str, Any]:
        """Verifies a bearer token and returns its claims. The key determines the algorithms, never the token."""
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
            reason = next((words for kind, words in _REASONS.items() if isinstance(error, kind)), "is invalid")
            raise Unauthenticated(f"the identity provider's token {reason}") from None

    def _role(self, claims: Mapping[str, Any]) -> Role | None:
        claim = _claim(claims, self._settings.role_claim)
        values = claim if isinstance(claim, list) else [claim]
        roles = self._settings.roles
        found = [roles[value] for value in values if isinstance(value, str) and value in roles]
        return max(found, key=ROLES.index, default=self._settings.default_role)

    def _paths(self, claims: Mapping[str, Any], principal: str) -> tuple[str, ...]:
        """Returns the paths that the caller is restricted to; empty if callers are unrestricted.

        Raises:
            Forbidden: the claim names none.
        """
        settings = self._settings
        if settings.paths_claim is None:
            return ()
        claim = _claim(claims, settings.paths_claim)
        values = [value for value in (claim if isinstance(claim, list) else [claim]) if isinstance(value, str)]
        if settings.paths is None:
            paths = [path for value in values if has_valid_segments(path := value.strip("/"))]
        else:
            paths = [path for value in values for path in settings.paths.get(value, ())]
        if not paths:
            hint = f"the claim {settings.paths_claim!r} names none; see NOETL_OIDC_PATHS"
            raise Forbidden(f"{principal} has no paths here", hint=hint)
        return tuple(dict.fromkeys(paths))[:MAX_PATHS]


def _check_access_token(header: Mapping[str, Any], claims: Mapping[str, Any], settings: OidcSettings) -> None:
    """Refuses ID tokens, which tell a client who has logged in, and authorize no calls.

    An access token is marked by the type ``at+jwt`` (RFC 9068) or, by some providers, the claim ``typ``. Without a
    mark, an ID token is recognized by its claims, or by an audience that is its client.

    Raises:
        Unauthenticated: it is not an access token, or its client is not accepted.
    """
    kind = str(header.get("typ", "JWT")).lower().removeprefix("application/")
    declared = claims.get("typ")
    client = claims.get("azp", claims.get("client_id"))
    if kind not in ("at+jwt", "jwt") or (declared is not None and str(declared).lower() != "bearer"):
        raise Unauthenticated("the identity provider's token is not an access token (typ)")
    if kind == "jwt" and declared is None and (ID_TOKEN_CLAIMS & claims.keys() or client == settings.audience):
        hint = "send the access token, not the ID token"
        raise Unauthenticated("the identity provider's token is an ID token", hint=hint)
    if settings.clients and client not in settings.clients:
        raise Unauthenticated("the identity provider's token is of a client that is not accepted (azp)")


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """Returns the claim of that name, or a member of one named with dots: ``realm_access.roles``."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _principal(claims: Mapping[str, Any]) -> str:
    """Returns the principal: the email address if the provider has verified it, else the subject."""
    email = claims.get("email") if claims.get("email_verified") is True else None
    name = email if isinstance(email, str) and email else claims["sub"]
    shown = "".join(character if character.isprintable() else "?" for character in name)
    return f"oidc:{shown[:MAX_PRINCIPAL_CHARACTERS]}"


class SigningKey(NamedTuple):
    public_key: Any
    algorithms: tuple[str, ...]


class ProviderKeys:
    """Caches the provider's keys by id.

    Args:
        jwks_url: The URL of the keys. Default: from the issuer's discovery document.
        egress: The rules for hosts in addition to those of ``issuer`` and ``jwks_url``, which the operator chose: a
            discovery document must not point a gateway at internal hosts.
    """

    def __init__(self, issuer: str, jwks_url: str | None, clock: Clock, egress: Egress | None = None) -> None:
        self._issuer = issuer
        self._egress = egress or Egress()
        self._jwks_url = jwks_url
        self._clock = clock
        self._chosen_hosts = {urlsplit(url).hostname for url in (issuer, jwks_url) if url is not None}
        self._sessions: dict[Reach, aiohttp.ClientSession] = {}
        self._fetching: asyncio.Task[None] | None = None
        self._keys: Mapping[str | None, SigningKey] = {}
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._failure: str | None = None

    async def find(self, kid: str | None) -> SigningKey | None:
        """Returns the key of this id; tokens and keys may have none. Asks the provider only if the id is unknown.

        Raises:
            Unreachable: the provider does not answer, and no keys are cached, or only too old ones.
        """
        known = kid in self._keys and self._age_s() <= KEPT_S
        if self._should_fetch(kid):
            self._tried_s = self._clock.monotonic_s()
            self._fetching = asyncio.create_task(self._fetch())
        if not known and self._fetching is not None:
            await asyncio.shield(self._fetching)
        if self._age_s() > KEPT_S:
            hint = "is NOETL_OIDC_ISSUER right? API tokens of this gateway still work"
            message = f"cannot get the keys of the identity provider {redact_urls(self._issuer)}: {self._failure}"
            raise Unreachable(message, hint=hint)
        return self._keys.get(kid)

    async def close(self) -> None:
        if self._fetching is not None:
            await end_tasks([self._fetching])
        while self._sessions:
            await self._sessions.popitem()[1].close()

    def _should_fetch(self, kid: str | None) -> bool:
        if (self._fetching is not None and not self._fetching.done()) or (
            kid in self._keys and self._age_s() <= FRESH_S
        ):
            return False
        wait_s = REFETCH_AFTER_S if self._failure is None else RETRY_AFTER_S
        return self._tried_s is None or self._clock.monotonic_s() - self._tried_s >= wait_s

    def _age_s(self) -> float:
        return float("inf") if self._fetched_s is None else self._clock.monotonic_s() - self._fetched_s

    async def _fetch(self) -> None:
        try:
            document = await self._document(self._jwks_url or await self._discover_keys_url())
        except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as error:
            self._failure = redact_urls(str(error)) if isinstance(error, aiohttp.InvalidURL) else str(error)
            self._failure = self._failure or type(error).__name__
            log.warning("cannot get the keys of the identity provider %s: %s", redact_urls(self._issuer), self._failure)
            return
        self._keys = _keys_in(document)
        self._fetched_s = self._clock.monotonic_s()
        self._failure = None

    async def _discover_keys_url(self) -> str:
        document = await self._document(self._issuer.rstrip("/") + "/.well-known/openid-configuration")
        if document.get("issuer") != self._issuer:
            raise ValueError(f"its discovery document names the issuer {document.get('issuer')!r}")
        url = document.get("jwks_uri")
        # A provider reached over https must not redirect to an address without it.
        if not isinstance(url, str) or urlsplit(url).scheme not in ("https", urlsplit(self._issuer).scheme):
            raise ValueError("its discovery document has no safe jwks_uri")
        return url

    async def _document(self, url: str) -> dict[str, Any]:
        async with self._session_for(url).get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"{redact_urls(url)} answers {response.status}")
            data = bytearray()
            async for chunk in response.content.iter_any():
                data += chunk
                if len(data) > MAX_DOCUMENT_BYTES:
                    raise ValueError(f"{redact_urls(url)} answers with more than {MAX_DOCUMENT_BYTES} bytes")
        document = json.loads(data)
        if not isinstance(document, dict):
            raise ValueError(f"{redact_urls(url)} does not answer with a JSON object")
        return document

    def _session_for(self, url: str) -> aiohttp.ClientSession:
        reach = Reach.OWN if urlsplit(url).hostname in self._chosen_hosts else Reach.ALLOWED
        if reach not in self._sessions:
            self._sessions[reach] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(socket_factory=self._egress.sockets(reach=reach)),
                timeout=aiohttp.ClientTimeout(total=FETCH_TIMEOUT_S),
            )
        return self._sessions[reach]


def _keys_in(document: Mapping[str, Any]) -> dict[str | None, SigningKey]:
    """Parses the keys for signatures by supported algorithms."""
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
            log.warning("cannot use a key of the identity provider: %s", error)
    return found
