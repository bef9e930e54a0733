"""The public keys of an OpenID Connect provider, fetched and remembered (OpenID Connect Discovery 1.0, RFC 7517)."""

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
from noetl_stream.errors import Unreachable
from noetl_stream.ports.clock import Clock

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
            await end_tasks([self._asking])
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
