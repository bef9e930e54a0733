"""Who calls, API tokens, and the audit, as the gateway and the command line need them."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from noetl_stream.ports.operations.access import ROLES, Role


class Caller(NamedTuple):
    """Who makes a call.

    Attributes:
        principal: ``token:<name>``, ``oidc:<email or subject>``, or ``local`` on an open gateway.
        paths: What of the catalog it may see and touch (:func:`covers`); empty: everything.
    """

    principal: str
    role: Role
    paths: tuple[str, ...] = ()


def suffices(role: Role, least: Role) -> bool:
    """Whether ``role`` may do what needs at least the role ``least``."""
    return ROLES.index(role) >= ROLES.index(least)


def covers(paths: tuple[str, ...], path: str) -> bool:
    """Whether a playbook's path is one of ``paths`` or below one: ``team/a`` covers ``team/a/b``, not ``team/ab``."""
    return not paths or any(path == given or path.startswith(f"{given}/") for given in paths)


TOKEN_TEXT: Final = re.compile(r"noetl_([0-9a-f]{16})_([0-9a-f]{64})")
"""An API token as its owner keeps it: its id, then its secret of 256 bits."""


def token_text(token_id: str, secret: str) -> str:
    return f"noetl_{token_id}_{secret}"


def hash_of(secret: str) -> bytes:
    """What is stored of a secret. Plain SHA-256: there is nothing to guess in 256 random bits."""
    return sha256(secret.encode()).digest()


class Authenticator(Protocol):
    async def caller(self, authorization: str | None) -> Caller:
        """Who shows this ``Authorization`` header; ``None``: the request has none.

        Raises:
            Unauthenticated: nothing is shown, or what is shown does not hold.
            Forbidden: known, but without a role here.
            Unreachable: whoever knows does not answer.
        """
        ...


class IdentityProvider(Protocol):
    async def caller(self, bearer: str) -> Caller:
        """Who the provider's token speaks of. Errors: as of :meth:`Authenticator.caller`."""
        ...


class StoredToken(NamedTuple):
    """An API token as it is kept. Times are ms since the epoch.

    Attributes:
        id: Stands in the token's text; no secret.
        name: No two tokens that are not revoked have the same.
        secret_hash: SHA-256 of the secret.
    """

    id: str
    name: str
    role: Role
    paths: tuple[str, ...]
    secret_hash: bytes
    created_ms: int
    created_by: str
    expires_ms: int | None = None
    last_used_ms: int | None = None
    revoked_ms: int | None = None
    revoked_by: str | None = None

    def holds(self, now_ms: int) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_ms is None and (self.expires_ms is None or now_ms < self.expires_ms)


class Tokens(Protocol):
    """API tokens; none is ever deleted. Any method raises Unreachable when the database is away."""

    async def add(self, token: StoredToken) -> bool:
        """``False``, and nothing is stored, if a token of that name is not revoked yet."""
        ...

    async def get(self, token_id: str) -> StoredToken | None: ...

    async def list_all(self) -> list[StoredToken]:
        """In the order they were made."""
        ...

    async def revoke(self, token_id: str, at_ms: int, by: str) -> bool:
        """Whether there is such a token. The first revocation stays."""
        ...

    async def use(self, token_id: str, at_ms: int, unless_since_ms: int) -> None:
        """Notes that it was used at ``at_ms``, unless a use since ``unless_since_ms`` is noted."""
        ...


class AuditedCall(NamedTuple):
    """A call as it comes in. Nothing of it is secret, and nothing its body.

    Attributes:
        principal: Empty where nobody is known.
        role: Empty likewise.
        operation: The operation's id in the gateway's OpenAPI document.
        target: The execution, playbook, token … that the address names; empty where it names none.
        remote: The other end of the connection.
    """

    at_ms: int
    principal: str
    role: str
    method: str
    operation: str
    target: str
    correlation_id: str
    remote: str
    idempotency_key: str


class AuditedAnswer(NamedTuple):
    """How a call was answered.

    Attributes:
        status: Of HTTP.
        reason: The caller's own; of a refusal why, and of another failure which problem it was.
        made: The id or path of what it made.
    """

    status: int
    reason: str = ""
    made: str = ""


class AuditEntry(NamedTuple):
    """One call. Without an ``answer`` it goes on, or the gateway died over it."""

    number: int
    attempt: AuditedCall
    answer: AuditedAnswer | None


class Audit(Protocol):
    """The record of calls, only ever added to. Any method raises Unreachable when the database is away."""

    async def begin(self, attempt: AuditedCall) -> int:
        """The entry's number. Once this returns, the call is on record."""
        ...

    async def answer(self, number: int, answer: AuditedAnswer) -> None: ...

    async def add(self, attempt: AuditedCall, answer: AuditedAnswer) -> None:
        """Both at once."""
        ...

    async def page(self, limit: int, before: int | None, principal: str | None) -> list[AuditEntry]:
        """Newest first, those with a number below ``before``."""
        ...
