"""API tokens, browser sessions, the audit, credentials and idempotency keys in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import itemgetter

from msgspec.structs import asdict, replace

from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.stores.credentials import (
    MAX_GIVEN_BYTES,
    MAX_VALUES_GIVEN,
    MAX_VALUES_USED,
    CredentialInfo,
    FormerCredential,
    NewCredential,
    SealedValue,
    StoredCredential,
    giver_of,
)
from noetl_stream.ports.stores.idempotency import ClaimedKey, KeptAnswer
from noetl_stream.ports.stores.identities import (
    AUDIT_PERIOD_DAYS,
    MAX_CODES,
    MAX_SESSIONS,
    AuditedAnswer,
    AuditedCall,
    AuditEntry,
    StoredCode,
    StoredSession,
    StoredToken,
    TokenRights,
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


class MemoryAudit:
    """:class:`~noetl_stream.ports.stores.identities.Audit` in memory; the port documents each method."""

    def __init__(self) -> None:
        self._entries: dict[int, AuditEntry] = {}
        self._last = 0

    async def begin(self, attempt: AuditedCall) -> int:
        self._last += 1
        self._entries[self._last] = AuditEntry(self._last, attempt, None)
        return self._last

    async def answer(self, number: int, answer: AuditedAnswer) -> None:
        entry = self._entries[number]
        self._entries[number] = replace(entry, answer=entry.answer or answer)

    async def add(self, attempt: AuditedCall, answer: AuditedAnswer) -> None:
        await self.answer(await self.begin(attempt), answer)

    async def page(self, limit: int, before: int | None, principal: str | None) -> list[AuditEntry]:
        newest_first = (self._entries[number] for number in sorted(self._entries, reverse=True))
        found = (entry for entry in newest_first if before is None or entry.number < before)
        return [entry for entry in found if principal in (None, entry.attempt.principal)][:limit]

    async def trim(self, before_ms: int) -> None:
        period_ms = AUDIT_PERIOD_DAYS * 24 * 3600 * 1000
        kept_from_ms = before_ms // period_ms * period_ms
        self._entries = {
            number: entry for number, entry in self._entries.items() if entry.attempt.at_ms >= kept_from_ms
        }


class MemoryCredentials:
    """:class:`~noetl_stream.ports.stores.credentials.Credentials` in memory; the port documents each method."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored: dict[str, StoredCredential] = {}
        self._numbers: dict[str, int] = {}
        self._last = 0
        self._former: dict[int, SealedValue] = {}
        self._uses: dict[str, set[tuple[str, int]]] = {}

    async def put(self, new: NewCredential) -> bool:
        present = self._stored.get(new.name)
        if new.version != (present.info.version + 1 if present else 1):
            return False
        now_ms = self._clock.now_ms()
        created_ms = present.info.created_ms if present else now_ms
        shown = {name: value for name, value in asdict(new).items() if name != "sealed"}
        info = CredentialInfo(**shown, created_ms=created_ms, updated_ms=now_ms)
        self._keep_former(new.name)
        self._stored[new.name] = StoredCredential(info, new.sealed)
        self._last += 1
        self._numbers[new.name] = self._last
        return True

    async def get(self, name: str) -> StoredCredential | None:
        return self._stored.get(name)

    async def read_all(self) -> list[StoredCredential]:
        return self._by_name()

    async def reencrypt(self, name: str, version: int, key_id: str, sealed: bytes) -> bool:
        present = self._stored.get(name)
        if present is None or present.info.version != version:
            return False
        self._stored[name] = StoredCredential(replace(present.info, key_id=key_id), sealed)
        return True

    async def delete(self, name: str) -> bool:
        self._keep_former(name)
        return self._stored.pop(name, None) is not None

    def _by_name(self) -> list[StoredCredential]:
        return [self._stored[name] for name in sorted(self._stored)]

    async def list_all(self) -> list[CredentialInfo]:
        return [stored.info for stored in self._by_name()]

    async def record_use(self, execution_id: str, read: StoredCredential) -> bool:
        name = read.info.name
        if self._stored.get(name) != read:
            return False
        self._uses.setdefault(execution_id, set()).add((name, self._numbers[name]))
        return True

    async def record_given(self, execution_id: str, given: SealedValue) -> None:
        uses = self._uses.setdefault(execution_id, set())
        if any(name == given.name for name, _ in uses):
            return
        self._last += 1
        self._former[self._last] = given
        uses.add((given.name, self._last))
        size = 0
        own = [use for use in uses if giver_of(use[0]) == giver_of(given.name)]
        for count, use in enumerate(sorted(own, key=itemgetter(1), reverse=True), start=1):
            size += len(self._former[use[1]].sealed)
            if count > MAX_VALUES_GIVEN or size > MAX_GIVEN_BYTES:
                uses.remove(use)
                del self._former[use[1]]

    async def used_by(self, execution_ids: Collection[str]) -> Mapping[str, list[SealedValue]]:
        found = {execution_id: self._values_of(execution_id) for execution_id in execution_ids}
        return {execution_id: values for execution_id, values in found.items() if values}

    async def read_former(self, after: int, limit: int) -> list[FormerCredential]:
        return [FormerCredential(*item) for item in sorted(self._former.items()) if item[0] > after][:limit]

    async def reencrypt_former(self, number: int, key_id: str, sealed: bytes) -> bool:
        if number in self._former:
            self._former[number] = self._former[number]._replace(key_id=key_id, sealed=sealed)
        return number in self._former

    def forget_execution(self, execution_id: str) -> None:
        """Removes an execution from the uses of credentials, as its deletion does."""
        self._uses.pop(execution_id, None)
        used = {number for uses in self._uses.values() for _, number in uses}
        self._former = {number: value for number, value in self._former.items() if number in used}

    def _keep_former(self, name: str) -> None:
        stored = self._stored.get(name)
        use = (name, self._numbers.get(name, 0))
        if stored is not None and any(use in uses for uses in self._uses.values()):
            self._former[use[1]] = _value(stored)

    def _values_of(self, execution_id: str) -> list[SealedValue]:
        uses = self._uses.get(execution_id, set())
        former = [self._former[number] for number in sorted(number for _, number in uses) if number in self._former]
        names = sorted({name for name, _ in uses if name in self._stored}, key=self._numbers.__getitem__)
        return [*former, *(_value(self._stored[name]) for name in names)][-MAX_VALUES_USED:]


def _value(stored: StoredCredential) -> SealedValue:
    return SealedValue(stored.info.name, stored.info.version, stored.info.key_id, stored.sealed)


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
