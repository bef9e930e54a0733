"""API tokens and the audit in the schema ``noetl``."""

from __future__ import annotations

from typing import Any

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.ports.access import AuditedAnswer, AuditedCall, AuditEntry, StoredToken


class PostgresTokens:
    """:class:`~noetl_stream.ports.access.Tokens`, where each method is described."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, token: StoredToken) -> bool:
        return bool(await self._database.fetch("add_token", token=token))

    async def get(self, token_id: str) -> StoredToken | None:
        rows = await self._database.fetch("tokens", id=token_id)
        return _token(rows[0]) if rows else None

    async def list_all(self) -> list[StoredToken]:
        return [_token(row) for row in await self._database.fetch("tokens", id=None)]

    async def revoke(self, token_id: str, at_ms: int, by: str) -> bool:
        return bool(await self._database.fetch("revoke_token", id=token_id, at_ms=at_ms, by=by))

    async def use(self, token_id: str, at_ms: int, unless_since_ms: int) -> None:
        await self._database.fetch("use_token", id=token_id, at_ms=at_ms, unless_since_ms=unless_since_ms)


class PostgresAudit:
    """:class:`~noetl_stream.ports.access.Audit`, where each method is described."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, attempt: AuditedCall) -> int:
        return int((await self._database.fetch("begin_audit", attempt=attempt))[0][0])

    async def answer(self, number: int, answer: AuditedAnswer) -> None:
        await self._database.fetch("answer_audit", number=number, answer=answer)

    async def add(self, attempt: AuditedCall, answer: AuditedAnswer) -> None:
        await self._database.fetch("add_audit", attempt=attempt, answer=answer)

    async def page(self, limit: int, before: int | None, principal: str | None) -> list[AuditEntry]:
        rows = await self._database.fetch("audit_page", limit=limit, before=before, principal=principal)
        return [_entry(row) for row in rows]


def _token(row: Any) -> StoredToken:
    token = StoredToken._make(row)
    return token._replace(paths=tuple(token.paths))


def _entry(row: Any) -> AuditEntry:
    number, *rest = row
    attempt, (status, *words) = rest[:-3], rest[-3:]
    return AuditEntry(number, AuditedCall._make(attempt), None if status is None else AuditedAnswer(status, *words))
