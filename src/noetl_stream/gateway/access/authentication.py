"""Who shows an ``Authorization`` header: an API token of ours, or a token of the identity provider."""

from __future__ import annotations

import logging
from hmac import compare_digest
from typing import Final, NamedTuple

from noetl_stream.errors import Unauthenticated, Unreachable
from noetl_stream.lru import LruCache
from noetl_stream.ports.access import TOKEN_TEXT, Caller, IdentityProvider, StoredToken, Tokens, hash_of
from noetl_stream.ports.clock import Clock

log = logging.getLogger(__name__)

REMEMBERED_S: Final = 2.0
"""How long a token is not looked up again, and so how long a revoked one may still hold."""

REMEMBERED_TOKENS: Final = 10_000
USE_NOTED_EVERY_MS: Final = 60_000
MAX_BEARER_CHARACTERS: Final = 16 * 1024

LOCAL: Final = Caller("local", "admin")
"""Who a caller without a token is on an open gateway."""

_SHOW_ONE: Final = "send `Authorization: Bearer <token>`; `noetl-stream token create` makes one"


class _Remembered(NamedTuple):
    until_s: float
    token: StoredToken | None


class Authentication:
    """An :class:`~noetl_stream.ports.access.Authenticator`.

    A token that is shown is looked at even on an open gateway: then its owner's name stands in events and audit.

    Args:
        provider: Who issues tokens that are not ours; ``None``: nobody does.
        nobody: Who a caller without a token is; ``None``: refused.
    """

    def __init__(
        self, tokens: Tokens, clock: Clock, provider: IdentityProvider | None = None, nobody: Caller | None = None
    ) -> None:
        self._tokens = tokens
        self._clock = clock
        self._provider = provider
        self._nobody = nobody
        self._remembered: LruCache[str, _Remembered] = LruCache(REMEMBERED_TOKENS)

    async def caller(self, authorization: str | None) -> Caller:
        """See :meth:`noetl_stream.ports.access.Authenticator.caller`."""
        if authorization is None:
            if self._nobody is None:
                raise Unauthenticated("this needs a token", hint=_SHOW_ONE)
            return self._nobody
        scheme, _, bearer = authorization.partition(" ")
        bearer = bearer.strip()
        if scheme.lower() != "bearer" or not bearer:
            raise Unauthenticated("the Authorization header is no bearer token", hint=_SHOW_ONE)
        if not bearer.isascii() or len(bearer) > MAX_BEARER_CHARACTERS:
            raise Unauthenticated("this is no token")
        if bearer.startswith("noetl_"):
            return await self._owner(bearer)
        if self._provider is None:
            raise Unauthenticated("this is no token of this gateway", hint="those begin with `noetl_`")
        return await self._provider.caller(bearer)

    async def _owner(self, bearer: str) -> Caller:
        spelt = TOKEN_TEXT.fullmatch(bearer)
        token = await self._lookup(spelt[1]) if spelt else None
        if spelt is None or token is None or not compare_digest(hash_of(spelt[2]), token.secret_hash):
            raise Unauthenticated("there is no such token", hint="is it whole? a lost one cannot be shown again")
        now_ms = self._clock.now_ms()
        if not token.holds(now_ms):
            word = "has expired" if token.revoked_ms is None else "was revoked"
            raise Unauthenticated(f"the token {token.name} ({token.id}) {word}", hint="ask an admin for another")
        await self._note_use(token, now_ms)
        return Caller(f"token:{token.name}", token.role, token.paths)

    async def _lookup(self, token_id: str) -> StoredToken | None:
        """The token, remembered for a moment. So is that there is none: nobody knows an id before it is made."""
        now_s = self._clock.monotonic_s()
        known = self._remembered.get(token_id)
        if known is not None and now_s < known.until_s:
            return known.token
        token = await self._tokens.get(token_id)
        self._remembered.put(token_id, _Remembered(now_s + REMEMBERED_S, token))
        return token

    async def _note_use(self, token: StoredToken, now_ms: int) -> None:
        before_ms = now_ms - USE_NOTED_EVERY_MS
        if token.last_used_ms is not None and token.last_used_ms >= before_ms:
            return
        known = self._remembered.get(token.id)
        if known is not None:  # said before it is done, so that calls at once note it once
            self._remembered.put(token.id, known._replace(token=token._replace(last_used_ms=now_ms)))
        try:
            await self._tokens.use(token.id, now_ms, before_ms)
        except Unreachable as error:
            log.warning("that the token %s was used is not noted: %s", token.id, error)
