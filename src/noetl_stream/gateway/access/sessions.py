"""Browser sessions: a token makes a code, a browser exchanges the code for a session with the rights of the token."""

from __future__ import annotations

from typing import Final, NamedTuple

from noetl_stream.errors import Unauthenticated
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.identities import SESSION_TEXT, Sessions, StoredCode, StoredSession, hash_of

CODE_MS: Final = 10 * 60 * 1000
"""How long a code may be exchanged. It goes through a terminal, and perhaps a history of addresses."""

SESSION_MS: Final = 12 * 3600 * 1000

_HINT: Final = "`noetl-stream sign-in` prints a link with a new one"


class NewCode(NamedTuple):
    code: str
    expires_ms: int


class NewSession(NamedTuple):
    """Attributes:
    cookie: The text of the cookie.
    csrf_token: What changes need beside the cookie. Browsers share cookies among all ports of a host, and so with
        programs of other users of the machine; this is known to pages of the origin alone.
    """

    cookie: str
    csrf_token: str
    expires_ms: int


class SignIns:
    """Makes codes and sessions, and ends sessions."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock

    async def create_code(self, token_id: str) -> NewCode:
        """A code for one session with the rights of this token."""
        now_ms = self._clock.now_ms()
        code = self._secret()
        await self._sessions.add_code(StoredCode(hash_of(code), token_id, now_ms, now_ms + CODE_MS))
        return NewCode(code, now_ms + CODE_MS)

    async def sign_in(self, code: str) -> NewSession:
        """Exchanges a code for a session, once.

        Raises:
            Unauthenticated: the code is unknown, was used, or has expired.
        """
        now_ms = self._clock.now_ms()
        new = NewSession(self._secret(), self._secret(), now_ms + SESSION_MS)
        stored = StoredSession(hash_of(new.cookie), hash_of(new.csrf_token), "", now_ms, new.expires_ms)
        if SESSION_TEXT.fullmatch(code) is None or await self._sessions.redeem(hash_of(code), stored) is None:
            raise Unauthenticated("this sign-in code was used already, has expired, or never was one", hint=_HINT)
        return new

    async def sign_out(self, session_hash: bytes) -> None:
        await self._sessions.end(session_hash)

    def _secret(self) -> str:
        return self._clock.random_bytes(32).hex()
