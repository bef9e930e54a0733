"""The caller of a request: the host that it addresses, the address it comes from, and who is behind its credentials: an
API token, a browser session of one, or a token of the identity provider.

A name can be made to resolve to any address (DNS rebinding), an IP address cannot. A request is therefore admitted only
if its ``Host`` is ``localhost``, an IP address to which it can have been sent, or a configured name. Anybody can send
the headers in which proxies report the client, so they count only from a configured proxy; from any other sender they
show that an unknown proxy is in front.

A token creates a code, which a browser exchanges for a session with the rights of the token. A browser adds the
session's cookie to the requests of any page. The cookie therefore counts only in requests of pages of this very origin,
and for changes only with a text that only such a page knows.
"""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass
from hmac import compare_digest
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from aiohttp import web
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
    StoredCode,
    StoredSession,
    StoredToken,
    Tokens,
    hash_of,
)
from noetl_stream.settings.gateway_settings import IpNetwork

FORWARDED: Final = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
FORWARDED_PREFIXES: Final = ("x-forwarded-", "x-original-")

_CLIENT: Final = web.RequestKey("client", str)


@dataclass(frozen=True, slots=True)
class Network:
    """
    Attributes:
        hosts: Names that resolve to this gateway, in lower case.
        proxies: The proxies whose forwarded headers count.
    """

    hosts: frozenset[str] = frozenset()
    proxies: tuple[IpNetwork, ...] = ()

    def admit(self, request: web.Request) -> None:
        """Checks the host and the sender of a request; :func:`client_of` then knows the client.

        Raises:
            Forbidden: it addresses another host, or was forwarded by an unknown proxy.
        """
        peer = request.remote or ""
        if not self.trusts(peer):
            _refuse_forwarded(request)
        elif clients := request.headers.getall("X-Forwarded-For", []):
            request[_CLIENT] = self._client(",".join(clients), peer)
        self._require_host(request)

    def trusts(self, address: str) -> bool:
        found = _ip(address)
        return found is not None and any(found in network for network in self.proxies)

    def _client(self, forwarded_for: str, peer: str) -> str:
        """The client by ``X-Forwarded-For``. Each proxy appends its sender; anything left of that may be forged."""
        client = peer
        for part in reversed(forwarded_for.split(",")):
            found = _ip(part.strip())
            if found is None:
                raise Forbidden("X-Forwarded-For does not end with an IP address", hint="check the proxy's settings")
            client = str(found)
            if not self.trusts(client):
                break
        return client

    def _require_host(self, request: web.Request) -> None:
        given = request.headers.getall("Host", [])
        name = _host_name(given[0]) if len(given) == 1 else ""
        if name == "localhost" or name in self.hosts or (name and _can_be_sent_to(name, request)):
            return
        shown = given[0][:100] if len(given) == 1 else ""
        hint = "use its IP address, or list the name in NOETL_GATEWAY_HOSTS"
        raise Forbidden(f"this gateway is not called {shown!r}", hint=hint)


def client_of(request: web.Request) -> str:
    """The IP address of the client: the sender's, or the one reported by a trusted proxy; "" if unknown."""
    client: str = request.get(_CLIENT, request.remote or "")
    return client


def host_of(request: web.Request) -> str:
    """The ``Host`` header."""
    return request.headers.get("Host", "")


def is_loopback(host: str) -> bool:
    """Whether this host, perhaps with a port, is always the user's own machine."""
    name = _host_name(host)
    found = _ip(name)
    return name == "localhost" or (found is not None and found.is_loopback)


def _refuse_forwarded(request: web.Request) -> None:
    for name in request.headers:
        if name.lower() in FORWARDED or name.lower().startswith(FORWARDED_PREFIXES):
            hint = "list the proxy's address in NOETL_GATEWAY_TRUSTED_PROXIES, if this gateway is to serve its clients"
            raise Forbidden(f"a proxy that is not trusted has sent {name}", hint=hint)


def _can_be_sent_to(name: str, request: web.Request) -> bool:
    """Whether this is an IP address that can lead to the connection of the request.

    On loopback, only loopback addresses can; elsewhere any can, since addresses may be translated on the way.
    """
    asked, own = _ip(name), _ip(_own_address(request))
    if asked is None or own is None:
        return False
    return asked.is_loopback or not own.is_loopback


def _own_address(request: web.Request) -> str:
    sock = request.transport.get_extra_info("sockname") if request.transport is not None else None
    return str(sock[0]) if sock else ""


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


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
        is_own = csrf_token is None or (csrf_token.isascii() and compare_digest(hash_of(csrf_token), session.csrf_hash))
        if not is_own:
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


CODE_MS: Final = 10 * 60 * 1000
"""The time in which a code may be exchanged. It passes through a terminal, and perhaps a history of addresses."""

SESSION_MS: Final = 12 * 3600 * 1000

_SIGN_IN_HINT: Final = "`noetl-stream sign-in` prints a link with a new one"


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
            message = "this sign-in code was used already, has expired, or never was one"
            raise Unauthenticated(message, hint=_SIGN_IN_HINT)
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
