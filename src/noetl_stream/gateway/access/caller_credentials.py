"""What a request shows of its caller: the ``Authorization`` header, or the cookie of a browser session.

A browser adds the cookie to whatever any page sends here. So the cookie counts only in requests of pages of this very
origin, and for changes only together with a text that such a page alone knows.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from noetl_stream.errors import Forbidden, Unauthenticated
from noetl_stream.gateway.access.network import host_of, is_loopback
from noetl_stream.ports.stores.identities import CallCredentials

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
    """Rejects what a browser sends for a page of another origin. A change must say which page it comes from.

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
    """``Set-Cookie`` for a session. With 0 s it removes the cookie.

    Browsers send a cookie to every port of a host, so its name has the port: gateways of one machine do not replace
    each other's. Without TLS it is accepted for loopback addresses alone.
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
