"""Callers, API tokens, browser sessions and the audit log, as used by the gateway and the command line."""

from __future__ import annotations

import re
from collections.abc import Collection
from hashlib import sha256
from typing import Final, Literal, NamedTuple, Protocol, get_args

import msgspec

from noetl_stream.model.rights import Role


class Caller(msgspec.Struct, frozen=True, gc=False):
    """The caller of an operation.

    Attributes:
        principal: ``token:<name>`` or ``oidc:<email or subject>``.
        paths: The part of the catalog it may access (:func:`~noetl_stream.model.rights.covers`); empty: everything.
        id: ``token:<id>`` or ``oidc:<subject>``. Unlike the principal, it is never reused for another caller.
        session: The hash of the caller's browser session; empty if it sent a token.
        expires_ms: The end of its session or API token; ``None`` if it has none, or an identity provider decides.
    """

    principal: str
    role: Role
    paths: tuple[str, ...] = ()
    id: str = ""
    session: bytes = b""
    expires_ms: int | None = None


TOKEN_TEXT: Final = re.compile(r"noetl_([0-9a-f]{16})_([0-9a-f]{64})")
"""The text of an API token: its id, then its secret of 256 bits."""


def token_text(token_id: str, secret: str) -> str:
    return f"noetl_{token_id}_{secret}"


def hash_of(secret: str) -> bytes:
    """The stored hash of a secret. Plain SHA-256: 256 random bits cannot be guessed."""
    return sha256(secret.encode()).digest()


LOCAL_NAME: Final = "local"
"""The name of the token that an embedded stack creates for itself."""


BOOTSTRAP_NAME: Final = "@bootstrap"
"""The name of the bootstrap token, the first of an installation. It can only create a token of an admin, and is revoked
when there is one. No other token can have this name.
"""

BOOTSTRAP_PRINCIPAL: Final = f"token:{BOOTSTRAP_NAME}"


class KeptText(Protocol):
    """A secret text that is kept outside the stores, such as a key of a Kubernetes Secret."""

    async def read(self) -> str | None:
        """The text; ``None`` if there is none yet.

        Raises:
            Unreachable, Forbidden: it cannot be read.
        """

    async def write(self, text: str) -> None:
        """Replaces the text. Errors: as for :meth:`read`."""


class CallCredentials(msgspec.Struct, frozen=True, gc=False):
    """The credentials in a call.

    Attributes:
        authorization: The ``Authorization`` header.
        session: The text of the session cookie. It counts only without an ``authorization``.
        csrf_token: The token that a session must show in addition to its cookie; ``None`` for calls that change
            nothing.
    """

    authorization: str | None = None
    session: str | None = None
    csrf_token: str | None = None


class Authenticator(Protocol):
    async def caller(self, credentials: CallCredentials) -> Caller:
        """The caller with these credentials.

        Raises:
            Unauthenticated: no credentials, or invalid ones.
            Forbidden: known, but without a role here; or the session's token is missing.
            Unreachable: the authority does not answer.
        """


class IdentityProvider(Protocol):
    async def caller(self, bearer: str) -> Caller:
        """The caller named by the provider's token. Errors: as for :meth:`Authenticator.caller`."""


class StoredToken(msgspec.Struct, frozen=True, gc=False):
    """A stored API token. Times are ms since the epoch.

    Attributes:
        id: Part of the token's text; not secret.
        name: Unique among tokens that are not revoked.
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


class TokenRights(msgspec.Struct, frozen=True, gc=False):
    """The rights of an API token."""

    role: Role
    paths: tuple[str, ...] = ()


class Rights(Protocol):
    async def of(self, names: Collection[str], now_ms: int) -> dict[str, TokenRights]:
        """The rights of these tokens, by name, without revoked and expired ones.

        Raises:
            Unreachable: the database is away.
        """


class Tokens(Protocol):
    """API tokens; they are never deleted. Any method raises Unreachable when the database is away."""

    async def add(self, token: StoredToken) -> bool:
        """Adds a token; ``False``, and nothing is stored, if an unrevoked token has that name, or any token that id."""

    async def get(self, token_id: str) -> StoredToken | None: ...

    async def list_all(self) -> list[StoredToken]:
        """All tokens, oldest first."""

    async def revoke(self, token_id: str, at_ms: int, by: str) -> bool:
        """Whether the token exists. Only the first revocation is recorded."""

    async def use(self, token_id: str, at_ms: int, unless_since_ms: int) -> None:
        """Records a use at ``at_ms``, unless one since ``unless_since_ms`` is recorded."""


MAX_CODES: Final = 20
"""The most sign-in codes of a token; a further one replaces the oldest."""

MAX_SESSIONS: Final = 20
"""The most browser sessions of a token; a further one ends the oldest."""


SESSION_TEXT: Final = re.compile(r"[0-9a-f]{64}")
"""The text of a code, of a session cookie and of a CSRF token: 256 random bits."""


class StoredCode(msgspec.Struct, frozen=True, gc=False):
    """A code that opens one browser session of a token. Times are ms since the epoch."""

    code_hash: bytes
    token_id: str
    created_ms: int
    expires_ms: int


class StoredSession(msgspec.Struct, frozen=True, gc=False):
    """A browser session of a token. Times are ms since the epoch.

    Attributes:
        session_hash: SHA-256 of the cookie.
        csrf_hash: SHA-256 of the token that changes need in addition to the cookie.
    """

    session_hash: bytes
    csrf_hash: bytes
    token_id: str
    created_ms: int
    expires_ms: int


class Sessions(Protocol):
    """Sign-in codes and browser sessions. Any method raises Unreachable when the database is away."""

    async def add_code(self, code: StoredCode) -> None:
        """Stores a code. Of the token's codes, the newest :data:`MAX_CODES` stay."""

    async def redeem(self, code_hash: bytes, session: StoredSession) -> str | None:
        """Removes the code and stores the session, for the code's token, in one step.

        Of the token's sessions, the newest :data:`MAX_SESSIONS` stay.

        Args:
            session: Its ``token_id`` is ignored; a code that has expired by its ``created_ms`` does not count.

        Returns:
            The token's id; ``None`` without a change if the code does not exist.
        """

    async def get(self, session_hash: bytes) -> StoredSession | None:
        """The session, even if it has expired."""

    async def end(self, session_hash: bytes) -> None:
        """Removes the session, if it exists."""


