"""The caller behind an ``Authorization`` header: an API token of ours, or a token of the identity provider."""

from __future__ import annotations

import logging
from hmac import compare_digest
from typing import Final, NamedTuple

from noetl_stream.errors import Unauthenticated, Unreachable
from noetl_stream.lru import LruCache
from noetl_stream.ports.access import TOKEN_TEXT, Caller, IdentityProvider, StoredToken, Tokens, hash_of
from noetl_stream.ports.clock import Clock

log = logging.getLogger(__name__)

CACHED_S: Final = 2.0
"""How long a token is cached, and so how long a revoked one may still be valid."""

CACHED_TOKENS: Final = 10_000
USE_NOTED_EVERY_MS: Final = 60_000
MAX_BEARER_CHARACTERS: Final = 16 * 1024

LOCAL: Final = Caller("local", "admin")
"""A caller without a token on an open gateway."""

_HINT: Final = "send `Authorization: Bearer <token>`; create one with `noetl-stream token create`"


class _Cached(NamedTuple):
    until_s: float
    token: StoredToken | None


class Authentication:
    """An :class:`~noetl_stream.ports.access.Authenticator`.

    A token is checked even on an open gateway: its owner's name then appears in events and audit.

    Args:
        provider: The issuer of tokens that are not ours; ``None`` if there is none.
        anonymous: A caller without a token; ``None``: rejected.
    """

    def __init__(
        self, tokens: Tokens, clock: Clock, provider: IdentityProvider | None = None, anonymous: Caller | None = None
    ) -> None:
        self._tokens = tokens
        self._clock = clock
        self._provider = provider
        self._anonymous = anonymous
        self._cached: LruCache[str, _Cached] = LruCache(CACHED_TOKENS)

    async def caller(self, authorization: str | None) -> Caller:
        """See :meth:`noetl_stream.ports.access.Authenticator.caller`."""
        if authorization is None:
            if self._anonymous is None:
                raise Unauthenticated("a token is required", hint=_HINT)
            return self._anonymous
        scheme, _, bearer = authorization.partition(" ")
        bearer = bearer.strip()
        if scheme.lower() != "bearer" or not bearer:
            raise Unauthenticated("the Authorization header is not a bearer token", hint=_HINT)
        if not bearer.isascii() or len(bearer) > MAX_BEARER_CHARACTERS:
            raise Unauthenticated("malformed token")
        if bearer.startswith("noetl_"):
            return await self._owner(bearer)
        if self._provider is None:
            raise Unauthenticated("this is not a token of this gateway", hint="those begin with `noetl_`")
        return await self._provider.caller(bearer)

    async def _owner(self, bearer: str) -> Caller:
        spelt = TOKEN_TEXT.fullmatch(bearer)
        token = await self._lookup(spelt[1]) if spelt else None
        if spelt is None or token is None or not compare_digest(hash_of(spelt[2]), token.secret_hash):
            raise Unauthenticated("unknown token", hint="check that it is complete; a lost token cannot be shown again")
        now_ms = self._clock.now_ms()
        if not token.holds(now_ms):
            word = "has expired" if token.revoked_ms is None else "was revoked"
            raise Unauthenticated(f"the token {token.name} ({token.id}) {word}", hint="ask an admin for another")
        await self._note_use(token, now_ms)
        return Caller(f"token:{token.name}", token.role, token.paths)

    async def _lookup(self, token_id: str) -> StoredToken | None:
        """The token, cached briefly; so is its absence: nobody knows an id before it is created."""
        now_s = self._clock.monotonic_s()
        known = self._cached.get(token_id)
        if known is not None and now_s < known.until_s:
            return known.token
        token = await self._tokens.get(token_id)
        self._cached.put(token_id, _Cached(now_s + CACHED_S, token))
        return token

    async def _note_use(self, token: StoredToken, now_ms: int) -> None:
        before_ms = now_ms - USE_NOTED_EVERY_MS
        if token.last_used_ms is not None and token.last_used_ms >= before_ms:
            return
        known = self._cached.get(token.id)
        if known is not None:  # set first, so that concurrent calls note it once
            self._cached.put(token.id, known._replace(token=token._replace(last_used_ms=now_ms)))
        try:
            await self._tokens.use(token.id, now_ms, before_ms)
        except Unreachable as error:
            log.warning("the use of token %s was not noted: %s", token.id, error)
