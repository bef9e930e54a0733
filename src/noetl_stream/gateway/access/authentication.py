"""The caller behind credentials: an API token, a browser session of one, or a token of the identity provider."""

from __future__ import annotations

import logging
from hmac import compare_digest
from typing import Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.errors import Forbidden, Unauthenticated, Unreachable
from noetl_stream.lru import LruCache
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.identities import (
    SESSION_TEXT,
    TOKEN_TEXT,
    CallCredentials,
    Caller,
    IdentityProvider,
    Sessions,
    StoredSession,
    StoredToken,
    Tokens,
    hash_of,
)

log = logging.getLogger(__name__)

CACHED_S: Final = 2.0
"""The time for which a token is cached, and for which a revoked one may therefore still be valid."""

CACHED_TOKENS: Final = 10_000
USE_NOTED_EVERY_MS: Final = 60_000
MAX_BEARER_CHARACTERS: Final = 16 * 1024

_HINT: Final = "send `Authorization: Bearer <token>`; create one with `noetl-stream token create`"


class _Cached(NamedTuple):
    until_s: float
    token: StoredToken | None


class Authentication:
    """An :class:`~noetl_stream.ports.stores.identities.Authenticator`.

    Args:
        provider: The identity provider; ``None`` if there is none.
    """

    def __init__(
        self, tokens: Tokens, sessions: Sessions, clock: Clock, provider: IdentityProvider | None = None
    ) -> None:
        self._tokens = tokens
        self._sessions = sessions
        self._clock = clock
        self._provider = provider
        self._cached: LruCache[str, _Cached] = LruCache(CACHED_TOKENS)

    async def caller(self, credentials: CallCredentials) -> Caller:
        """See :meth:`noetl_stream.ports.stores.identities.Authenticator.caller`."""
        if credentials.authorization is not None:
            return await self._bearer(credentials.authorization)
        if credentials.session is not None:
            return await self._signed_in(credentials.session, credentials.csrf_token)
        raise Unauthenticated("a token is required", hint=_HINT)

    async def _bearer(self, authorization: str) -> Caller:
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
        return await self._caller(token)

    async def _signed_in(self, cookie: str, csrf_token: str | None) -> Caller:
        session = await self._sessions.get(hash_of(cookie)) if SESSION_TEXT.fullmatch(cookie) else None
        if session is None or session.expires_ms <= self._clock.now_ms():
            raise Unauthenticated("the browser session has ended", hint="`noetl-stream sign-in` prints a new link")
        if csrf_token is not None and not _proves(csrf_token, session):
            hint = "send the csrf_token of the sign-in in X-CSRF-Token"
            raise Forbidden("a browser session needs its CSRF token to change something", hint=hint)
        token = await self._lookup(session.token_id)
        if token is None:
            raise Unauthenticated("the token of the browser session is gone")
        caller = await self._caller(token)
        expires_ms = min(session.expires_ms, token.expires_ms or session.expires_ms)
        return replace(caller, session=session.session_hash, expires_ms=expires_ms)

    async def _caller(self, token: StoredToken) -> Caller:
        now_ms = self._clock.now_ms()
        if not token.holds(now_ms):
            word = "has expired" if token.revoked_ms is None else "was revoked"
            raise Unauthenticated(f"the token {token.name} ({token.id}) {word}", hint="ask an admin for another")
        await self._note_use(token, now_ms)
        return Caller(f"token:{token.name}", token.role, token.paths, f"token:{token.id}", expires_ms=token.expires_ms)

    async def _lookup(self, token_id: str) -> StoredToken | None:
        """The token, or its absence, cached briefly: nobody knows an id before it is created."""
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
            self._cached.put(token.id, known._replace(token=replace(token, last_used_ms=now_ms)))
        try:
            await self._tokens.use(token.id, now_ms, before_ms)
        except Unreachable as error:
            log.warning("the use of token %s was not noted: %s", token.id, error)


def _proves(csrf_token: str, session: StoredSession) -> bool:
    return csrf_token.isascii() and compare_digest(hash_of(csrf_token), session.csrf_hash)
