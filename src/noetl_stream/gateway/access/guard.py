"""Access control: every call of a route passes :meth:`AccessGuard.handle`."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler

from noetl_stream.errors import Forbidden, NoetlError, Unauthenticated, Unreachable, UsageError
from noetl_stream.gateway.access.attempts import Attempts
from noetl_stream.gateway.access.audit import Auditor
from noetl_stream.gateway.http.connections import address_group
from noetl_stream.model.roles import Role, suffices
from noetl_stream.ports.access import Authenticator, Caller, Tokens
from noetl_stream.ports.clock import Clock

CALLER: Final = web.RequestKey("caller", Caller)
"""The caller: handlers read ``request[CALLER].principal`` for ``by``."""

LOOKED_AT_EVERY_S: Final = 5.0
"""How often at most the token of a stream is checked again."""


class Admission:
    """The credentials of a call, which a long stream checks again and again."""

    def __init__(self, authenticator: Authenticator, authorization: str | None, clock: Clock) -> None:
        self._authenticator = authenticator
        self._authorization = authorization
        self._clock = clock
        self._looked_s = clock.monotonic_s()

    async def look_again(self) -> None:
        """To be called before each part of a stream.

        Raises:
            Unauthenticated, Forbidden: the token is no longer valid.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s >= LOOKED_AT_EVERY_S:
            self._looked_s = now_s
            with suppress(Unreachable):  # it was valid, and nothing says otherwise
                await self._authenticator.caller(self._authorization)


Prepare: TypeAlias = Callable[[web.Request], Awaitable[Handler]]
Admitted: TypeAlias = Callable[[Caller], AbstractContextManager[None]]

ADMISSION: Final = web.RequestKey("admission", Admission)


class AccessGuard:
    """Admits calls or rejects them, and keeps the audit. The handler of each route calls it, inside the middleware that
    turns errors into problems.

    Args:
        open_to_all: Whether callers without a token are admitted (:func:`decide_open_mode`). Any page in a browser
            could then use it, so calls from pages of other origins are rejected.
    """

    def __init__(self, authenticator: Authenticator, auditor: Auditor, clock: Clock, *, open_to_all: bool) -> None:
        self._authenticator = authenticator
        self._auditor = auditor
        self._clock = clock
        self._open_to_all = open_to_all
        self._attempts = Attempts(clock)

    async def handle(
        self,
        request: web.Request,
        prepare: Prepare,
        *,
        least: Role,
        operation: str,
        changes: bool,
        admitted: Admitted,
    ) -> web.StreamResponse:
        """The answer of the handler that ``prepare`` returns, with :data:`CALLER` and :data:`ADMISSION` set. Public
        routes do not come here.

        Args:
            prepare: Reads the request, and returns what performs it.
            least: The lowest role that may call it.
            operation: The route's operation id.
            changes: Whether the call changes something: it is recorded before it is done, and rejected if it
                cannot be. Refusals are recorded too, except those that come after that record.
            admitted: Entered for a known caller: bounds what it has under way.

        Raises:
            Unauthenticated: answer 401, with ``WWW-Authenticate: Bearer``.
            Forbidden: the role is too low, or the call comes from another origin.
            Unreachable: the database or the identity provider is away.
            TooBusy: as of ``admitted``, or too many credentials from this address were wrong.
        """
        caller: Caller | None = None
        with ExitStack() as under_way:
            try:
                if self._open_to_all:
                    require_own_origin(request)
                caller = request[CALLER] = await self._caller(request)
                if not suffices(caller.role, least):
                    raise Forbidden(f"{operation} needs the role {least}; {caller.principal} has {caller.role}")
                under_way.enter_context(admitted(caller))
                perform = await prepare(request)
                if not changes:
                    return await perform(request)
            except NoetlError as error:
                await self._auditor.refused(request, operation, caller, error)
                raise
            return await self._auditor.recorded(request, operation, caller, perform)

    async def _caller(self, request: web.Request) -> Caller:
        authorization, address = _authorization(request), address_group(request.remote)
        self._attempts.begin(address, authorization)
        try:
            caller = await self._authenticator.caller(authorization)
        except Unauthenticated:
            self._attempts.wrong(authorization)
            raise
        self._attempts.right(address, authorization)
        request[ADMISSION] = Admission(self._authenticator, authorization, self._clock)
        return caller


def require_own_origin(request: web.Request) -> None:
    """Rejects what a browser sends for a page of another origin: such a page reaches whatever its reader can reach.

    A page whose own name was turned to our address (DNS rebinding) comes with that name as ``Host``. Nobody can turn
    an address, or a name without a dot.

    Raises:
        Forbidden: it comes from another origin.
    """
    host = request.headers.get("Host", "")
    if not _cannot_be_rebound(host):
        hint = "use its address, or close it: NOETL_GATEWAY_AUTH=required"
        raise Forbidden(f"an open gateway cannot be called by the name {host!r}", hint=hint)
    origin = request.headers.get("Origin")
    own = origin is None or origin.partition("://")[2] == host
    if not own or request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
        raise Forbidden("an open gateway rejects calls from pages of other origins", hint="use tokens instead")


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
        raise Unauthenticated("two Authorization headers were sent")
    return found[0] if found else None


Wish = Literal["open", "required"]
"""``NOETL_GATEWAY_AUTH``: ``open`` admits everybody as admin, ``required`` needs a token on any address."""


class OpenMode(NamedTuple):
    """``sentence`` is shown when the gateway starts."""

    open_to_all: bool
    sentence: str


async def decide_open_mode(host: str, wish: Wish | None, tokens: Tokens, now_ms: int, *, provider: bool) -> OpenMode:
    """Whether a gateway admits callers without a token: on a loopback address by default, nowhere else.

    Args:
        host: What it listens on; empty: every address.
        wish: The operator's setting, if any.
        provider: Whether an identity provider is configured, which closes the gateway.

    Raises:
        UsageError: it would be closed, and no token could open it.
    """
    if wish == "open" or (wish is None and not provider and _is_loopback(host)):
        warning = "" if _is_loopback(host) else ": anyone who can reach this address may do everything"
        return OpenMode(True, f"open: callers without a token are admin `local`{warning}")
    if provider:
        return OpenMode(False, "closed: callers need a token of this gateway or of the identity provider")
    if any(token.role == "admin" and token.holds(now_ms) for token in await tokens.list_all()):
        return OpenMode(False, "closed: callers need a token")
    raise UsageError(
        f"a gateway on {host or 'every address'} is closed, and no admin token exists to open it",
        hint="create one: `noetl-stream token create NAME --role admin`; or configure NOETL_OIDC_ISSUER; or, where "
        "everyone who can reach it may do everything, set NOETL_GATEWAY_AUTH=open",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
