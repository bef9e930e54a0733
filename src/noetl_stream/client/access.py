"""API tokens and the audit, straight on the database: so the first admin's token can be made."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import asdict

from noetl_stream.client.cursors import cursor_of, read_cursor
from noetl_stream.errors import Conflict, NotFound, UsageError
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.roles import ROLES
from noetl_stream.ports.access import Audit, AuditEntry, StoredToken, Tokens, hash_of, token_text
from noetl_stream.ports.catalog import is_path
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.access import (
    ApiTokenDocument,
    AuditEntryDocument,
    AuditPage,
    NewApiTokenDocument,
    NewToken,
)

TOKEN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")
ID_BYTES: Final = 8
SECRET_BYTES: Final = 32
MAX_PATHS: Final = 100
LATEST_MS: Final = 253_370_764_800_000


class DirectAccess:
    """:class:`~noetl_stream.ports.operations.access.Access`, where each method is described."""

    def __init__(self, tokens: Tokens, audit: Audit, clock: Clock) -> None:
        self._tokens = tokens
        self._audit = audit
        self._clock = clock

    async def create_token(self, new: NewToken, by: str) -> NewApiTokenDocument:
        now_ms = self._clock.now_ms()
        _check(new, now_ms)
        token_id, secret = self._clock.random_bytes(ID_BYTES).hex(), self._clock.random_bytes(SECRET_BYTES).hex()
        paths = tuple(path.strip("/") for path in new.paths)
        token = StoredToken(
            id=token_id,
            name=new.name,
            role=new.role,
            paths=paths,
            secret_hash=hash_of(secret),
            created_ms=now_ms,
            created_by=by,
            expires_ms=new.expires_ms,
        )
        if not await self._tokens.add(token):
            raise Conflict(f"there is a token {new.name!r} already", hint="revoke it, or choose another name")
        return NewApiTokenDocument(**asdict(_shown(token)), secret=token_text(token_id, secret))

    async def tokens(self) -> list[ApiTokenDocument]:
        return [_shown(token) for token in await self._tokens.list_all()]

    async def revoke_token(self, token_id: str, by: str) -> None:
        if not await self._tokens.revoke(token_id, self._clock.now_ms(), by):
            raise NotFound(f"there is no token {token_id!r}", hint="`noetl-stream token list` shows their ids")

    async def audit(self, limit: int, cursor: str | None, principal: str | None = None) -> AuditPage:
        # One more than is shown: whether a page follows.
        found = await self._audit.page(limit + 1, read_cursor(cursor, int), principal)
        shown = found[:limit]
        return AuditPage(
            [_entry(entry) for entry in shown], cursor_of(shown[-1].number) if len(found) > limit else None
        )


def _check(new: NewToken, now_ms: int) -> None:
    if TOKEN_NAME.fullmatch(new.name) is None:
        hint = "1 to 64 letters, digits, `_`, `.`, `@` and `-`, no sign first"
        raise UsageError(f"{new.name!r} is no name for a token", hint=hint)
    if new.role not in ROLES:
        raise UsageError(f"{new.role!r} is no role", hint=f"one of {', '.join(ROLES)}")
    if new.role == "admin" and new.paths:
        raise UsageError("an admin's token has no paths", hint="it could make itself another one without")
    if len(new.paths) > MAX_PATHS or not all(is_path(path.strip("/")) for path in new.paths):
        raise UsageError("a token's paths are those of playbooks or of folders above them", hint="as in `team/reports`")
    if new.expires_ms is not None and not now_ms < new.expires_ms <= LATEST_MS:
        raise UsageError("the token would have expired already, or after the year 9999", hint="give a time to come")


def _shown(token: StoredToken) -> ApiTokenDocument:
    return ApiTokenDocument(
        id=token.id,
        name=token.name,
        role=token.role,
        paths=list(token.paths),
        created=iso(token.created_ms),
        created_by=token.created_by,
        expires=iso_or_none(token.expires_ms),
        last_used=iso_or_none(token.last_used_ms),
        revoked=iso_or_none(token.revoked_ms),
        revoked_by=token.revoked_by,
    )


def _entry(entry: AuditEntry) -> AuditEntryDocument:
    attempt, answer = entry.attempt, entry.answer
    return AuditEntryDocument(
        number=entry.number,
        at=iso(attempt.at_ms),
        principal=attempt.principal,
        role=attempt.role,
        method=attempt.method,
        operation=attempt.operation,
        target=attempt.target,
        correlation_id=attempt.correlation_id,
        remote=attempt.remote,
        idempotency_key=attempt.idempotency_key,
        status=answer.status if answer is not None else None,
        reason=answer.reason if answer is not None else "",
        made=answer.made if answer is not None else "",
    )
