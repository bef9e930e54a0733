"""Access control: every call of a route passes :meth:`AccessGuard.handle`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from hashlib import sha256
from typing import Final, TypeAlias

from aiohttp import web
from aiohttp.typedefs import Handler

from noetl_stream.errors import Forbidden, NoetlError, Unauthenticated, Unreachable, UsageError
from noetl_stream.gateway.access.audit import Auditor
from noetl_stream.gateway.access.authentication import Network, client_of, credentials_of, require_own_page
from noetl_stream.gateway.http.budgets import REMEMBERED, LeakyBuckets
from noetl_stream.gateway.http.connections import address_group
from noetl_stream.lru import LruCache
from noetl_stream.model.rights import Role, includes_role
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.identities import BOOTSTRAP_PRINCIPAL, Authenticator, CallCredentials, Caller, Tokens

MOST_AT_ONCE: Final = 30
FORGOTTEN_PER_S: Final = 0.5


class CredentialAttempts:
    """The failed credentials of each address. Each new credential counts until it proves valid."""

    def __init__(self, clock: Clock) -> None:
        self._wrong = LeakyBuckets(clock, MOST_AT_ONCE, FORGOTTEN_PER_S)
        self._right: LruCache[bytes, bool] = LruCache(REMEMBERED)
        self._counted: LruCache[tuple[str, bytes], bool] = LruCache(REMEMBERED)

    def begin(self, address: str, authorization: str | None) -> None:
        """Must be called before a credential is checked.

        Raises:
            TooBusy: too many credentials at this address were wrong.
        """
        if authorization is None:
            return
        credential = _digest(authorization)
        if self._right.get(credential) or self._counted.get((address, credential)):
            return
        self.require_room(address)
        self._wrong.add(address)
        self._counted.put((address, credential), True)

    def require_room(self, address: str) -> None:
        """Raises :class:`~noetl_stream.errors.TooBusy` if too many credentials at this address were wrong."""
        self._wrong.require(address, "too many wrong credentials were sent from this address", "check the token")

    def guessed(self, address: str) -> None:
        """Counts a credential that can never be valid."""
        self._wrong.add(address)

    def right(self, address: str, authorization: str | None) -> None:
        """The credential was right."""
        if authorization is None:
            return
        credential = _digest(authorization)
        self._right.put(credential, True)
        if self._counted.get((address, credential)):
            self._counted.drop((address, credential))
            self._wrong.add(address, -1)

    def wrong(self, authorization: str | None) -> None:
        """The credential was wrong, or is no longer right."""
        if authorization is not None:
            self._right.drop(_digest(authorization))


def _digest(authorization: str) -> bytes:
    return sha256(authorization.encode(errors="surrogateescape")).digest()


CALLER: Final = web.RequestKey("caller", Caller)
"""The caller: handlers read ``request[CALLER].principal`` for ``by``."""

WAY_IN_AGAIN_S: Final = 1.0
"""The interval at which a gateway without any token looks for the first one."""

LOOKED_AT_EVERY_S: Final = 5.0
"""The shortest interval between checks of the token of a stream."""


class Admission:
    """The credentials of a call, which a long stream checks repeatedly."""

    def __init__(self, authenticator: Authenticator, credentials: CallCredentials, clock: Clock) -> None:
        self._authenticator = authenticator
        self._credentials = credentials
        self._clock = clock
        self._looked_s = clock.monotonic_s()

    async def look_again(self) -> None:
        """Must be called before each part of a stream.

        Raises:
            Unauthenticated, Forbidden: the token is no longer valid.
        """
        now_s = self._clock.monotonic_s()
        if now_s - self._looked_s >= LOOKED_AT_EVERY_S:
            self._looked_s = now_s
            with suppress(Unreachable):  # it was valid, and nothing contradicts that
                await self._authenticator.caller(self._credentials)


Prepare: TypeAlias = Callable[[web.Request], Awaitable[Handler]]
Admitted: TypeAlias = Callable[[Caller], AbstractContextManager[None]]

ADMISSION: Final = web.RequestKey("admission", Admission)


class AccessGuard:
    """Admits or rejects calls, and keeps the audit. The handler of each route calls it, inside the middleware that
    turns errors into problems.
    """

    def __init__(self, network: Network, authenticator: Authenticator, auditor: Auditor, clock: Clock) -> None:
        self.network = network
        self._authenticator = authenticator
        self._auditor = auditor
        self._clock = clock
        self._attempts = CredentialAttempts(clock)

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
        """Performs a call with :data:`CALLER` and :data:`ADMISSION` set; returns its answer. Public routes do not come
        here.

        Args:
            prepare: Reads the request, and returns the handler that performs it.
            least: The lowest role that may make the call.
            operation: The route's operation id.
            changes: Whether the call changes anything: it is then recorded before it is performed, and rejected if it
                cannot be recorded. Refusals are recorded too, except those after that record.
            admitted: Entered for a known caller; bounds its calls under way.

        Raises:
            Unauthenticated: answer 401, with ``WWW-Authenticate: Bearer``.
            Forbidden: the role is too low, or the call comes from another origin.
            Unreachable: the database or the identity provider is away.
            TooBusy: as for ``admitted``, or too many credentials from this address were wrong.
        """
        caller: Caller | None = None
        with ExitStack() as under_way:
            try:
                self.network.admit(request)
                caller = request[CALLER] = await self._caller(request)
                if not includes_role(caller.role, least):
                    raise Forbidden(f"{operation} needs the role {least}; {caller.principal} has {caller.role}")
                if caller.principal == BOOTSTRAP_PRINCIPAL and operation != "createToken":
                    hint = "create one of your own: `noetl-stream token create NAME --role admin`"
                    message = f"the bootstrap token only creates the token of an admin: no {operation}"
                    raise Forbidden(message, hint=hint)
                under_way.enter_context(admitted(caller))
                perform = await prepare(request)
                if not changes:
                    return await perform(request)
            except NoetlError as error:
                await self._auditor.refused(request, operation, caller, error)
                raise
            return await self._auditor.recorded(request, operation, caller, perform)

    async def handle_public(
        self, request: web.Request, handler: Handler, *, operation: str, changes: bool
    ) -> web.StreamResponse:
        """Performs a call that needs no token. A credential in its body counts like any other; errors and their record
        are those of :meth:`handle`.
        """
        try:
            self.network.admit(request)
            if changes:
                require_own_page(request)
                self._attempts.require_room(address_group(client_of(request)))
            return await handler(request)
        except NoetlError as error:
            if isinstance(error, Unauthenticated):
                self._attempts.guessed(address_group(client_of(request)))
            await self._auditor.refused(request, operation, None, error)
            raise

    async def _caller(self, request: web.Request) -> Caller:
        credentials, address = credentials_of(request), address_group(client_of(request))
        shown = credentials.authorization or credentials.session
        self._attempts.begin(address, shown)
        try:
            caller = await self._authenticator.caller(credentials)
        except Unauthenticated:
            self._attempts.wrong(shown)
            raise
        self._attempts.right(address, shown)
        request[ADMISSION] = Admission(self._authenticator, credentials, self._clock)
        return caller


async def until_way_in(
    host: str, tokens: Tokens, clock: Clock, *, provider: bool, waits: Callable[[str], object]
) -> None:
    """Waits until somebody can use a gateway. Calls ``waits`` with the missing right, if it has to wait."""
    is_told = False
    while True:
        try:
            return await require_way_in(host, tokens, clock.now_ms(), provider=provider)
        except UsageError as error:
            if not is_told:
                waits(error.message)
                is_told = True
        await clock.sleep(WAY_IN_AGAIN_S)


async def require_way_in(host: str, tokens: Tokens, now_ms: int, *, provider: bool) -> None:
    """Checks, before a gateway starts, that somebody can use it.

    Args:
        host: The host that it will listen on.
        provider: Whether an identity provider is configured.

    Raises:
        UsageError: nobody can.
    """
    if provider or any(token.role == "admin" and token.holds(now_ms) for token in await tokens.list_all()):
        return
    hint = "create one: `noetl-stream token create NAME --role admin`; or configure NOETL_OIDC_ISSUER"
    raise UsageError(f"nobody could use a gateway on {host or 'every address'}: there is no admin token", hint=hint)
