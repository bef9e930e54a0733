"""Browser sessions: a token creates a code, which a browser exchanges for a session with the rights of the token.

A browser adds the session's cookie to the requests of any page. The cookie therefore counts only in requests of pages
of this very origin, and for changes only with a text that only such a page knows.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import web

from noetl_stream.errors import Forbidden, Unauthenticated
from noetl_stream.gateway.access.network import host_of, is_loopback
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.identities import (
    SESSION_TEXT,
    CallCredentials,
    Sessions,
    StoredCode,
    StoredSession,
    hash_of,
)

CODE_MS: Final = 10 * 60 * 1000
"""The time in which a code may be exchanged. It passes through a terminal, and perhaps a history of addresses."""

SESSION_MS: Final = 12 * 3600 * 1000

_HINT: Final = "`noetl-stream sign-in` prints a link with a new one"


class NewCode(NamedTuple):
    code: str
    expires_ms: int


class NewSession(NamedTuple):
    """Attributes:
    cookie: The text of the cookie.
    csrf_token: The token that changes need in addition to the cookie. Browsers share cookies among all ports of a host,
        and so with programs of other users of the machine; the token is known only to pages of the origin.
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


CSRF_HEADER: Final = "X-CSRF-Token"
COOKIE_PATH: Final = "/api"
READING: Final = frozenset({"GET", "HEAD"})


def credentials_of(request: web.Request) -> CallCredentials:
    """
    Raises:
        Unauthenticated: two ``Authorization`` headers.
        Forbidden: a cookie, from a page of another origin.
    """
    found = request.headers.getall("Authorization", [])
    if len(found) > 1:
        raise Unauthenticated("two Authorization headers were sent")
    if found:
        return CallCredentials(authorization=found[0])
    session = request.cookies.get(_cookie_name(host_of(request)))
    if session is None:
        return CallCredentials()
    require_own_page(request)
    csrf_token = None if request.method in READING else request.headers.get(CSRF_HEADER, "")
    return CallCredentials(session=session, csrf_token=csrf_token)


def require_own_page(request: web.Request) -> None:
    """Rejects requests that a browser sends for a page of another origin. A change must name its page.

    Raises:
        Forbidden: it comes from another origin, or does not say from which.
    """
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    is_own = origin is not None and is_own_origin(origin, host_of(request))
    if (origin is not None and not is_own) or site not in (None, "none", "same-origin"):
        raise Forbidden("pages of other origins may not use a browser session", hint="use a token")
    if request.method not in READING and not is_own and site != "same-origin":
        raise Forbidden("a browser session needs Origin or Sec-Fetch-Site to change something", hint="use a token")


def session_cookie(host: str, session: str, lifetime_s: int) -> str:
    """``Set-Cookie`` for a session; with 0 s it removes the cookie.

    Browsers send a cookie to every port of a host, so its name contains the port: gateways of one machine do not
    replace each other's. Without TLS it is accepted for loopback addresses only.
    """
    secure = "" if is_loopback(host) else "; Secure"
    attributes = f"Path={COOKIE_PATH}; Max-Age={lifetime_s}; HttpOnly; SameSite=Strict{secure}"
    return f"{_cookie_name(host)}={session}; {attributes}"


def _cookie_name(host: str) -> str:
    try:
        port = urlsplit(f"//{host}").port
    except ValueError:
        port = None
    return "noetl_session" if port is None else f"noetl_session_{port}"


def is_own_origin(origin: str, host: str) -> bool:
    """Whether a page of this ``Origin`` is one of this ``Host``."""
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and place.lower() == host.lower()
