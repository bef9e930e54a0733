"""The door of the gateway: every call of a route passes :meth:`AccessGuard.handle`, which knows who may."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from noetl_stream.errors import Forbidden, Unauthenticated, Unreachable
from noetl_stream.gateway.access.audit import Auditor
from noetl_stream.model.roles import Role, suffices
from noetl_stream.ports.access import Authenticator, Caller
from noetl_stream.ports.clock import Clock

CALLER: Final = web.RequestKey("caller", Caller)
"""Who calls: handlers read ``request[CALLER].principal`` for ``by``."""

LOOKED_AT_EVERY_S: Final = 5.0
"""How often at most the token of a stream is looked at again."""


class Admission:
    """What a caller has shown, as a stream that goes on for long has to look at it again."""

    def __init__(self, authenticator: Authenticator, authorization: str | None, clock: Clock) -> None:
        self._authenticator = authenticator
        self._authorization = authorization
        self._clock = clock
        self._looked_s = clock.monotonic_s()

    async def look_again(self) -> None:
        """To be called before each part of a stream.

        Raises:
            Unauthenticated, Forbidden: it holds no longer.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s >= LOOKED_AT_EVERY_S:
            self._looked_s = now_s
            with suppress(Unreachable):  # it held, and nobody says otherwise
                await self._authenticator.caller(self._authorization)


ADMISSION: Final = web.RequestKey("admission", Admission)


class AccessGuard:
    """Lets calls in, or not, and keeps the audit. A middleware of the route table calls it, inside the one that makes
    problems of errors::

        return await guard.handle(request, handler, least=route.least, operation=route.operation_id, changes=...)

    Args:
        open_to_all: Whether callers without a token are let in (:mod:`..open_mode`). Then a browser
            could be used by any page it shows, so calls from pages of other origins are refused.
    """

    def __init__(self, authenticator: Authenticator, auditor: Auditor, clock: Clock, *, open_to_all: bool) -> None:
        self._authenticator = authenticator
        self._auditor = auditor
        self._clock = clock
        self._open_to_all = open_to_all

    async def handle(
        self, request: web.Request, handler: Handler, *, least: Role, operation: str, changes: bool
    ) -> web.StreamResponse:
        """The handler's answer, with :data:`CALLER` and :data:`ADMISSION` set. Public routes do not come here.

        Args:
            least: The least role that may.
            operation: The route's operation id.
            changes: Whether the call changes something: it is put on record before it is done, and refused if it
                cannot be. Refusals are always recorded, also those that the handler raises.

        Raises:
            Unauthenticated: answer 401, with ``WWW-Authenticate: Bearer``.
            Forbidden: the role is too low, or the call comes from another origin.
            Unreachable, TooBusy: the database or the identity provider is away, or too many are being refused.
        """
        caller: Caller | None = None
        try:
            if self._open_to_all:
                require_own_origin(request)
            authorization = _authorization(request)
            caller = await self._authenticator.caller(authorization)
            if not suffices(caller.role, least):
                raise Forbidden(f"{operation} needs the role {least}, {caller.principal} is {caller.role}")
            request[CALLER] = caller
            request[ADMISSION] = Admission(self._authenticator, authorization, self._clock)
            if not changes:
                return await handler(request)
        except (Unauthenticated, Forbidden) as error:
            await self._auditor.refused(request, operation, caller, error)
            raise
        return await self._auditor.recorded(request, operation, caller, handler)


def require_own_origin(request: web.Request) -> None:
    """Refuses what a browser sends for a page of another origin: such a page acts with what its reader may reach.

    A page whose own name was turned to our address (DNS rebinding) comes with that name as ``Host``. Nobody can turn
    an address, or a name without a dot.

    Raises:
        Forbidden: as said.
    """
    host = request.headers.get("Host", "")
    if not _cannot_be_rebound(host):
        hint = "use its address, or close it: NOETL_GATEWAY_AUTH=required"
        raise Forbidden(f"an open gateway is not called by the name {host!r}", hint=hint)
    origin = request.headers.get("Origin")
    own = origin is None or origin.partition("://")[2] == host
    if not own or request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        raise Forbidden("an open gateway takes no calls from pages of other origins", hint="use tokens instead")


def _cannot_be_rebound(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return is_address(name) or (name != "" and "." not in name)


def is_address(name: str) -> bool:
    """Whether this is an IP address, and no name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _authorization(request: web.Request) -> str | None:
    found = request.headers.getall("Authorization", [])
    if len(found) > 1:
        raise Unauthenticated("there are two Authorization headers")
    return found[0] if found else None
