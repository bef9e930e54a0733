"""API tokens and the audit log in memory."""

from __future__ import annotations

from noetl_stream.ports.access import AuditedAnswer, AuditedCall, AuditEntry, StoredToken


class MemoryTokens:
    """:class:`~noetl_stream.ports.access.Tokens` in memory; the port documents each method."""

    def __init__(self) -> None:
        self._tokens: dict[str, StoredToken] = {}

    async def add(self, token: StoredToken) -> bool:
        if any(other.name == token.name and other.revoked_ms is None for other in self._tokens.values()):
            return False
        self._tokens[token.id] = token
        return True

    async def get(self, token_id: str) -> StoredToken | None:
        return self._tokens.get(token_id)

    async def list_all(self) -> list[StoredToken]:
        return sorted(self._tokens.values(), key=lambda token: (token.created_ms, token.id))

    async def revoke(self, token_id: str, at_ms: int, by: str) -> bool:
        token = self._tokens.get(token_id)
        if token is not None and token.revoked_ms is None:
            self._tokens[token_id] = token._replace(revoked_ms=at_ms, revoked_by=by)
        return token is not None

    async def use(self, token_id: str, at_ms: int, unless_since_ms: int) -> None:
        token = self._tokens.get(token_id)
        if token is not None and (token.last_used_ms is None or token.last_used_ms < unless_since_ms):
            self._tokens[token_id] = token._replace(last_used_ms=at_ms)


class MemoryAudit:
    """:class:`~noetl_stream.ports.access.Audit` in memory; the port documents each method."""

    def __init__(self) -> None:
        self._attempts: list[AuditedCall] = []
        self._answers: dict[int, AuditedAnswer] = {}

    async def begin(self, attempt: AuditedCall) -> int:
        self._attempts.append(attempt)
        return len(self._attempts)

    async def answer(self, number: int, answer: AuditedAnswer) -> None:
        self._answers.setdefault(number, answer)

    async def add(self, attempt: AuditedCall, answer: AuditedAnswer) -> None:
        await self.answer(await self.begin(attempt), answer)

    async def page(self, limit: int, before: int | None, principal: str | None) -> list[AuditEntry]:
        newest = len(self._attempts) if before is None else min(before - 1, len(self._attempts))
        entries = (AuditEntry(n, self._attempts[n - 1], self._answers.get(n)) for n in range(newest, 0, -1))
        return [entry for entry in entries if principal in (None, entry.attempt.principal)][:limit]
