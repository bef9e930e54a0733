"""Access control: every call of a route passes :meth:`AccessGuard.handle`."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from noetl_stream.errors import Forbidden, Unauthenticated, Unreachable, UsageError
from noetl_stream.gateway.access.audit import Auditor
from noetl_stream.gateway.access.credentials import credentials_of
from noetl_stream.gateway.access.network import Network
from noetl_stream.model.roles import Role, suffices
from noetl_stream.ports.access import Authenticator, CallCredentials, Caller, Tokens
from noetl_stream.ports.clock import Clock

CALLER: Final = web.RequestKey("caller", Caller)
"""The caller: handlers read ``request[CALLER].principal`` for ``by``."""

LOOKED_AT_EVERY_S: Final = 5.0
"""How often at most the token of a stream is checked again."""


class Admission:
    """The credentials of a call, which a long stream checks again and again."""

    def __init__(self, authenticator: Authenticator, credentials: CallCredentials, clock: Clock) -> None:
        self._authenticator = authenticator
        self._credentials = credentials
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
                await self._authenticator.caller(self._credentials)


ADMISSION: Final = web.RequestKey("admission", Admission)


class AccessGuard:
    """Admits calls or rejects them, and keeps the audit. The handler of each route calls it, inside the middleware that
    turns errors into problems::

        return await guard.handle(request, handler, least=route.least, operation=route.operation_id, changes=...)
    """

    def __init__(self, network: Network, authenticator: Authenticator, auditor: Auditor, clock: Clock) -> None:
        self.network = network
        self._authenticator = authenticator
        self._auditor = auditor
        self._clock = clock

    async def handle(
        self, request: web.Request, handler: Handler, *, least: Role, operation: str, changes: bool
    ) -> web.StreamResponse:
        """The handler's answer, with :data:`CALLER` and :data:`ADMISSION` set. Public routes do not come here.

        Args:
            least: The lowest role that may call it.
            operation: The route's operation id.
            changes: Whether the call changes something: it is recorded before it is done, and rejected if it
                cannot be. Refusals are always recorded, also those that the handler raises.

        Raises:
            Unauthenticated: answer 401, with ``WWW-Authenticate: Bearer``.
            Forbidden: the role is too low, or the call comes from another origin.
            Unreachable, TooBusy: the database or the identity provider is away, or too many are being refused.
        """
        caller: Caller | None = None
        try:
            self.network.admit(request)
            credentials = credentials_of(request)
            caller = await self._authenticator.caller(credentials)
            if not suffices(caller.role, least):
                raise Forbidden(f"{operation} needs the role {least}; {caller.principal} has {caller.role}")
            request[CALLER] = caller
            request[ADMISSION] = Admission(self._authenticator, credentials, self._clock)
            if not changes:
                return await handler(request)
        except (Unauthenticated, Forbidden) as error:
            await self._auditor.refused(request, operation, caller, error)
            raise
        return await self._auditor.recorded(request, operation, caller, handler)


async def require_way_in(host: str, tokens: Tokens, now_ms: int, *, provider: bool) -> None:
    """Checks, before a gateway starts, that somebody can use it.

    Args:
        host: What it is to listen on.
        provider: Whether an identity provider is configured.

    Raises:
        UsageError: nobody can.
    """
    if provider or any(token.role == "admin" and token.holds(now_ms) for token in await tokens.list_all()):
        return
    raise UsageError(
        f"nobody could use a gateway on {host or 'every address'}: there is no admin token",
        hint="create one: `noetl-stream token create NAME --role admin`; or configure NOETL_OIDC_ISSUER",
    )