MAX_AUDIT_CHARACTERS: Final = 256
"""The limit of each text in an audit entry."""


def audit_text(text: str) -> str:
    """A received text as the audit records it: bounded and printable."""
    return "".join(character if character.isprintable() else "?" for character in text[:MAX_AUDIT_CHARACTERS])


class AuditedCall(msgspec.Struct, frozen=True, gc=False):
    """A call as received, without secrets and without its body.

    Attributes:
        principal: Empty if unauthenticated.
        role: Empty likewise.
        operation: The operation's id in the gateway's OpenAPI document.
        target: The execution, playbook, token … named by the address; empty if there is none.
        remote: The other end of the connection.
    """

    at_ms: int
    principal: str
    role: str
    method: str
    operation: str
    target: str
    correlation_id: str = ""
    remote: str = ""
    idempotency_key: str = ""


class AuditedAnswer(msgspec.Struct, frozen=True, gc=False):
    """The answer to a call.

    Attributes:
        status: The HTTP status.
        reason: The caller's reason, the reason for refusing the call, or the kind of problem.
        made: The id or path of the created resource.
        left_out: The number of earlier calls of this caller that were refused within a minute, without an entry.
    """

    status: int
    reason: str = ""
    made: str = ""
    left_out: int = 0


class AuditEntry(msgspec.Struct, frozen=True, gc=False):
    """One call. Without an ``answer`` it is in progress, or the gateway died during it."""

    number: int
    attempt: AuditedCall
    answer: AuditedAnswer | None


AuditTable = Literal["call", "answer"]
"""The parts of an audit entry: the call, and its answer."""

AUDIT_SLOTS: Final = 16
AUDIT_LANES: Final = 8
"""The number of chains among which the calls, or the answers, of one period of the audit are divided."""


class AuditChainName(NamedTuple):
    """The name of a chain of the audit, in which each row has the hash of the previous one.

    Attributes:
        slot: The period, modulo :data:`AUDIT_SLOTS`.
    """

    table: AuditTable
    slot: int
    lane: int


AUDIT_CHAINS: Final = tuple(
    AuditChainName(table, slot, lane)
    for table in get_args(AuditTable)
    for slot in range(AUDIT_SLOTS)
    for lane in range(AUDIT_LANES)
)


class AuditLink(NamedTuple):
    """A row of a chain of the audit.

    Attributes:
        number: Of the entry.
        previous: The hash of the previous row, as stored.
        hash: The hash of this row, computed from its present content.
    """

    number: int
    position: int
    previous: bytes
    hash: bytes


class ChainEnd(NamedTuple):
    """Position and hash of a row after which a chain begins, or with which it ends. Position 0: before any row."""

    position: int
    hash: bytes


class AuditChain(NamedTuple):
    """A part of a chain of the audit, by position, with the beginning and the end of the whole chain."""

    anchor: ChainEnd
    head: ChainEnd
    links: list[AuditLink]


class UnchainedEntries(NamedTuple):
    """Rows of the audit that are in no chain.

    Attributes:
        older: The number of rows from before the audit had chains.
        others: Other rows, with the number of the entry, the first 100 of a table.
    """

    older: int
    others: list[tuple[AuditTable, int]]


AUDIT_PERIOD_DAYS: Final = 30
"""The length of a period in days: entries are deleted a whole period at a time."""


class Audit(Protocol):
    """The append-only record of calls. Any method raises Unreachable when the database is away."""

    async def begin(self, attempt: AuditedCall) -> int:
        """Records the call and returns the entry's number."""

    async def answer(self, number: int, answer: AuditedAnswer) -> None: ...

    async def add(self, attempt: AuditedCall, answer: AuditedAnswer) -> None:
        """Records a call with its answer."""

    async def page(self, limit: int, before: int | None, principal: str | None) -> list[AuditEntry]:
        """Entries with a number below ``before``, newest first."""

    async def chain(self, name: AuditChainName, after: int, limit: int) -> AuditChain:
        """The rows of a chain whose position is above ``after``."""

    async def unchained(self) -> UnchainedEntries:
        """The rows that are in no chain."""

    async def trim(self, before_ms: int) -> None:
        """Deletes the entries of each period of :data:`AUDIT_PERIOD_DAYS` that had ended by then.

        Args:
            before_ms: At least 30 days ago.
        """
