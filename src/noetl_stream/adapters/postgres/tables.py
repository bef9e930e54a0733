"""The ports over a few tables each: tokens, sessions, the audit, grants, credentials, idempotency keys, the catalog,
aggregates and the slots of limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict, replace

from noetl_stream.adapters.postgres.connections.database import DatabasePort, queried
from noetl_stream.adapters.postgres.statements import row_of
from noetl_stream.model.json import codec
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.stores.aggregates import AggregateStore, LimitSlotRow, LimitStore, PlacedSlot, WantedSlots
from noetl_stream.ports.stores.catalog import (
    SEARCHED_CHARACTERS,
    Catalog,
    CatalogEntry,
    GrantsRevision,
    entry_named,
    registered_entry,
    revision_in,
)
from noetl_stream.ports.stores.credentials import (
    MAX_GIVEN_BYTES,
    MAX_VALUES_GIVEN,
    MAX_VALUES_USED,
    CredentialInfo,
    Credentials,
    FormerCredential,
    SealedValue,
    StoredCredential,
)
from noetl_stream.ports.stores.idempotency import ClaimedKey, Idempotency, KeptAnswer
from noetl_stream.ports.stores.identities import (
    MAX_CODES,
    MAX_SESSIONS,
    Audit,
    AuditChain,
    AuditChainName,
    AuditedAnswer,
    AuditedCall,
    AuditEntry,
    AuditLink,
    ChainEnd,
    Rights,
    Sessions,
    StoredSession,
    StoredToken,
    TokenRights,
    Tokens,
    UnchainedEntries,
)


def _token(row: Any) -> StoredToken:
    token = StoredToken(*row)
    return replace(token, paths=tuple(token.paths))


class PostgresTokens(DatabasePort):
    """:class:`~noetl_stream.ports.stores.identities.Tokens`; the port documents each method."""

    add = queried(Tokens.add, "add_token")
    revoke = queried(Tokens.revoke, "revoke_token")
    use = queried(Tokens.use, "use_token")
    get = queried(Tokens.get, "tokens", _token)
    list_all = queried(Tokens.list_all, "tokens", _token, token_id=None)


class PostgresRights(DatabasePort):
    """:class:`~noetl_stream.ports.stores.identities.Rights`; the port documents each method."""

    of = queried(Rights.of, "token_rights", lambda row: TokenRights(row["role"], tuple(row["paths"])))


class PostgresSessions(DatabasePort):
    """:class:`~noetl_stream.ports.stores.identities.Sessions`; the port documents each method."""

    add_code = queried(Sessions.add_code, most=MAX_CODES)
    get = queried(Sessions.get, "browser_session")
    end = queried(Sessions.end, "end_session")

    async def redeem(self, code_hash: bytes, session: StoredSession) -> str | None:
        values = {"code_hash": code_hash, "most": MAX_SESSIONS, **asdict(session)}
        rows = await self._database.fetch("redeem_code", **values)
        return rows[0][0] if rows else None


def _entry(row: Any) -> AuditEntry:
    number, *rest = row
    length = len(AuditedCall.__struct_fields__)
    attempt, answer = AuditedCall(*rest[:length]), rest[length:]
    return AuditEntry(number, attempt, None if answer[0] is None else AuditedAnswer(*answer))


class PostgresAudit(DatabasePort):
    """:class:`~noetl_stream.ports.stores.identities.Audit`; the port documents each method."""

    begin = queried(Audit.begin, "begin_audit")
    answer = queried(Audit.answer, "answer_audit")
    add = queried(Audit.add, "add_audit")
    trim = queried(Audit.trim, "trim_audit")
    page = queried(Audit.page, "audit_page", _entry)

    async def chain(self, name: AuditChainName, after: int, limit: int) -> AuditChain:
        place = {"entries": name.table, "slot": name.slot, "lane": name.lane}
        rows = await self._database.fetch("audit_chain", **place, after=after, limit=limit)
        anchor, head = ChainEnd(*rows[0][:2]), ChainEnd(*rows[0][2:4])
        return AuditChain(anchor, head, [AuditLink(*row[4:]) for row in map(tuple, rows) if row[4] is not None])

    async def unchained(self) -> UnchainedEntries:
        (row,) = await self._database.fetch("audit_unchained")
        return UnchainedEntries(row[0], [("call", one) for one in row[1]] + [("answer", one) for one in row[2]])


class PostgresGrants(DatabasePort):
    """:class:`~noetl_stream.ports.stores.catalog.GrantsStore`; the port documents each method."""

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


def _stored_credential(row: Any) -> StoredCredential:
    *info, sealed = row
    return StoredCredential(_info(info), sealed)


def _info(row: Any) -> CredentialInfo:
    info = CredentialInfo(*row)
    return replace(info, tags=tuple(info.tags))


def _former(row: Any) -> FormerCredential:
    number, *value = row
    return FormerCredential(number, SealedValue._make(value))


class PostgresCredentials(DatabasePort):
    """:class:`~noetl_stream.ports.stores.credentials.Credentials`; the port documents each method."""

    put = queried(Credentials.put, "put_credential")
    reencrypt = queried(Credentials.reencrypt, "reencrypt_credential")
    delete = queried(Credentials.delete, "delete_credential")
    reencrypt_former = queried(Credentials.reencrypt_former, "reencrypt_former_credential")
    get = queried(Credentials.get, "credential", _stored_credential)
    read_all = queried(Credentials.read_all, "credential", _stored_credential, name=None)
    list_all = queried(Credentials.list_all, "list_credentials", _info)
    read_former = queried(Credentials.read_former, "former_credentials", _former)

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


class PostgresIdempotency(DatabasePort):
    """:class:`~noetl_stream.ports.stores.idempotency.Idempotency`; the port documents each method."""

    forget = queried(Idempotency.forget, "forget_keys")

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


def _answer(status: int, headers: bytes, body: bytes) -> KeptAnswer:
    return KeptAnswer(status, codec.decode_json(headers), body)


def _catalog_entry(row: Any) -> CatalogEntry:
    columns = dict(row)
    return CatalogEntry(**columns | {name: codec.decode_json(columns[name]) for name in ("labels", "tags")})


class PostgresCatalog(DatabasePort):
    """:class:`~noetl_stream.ports.stores.catalog.Catalog`; the port documents each method."""

    delete = queried(Catalog.delete, "catalog_delete")
    want_bundle = queried(Catalog.want_bundle)
    unwanted_bundles = queried(Catalog.unwanted_bundles)
    forget_bundle = queried(Catalog.forget_bundle)
    versions = queried(Catalog.versions, "catalog_versions", _catalog_entry)

    async def register(self, entry: CatalogEntry, source: str) -> CatalogEntry:
        """Registers a playbook or schema. See :meth:`noetl_stream.ports.stores.catalog.Catalog.register`.

        Raises:
            PayloadRefused: Postgres rejects a value, such as text with a NUL.
        """
        while True:
            existing = await self._entries("catalog_existing", path=entry.path, version=entry.version)
            deleted = await self._database.fetch("catalog_deleted", path=entry.path)
            found = registered_entry(entry, existing, deleted[0][0] if deleted else 0)
            row = replace(found, labels=codec.encode(found.labels), tags=codec.encode(found.tags))
            if found in existing or await self._database.fetch("catalog_register", entry=row, source=source):
                return found
            # Another call registered this path in between: retry.

    async def resolve(self, path: str, version: str | None) -> CatalogEntry | None:
        revision = None if version is None else revision_in(version)
        entries = await self._entries("catalog_resolve", path=path, version=version, revision=revision)
        return next(iter(entries), None) if version is None else entry_named(version, entries)

    async def latest(
        self,
        prefix: str,
        labels: Mapping[str, str],
        limit: int,
        after: str | None,
        *,
        words: Sequence[str] = (),
        kinds: Sequence[str] = (),
        scope: Sequence[str] = (),
    ) -> list[CatalogEntry]:
        values = {"names": list(labels), "values": list(labels.values()), "after": after or "", "limit": limit}
        searched = {"words": list(words), "searched": SEARCHED_CHARACTERS, "kinds": list(kinds)}
        return await self._entries("catalog_latest", prefix=prefix, scope=list(scope), **values, **searched)

    async def _entries(self, query: str, **values: Any) -> list[CatalogEntry]:
        return [_catalog_entry(row) for row in await self._database.fetch(query, **values)]


class PostgresAggregates(DatabasePort):
    """:class:`~noetl_stream.ports.stores.aggregates.AggregateStore`; the port documents each method."""

    aggregates = queried(AggregateStore.aggregates)
    list_aggregates = queried(AggregateStore.list_aggregates)
    aggregate_history = queried(AggregateStore.aggregate_history)


def _placed(row: Any) -> PlacedSlot:
    return PlacedSlot(row_of(LimitSlotRow, row), row["place"])


class PostgresLimits(DatabasePort):
    """:class:`~noetl_stream.ports.stores.aggregates.LimitStore`; the port documents each method."""

    limit_slots_page = queried(LimitStore.limit_slots_page)
    limit_slots_left = queried(LimitStore.limit_slots_left)
    limit_slots_of = queried(LimitStore.limit_slots_of, item=_placed)

    async def limit_slots(self, wanted: Collection[WantedSlots]) -> dict[str, list[LimitSlotRow]]:
        named = [(one.limit_id, holder) for one in wanted for holder in one.holders]
        yielding = [one for one in wanted if one.yielding]
        rows = await self._database.fetch(
            "limit_slots",
            limit_ids=[limit_id for limit_id, _ in named],
            holders=[holder for _, holder in named],
            waiting_ids=[one.limit_id for one in wanted],
            waiting=[one.waiting for one in wanted],
            yielding_ids=[one.limit_id for one in yielding],
            yielding=[one.yielding for one in yielding],
        )
        found = {(row["limit_id"], row["number"]): row_of(LimitSlotRow, row) for row in rows}
        slots: dict[str, list[LimitSlotRow]] = {}
        for (limit_id, _), slot in sorted(found.items()):
            slots.setdefault(limit_id, []).append(slot)
        return slots
