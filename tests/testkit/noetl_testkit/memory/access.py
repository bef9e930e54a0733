"""API tokens, browser sessions, the audit, grants and idempotency keys in memory."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from typing import Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.stores.catalog import GrantsRevision
from noetl_stream.ports.stores.idempotency import ClaimedKey, KeptAnswer
from noetl_stream.ports.stores.identities import (
    AUDIT_PERIOD_DAYS,
    AUDIT_SLOTS,
    MAX_CODES,
    MAX_SESSIONS,
    AuditChain,
    AuditChainName,
    AuditedAnswer,
    AuditedCall,
    AuditEntry,
    AuditLink,
    AuditTable,
    ChainEnd,
    StoredCode,
    StoredSession,
    StoredToken,
    TokenRights,
    UnchainedEntries,
)


class MemoryTokens:
    """:class:`~noetl_stream.ports.stores.identities.Tokens` in memory; the port documents each method."""

    def __init__(self) -> None:
        self._tokens: dict[str, StoredToken] = {}

    async def add(self, token: StoredToken) -> bool:
        taken = any(other.name == token.name and other.revoked_ms is None for other in self._tokens.values())
        if taken or token.id in self._tokens:
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
            self._tokens[token_id] = replace(token, revoked_ms=at_ms, revoked_by=by)
        return token is not None

    async def use(self, token_id: str, at_ms: int, unless_since_ms: int) -> None:
        token = self._tokens.get(token_id)
        if token is not None and (token.last_used_ms is None or token.last_used_ms < unless_since_ms):
            self._tokens[token_id] = replace(token, last_used_ms=at_ms)


class MemoryRights:
    """:class:`~noetl_stream.ports.stores.identities.Rights` over :class:`MemoryTokens`; the port documents each
    method.
    """

    def __init__(self, tokens: MemoryTokens) -> None:
        self._tokens = tokens

    async def of(self, names: Collection[str], now_ms: int) -> dict[str, TokenRights]:
        held = [one for one in await self._tokens.list_all() if one.name in names and one.holds(now_ms)]
        return {one.name: TokenRights(one.role, one.paths) for one in held}


class MemorySessions:
    """:class:`~noetl_stream.ports.stores.identities.Sessions` in memory; the port documents each method."""

    def __init__(self) -> None:
        self._codes: dict[bytes, StoredCode] = {}
        self._sessions: dict[bytes, StoredSession] = {}

    async def add_code(self, code: StoredCode) -> None:
        self._codes[code.code_hash] = code
        own = [one for one in self._codes.values() if one.token_id == code.token_id]
        for old in own[:-MAX_CODES]:
            del self._codes[old.code_hash]

    async def redeem(self, code_hash: bytes, session: StoredSession) -> str | None:
        code = self._codes.pop(code_hash, None)
        if code is None or code.expires_ms <= session.created_ms:
            return None
        self._sessions[session.session_hash] = replace(session, token_id=code.token_id)
        own = [one for one in self._sessions.values() if one.token_id == code.token_id]
        for old in own[:-MAX_SESSIONS]:
            del self._sessions[old.session_hash]
        return code.token_id

    async def get(self, session_hash: bytes) -> StoredSession | None:
        return self._sessions.get(session_hash)

    async def end(self, session_hash: bytes) -> None:
        self._sessions.pop(session_hash, None)

    def expire(self, at_ms: int) -> None:
        """All sessions there are end then."""
        self._sessions = {key: replace(one, expires_ms=at_ms) for key, one in self._sessions.items()}


PERIOD_MS: Final = AUDIT_PERIOD_DAYS * 24 * 3600 * 1000
NO_ROW: Final = ChainEnd(0, b"")


class _MemoryLink(NamedTuple):
    number: int
    position: int
    previous: bytes


class MemoryAudit:
    """:class:`~noetl_stream.ports.stores.identities.Audit` in memory; the port documents each method."""

    def __init__(self) -> None:
        self._entries: dict[int, AuditEntry] = {}
        self._last = 0
        self._links: dict[AuditChainName, list[_MemoryLink]] = {}
        self._anchors: dict[AuditChainName, ChainEnd] = {}

    async def begin(self, attempt: AuditedCall) -> int:
        self._last += 1
        self._entries[self._last] = AuditEntry(self._last, attempt, None)
        self._chain("call", self._last, attempt.at_ms)
        return self._last

    async def answer(self, number: int, answer: AuditedAnswer) -> None:
        entry = self._entries[number]
        self._entries[number] = replace(entry, answer=entry.answer or answer)
        if entry.answer is None:
            self._chain("answer", number, entry.attempt.at_ms)

    def _chain(self, table: AuditTable, number: int, at_ms: int) -> None:
        name = AuditChainName(table, at_ms // PERIOD_MS % AUDIT_SLOTS, 0)
        end = self._end_of(name)
        self._links.setdefault(name, []).append(_MemoryLink(number, end.position + 1, end.hash))
        self._anchors.setdefault(name, NO_ROW)

    def _hash_of(self, name: AuditChainName, link: _MemoryLink) -> bytes:
        entry = self._entries[link.number]
        return sha256(repr((link, entry.attempt if name.table == "call" else entry.answer)).encode()).digest()

    def _end_of(self, name: AuditChainName) -> ChainEnd:
        links = self._links.get(name)
        if not links:
            return self._anchors.get(name, NO_ROW)
        return ChainEnd(links[-1].position, self._hash_of(name, links[-1]))

    async def chain(self, name: AuditChainName, after: int, limit: int) -> AuditChain:
        links = [
            AuditLink(*link, self._hash_of(name, link)) for link in self._links.get(name, []) if link.position > after
        ]
        return AuditChain(self._anchors.get(name, NO_ROW), self._end_of(name), links[:limit])

    async def unchained(self) -> UnchainedEntries:
        return UnchainedEntries(0, [])

    async def add(self, attempt: AuditedCall, answer: AuditedAnswer) -> None:
        await self.answer(await self.begin(attempt), answer)

    async def page(self, limit: int, before: int | None, principal: str | None) -> list[AuditEntry]:
        newest_first = (self._entries[number] for number in sorted(self._entries, reverse=True))
        found = (entry for entry in newest_first if before is None or entry.number < before)
        return [entry for entry in found if principal in (None, entry.attempt.principal)][:limit]

    async def trim(self, before_ms: int) -> None:
        kept_from_ms = before_ms // PERIOD_MS * PERIOD_MS
        for name, links in self._links.items():
            if links and self._entries[links[-1].number].attempt.at_ms < kept_from_ms:
                self._anchors[name] = self._end_of(name)
                links.clear()
        self._entries = {
            number: entry for number, entry in self._entries.items() if entry.attempt.at_ms >= kept_from_ms
        }


class MemoryGrants:
    """:class:`~noetl_stream.ports.stores.catalog.GrantsStore` in memory; the port documents each method."""

    def __init__(self) -> None:
        self._revisions: list[GrantsRevision] = []

    async def latest(self, known: GrantsRevision | None = None) -> GrantsRevision | None:
        found = self._revisions[-1] if self._revisions else None
        return None if found == known else found

    async def get(self, revision: int) -> GrantsRevision | None:
        return next((one for one in self._revisions if one.revision == revision), None)

    async def add(self, new: GrantsRevision) -> bool:
        follows = new.revision == len(self._revisions) + 1
        if follows:
            self._revisions.append(new)
        return follows


class MemoryIdempotency:
    """:class:`~noetl_stream.ports.stores.idempotency.Idempotency` in memory; the port documents each method."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._claimed: dict[tuple[str, str], tuple[int, ClaimedKey]] = {}

    async def claim(self, key: str, caller: str, content_hash: bytes, ids: RequestIds) -> ClaimedKey:
        new = (self._clock.now_ms(), ClaimedKey(content_hash, ids, None))
        return self._claimed.setdefault((key, caller), new)[1]

    async def finish(self, key: str, caller: str, answer: KeptAnswer) -> KeptAnswer:
        at_ms, claimed = self._claimed.get((key, caller), (0, None))
        if claimed is None:
            return answer
        if claimed.answer is None or (claimed.answer.status >= 400 > answer.status):
            answered = ClaimedKey(claimed.content_hash, replace(claimed.ids, seed=b""), answer)
            self._claimed[key, caller] = (at_ms, answered)
            return answer
        return claimed.answer

    async def forget(self, older_than_s: float) -> int:
        before_ms = self._clock.now_ms() - older_than_s * 1000
        old = [name for name, (at_ms, _) in self._claimed.items() if at_ms < before_ms]
        for name in old:
            del self._claimed[name]
        return len(old)
