"""API tokens, browser sessions, the audit, grants, credentials and idempotency keys in the schema ``noetl``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import asdict, replace

from noetl_stream.adapters.postgres.connections.database import DatabasePort
from noetl_stream.model.json import codec
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
)
from noetl_stream.ports.stores.grants import GrantsRevision
from noetl_stream.ports.stores.idempotency import ClaimedKey, KeptAnswer
from noetl_stream.ports.stores.identities import (
    MAX_CODES,
    MAX_SESSIONS,
    AuditChain,
    AuditChainName,
    AuditedAnswer,
    AuditedCall,
    AuditEntry,
    AuditLink,
    ChainEnd,
    StoredCode,
    StoredSession,
    StoredToken,
    TokenRights,
    UnchainedEntries,
)


class PostgresTokens(DatabasePort):
    """:class:`~noetl_stream.ports.stores.identities.Tokens`; the port documents each method."""

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


class PostgresRights(DatabasePort):
    """:class:`~noetl_stream.ports.stores.identities.Rights`; the port documents each method."""

    async def of(self, names: Collection[str], now_ms: int) -> dict[str, TokenRights]:
        rows = await self._database.fetch("token_rights", names=list(names), now_ms=now_ms)
        return {row["name"]: TokenRights(row["role"], tuple(row["paths"])) for row in rows}


class PostgresSessions(DatabasePort):
    """:class:`~noetl_stream.ports.stores.identities.Sessions`; the port documents each method."""

    async def add_code(self, code: StoredCode) -> None:
        await self._database.fetch("add_code", code=code, most=MAX_CODES)

    async def redeem(self, code_hash: bytes, session: StoredSession) -> str | None:
        values = {"code_hash": code_hash, "most": MAX_SESSIONS, **asdict(session)}
        rows = await self._database.fetch("redeem_code", **values)
        return rows[0][0] if rows else None

    async def get(self, session_hash: bytes) -> StoredSession | None:
        rows = await self._database.fetch("browser_session", session_hash=session_hash)
        return StoredSession(*rows[0]) if rows else None

    async def end(self, session_hash: bytes) -> None:
        await self._database.fetch("end_session", session_hash=session_hash)


class PostgresAudit(DatabasePort):
    """:class:`~noetl_stream.ports.stores.identities.Audit`; the port documents each method."""

    async def begin(self, attempt: AuditedCall) -> int:
        return int(await self._value("begin_audit", attempt=attempt))

    async def answer(self, number: int, answer: AuditedAnswer) -> None:
        await self._database.fetch("answer_audit", number=number, answer=answer)

    async def add(self, attempt: AuditedCall, answer: AuditedAnswer) -> None:
        await self._database.fetch("add_audit", attempt=attempt, answer=answer)

    async def page(self, limit: int, before: int | None, principal: str | None) -> list[AuditEntry]:
        rows = await self._database.fetch("audit_page", limit=limit, before=before, principal=principal)
        return [_entry(row) for row in rows]

    async def chain(self, name: AuditChainName, after: int, limit: int) -> AuditChain:
        place = {"entries": name.table, "slot": name.slot, "lane": name.lane}
        rows = await self._database.fetch("audit_chain", **place, after=after, limit=limit)
        anchor, head = ChainEnd(*rows[0][:2]), ChainEnd(*rows[0][2:4])
        return AuditChain(anchor, head, [AuditLink(*row[4:]) for row in map(tuple, rows) if row[4] is not None])

    async def unchained(self) -> UnchainedEntries:
        (row,) = await self._database.fetch("audit_unchained")
        return UnchainedEntries(row[0], [("call", one) for one in row[1]] + [("answer", one) for one in row[2]])

    async def trim(self, before_ms: int) -> None:
        await self._database.fetch("trim_audit", before_ms=before_ms)


def _token(row: Any) -> StoredToken:
    token = StoredToken(*row)
    return replace(token, paths=tuple(token.paths))


def _entry(row: Any) -> AuditEntry:
    number, *rest = row
    length = len(AuditedCall.__struct_fields__)
    attempt, answer = AuditedCall(*rest[:length]), rest[length:]
    return AuditEntry(number, attempt, None if answer[0] is None else AuditedAnswer(*answer))


class PostgresGrants(DatabasePort):
    """:class:`~noetl_stream.ports.stores.grants.GrantsStore`; the port documents each method."""

    async def latest(self, known: GrantsRevision | None = None) -> GrantsRevision | None:
        return await self._read(None, known)

    async def get(self, revision: int) -> GrantsRevision | None:
        return await self._read(revision, None)

    async def add(self, new: GrantsRevision) -> bool:
        return bool(await self._database.fetch("add_grants", grants=new))

    async def _read(self, revision: int | None, known: GrantsRevision | None) -> GrantsRevision | None:
        place = (None, None) if known is None else (known.revision, known.registered_ms)
        rows = await self._database.fetch("grants", revision=revision, known_revision=place[0], known_ms=place[1])
        return GrantsRevision(*rows[0]) if rows else None


class PostgresCredentials(DatabasePort):
    """:class:`~noetl_stream.ports.stores.credentials.Credentials`; the port documents each method."""

    async def put(self, new: NewCredential) -> bool:
        return bool(await self._database.fetch("put_credential", new=new))

    async def get(self, name: str) -> StoredCredential | None:
        rows = await self._database.fetch("credential", name=name)
        return _stored_credential(rows[0]) if rows else None

    async def read_all(self) -> list[StoredCredential]:
        return [_stored_credential(row) for row in await self._database.fetch("credential", name=None)]

    async def reencrypt(self, name: str, version: int, key_id: str, sealed: bytes) -> bool:
        return bool(
            await self._database.fetch("reencrypt_credential", name=name, version=version, key_id=key_id, sealed=sealed)
        )

    async def delete(self, name: str) -> bool:
        return bool(await self._database.fetch("delete_credential", name=name))

    async def record_use(self, execution_id: str, read: StoredCredential) -> bool:
        values = {"execution_id": execution_id, "name": read.info.name, "sealed": read.sealed}
        return bool(await self._value("record_credential_use", **values))

    async def record_given(self, execution_id: str, given: SealedValue) -> None:
        bounds = {"most": MAX_VALUES_GIVEN, "most_bytes": MAX_GIVEN_BYTES}
        await self._database.fetch("record_given_value", execution_id=execution_id, **given._asdict(), **bounds)

    async def inherit_uses(self, pairs: Collection[tuple[str, str]]) -> None:
        givers, heirs = map(list, zip(*pairs, strict=True))
        await self._database.fetch("inherit_credential_uses", givers=givers, heirs=heirs, most=MAX_VALUES_USED)

    async def used_by(self, execution_ids: Collection[str]) -> Mapping[str, list[SealedValue]]:
        rows = await self._database.fetch("credentials_used", execution_ids=list(execution_ids), most=MAX_VALUES_USED)
        found: dict[str, list[SealedValue]] = {}
        for execution_id, *value in rows:
            found.setdefault(execution_id, []).append(SealedValue._make(value))
        return found

    async def read_former(self, after: int, limit: int) -> list[FormerCredential]:
        rows = await self._database.fetch("former_credentials", after=after, limit=limit)
        return [FormerCredential(number, SealedValue._make(value)) for number, *value in rows]

    async def reencrypt_former(self, number: int, key_id: str, sealed: bytes) -> bool:
        values = {"number": number, "key_id": key_id, "sealed": sealed}
        return bool(await self._database.fetch("reencrypt_former_credential", **values))

    async def list_all(self) -> list[CredentialInfo]:
        return [_info(row) for row in await self._database.fetch("list_credentials")]


def _stored_credential(row: Any) -> StoredCredential:
    *info, sealed = row
    return StoredCredential(_info(info), sealed)


def _info(row: Any) -> CredentialInfo:
    info = CredentialInfo(*row)
    return replace(info, tags=tuple(info.tags))


class PostgresIdempotency(DatabasePort):
    """:class:`~noetl_stream.ports.stores.idempotency.Idempotency`; the port documents each method."""

    async def claim(self, key: str, caller: str, content_hash: bytes, ids: RequestIds) -> ClaimedKey:
        values = {"key": key, "caller": caller, "content_hash": content_hash, **asdict(ids)}
        # A concurrent claim of the same key is invisible to this statement: it inserts nothing and finds nothing.
        while not (rows := await self._database.fetch("claim_key", **values)):
            pass
        found_hash, execution_id, request_id, seed, *answer = rows[0]
        found_answer = None if answer[0] is None else _answer(*answer)
        return ClaimedKey(found_hash, RequestIds(execution_id, request_id, seed or b""), found_answer)

    async def finish(self, key: str, caller: str, answer: KeptAnswer) -> KeptAnswer:
        values = {"status": answer.status, "headers": codec.encode(answer.headers), "body": answer.body}
        rows = await self._database.fetch("finish_key", key=key, caller=caller, **values)
        return _answer(*rows[0]) if rows else answer  # without a row, the claim is so old that it was deleted

    async def forget(self, older_than_s: float) -> int:
        return int(await self._value("forget_keys", older_than_s=older_than_s))


def _answer(status: int, headers: bytes, body: bytes) -> KeptAnswer:
    return KeptAnswer(status, codec.decode_json(headers), body)
