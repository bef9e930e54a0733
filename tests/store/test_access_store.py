"""API tokens, browser sessions, grants and the audit, in memory and on Postgres."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import asyncpg
import pytest

from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.adapters.postgres.tables import PostgresAudit, PostgresGrants, PostgresSessions, PostgresTokens
from noetl_stream.operations.audit_check import check_audit
from noetl_stream.ports.stores.identities import AuditedAnswer
from noetl_testkit.conformance.access import (
    AuditConformance,
    GrantsConformance,
    SessionsConformance,
    TokensConformance,
    attempted,
    stored_token,
)
from noetl_testkit.memory.access import MemoryAudit, MemoryGrants, MemorySessions, MemoryTokens


class TestMemoryTokens(TokensConformance):
    @pytest.fixture
    def tokens(self) -> MemoryTokens:
        return MemoryTokens()


class TestPostgresTokens(TokensConformance):
    @pytest.fixture
    def tokens(self, postgres_store: PostgresStore) -> PostgresTokens:
        return postgres_store.tokens

    async def test_the_database_takes_no_role_that_there_is_not(self, tokens: PostgresTokens) -> None:
        with pytest.raises(Exception, match="role"):
            await tokens.add(stored_token("a", role="root"))


class TestMemorySessions(SessionsConformance):
    @pytest.fixture
    def sessions(self) -> MemorySessions:
        return MemorySessions()


class TestPostgresSessions(SessionsConformance):
    @pytest.fixture
    async def sessions(self, postgres_store: PostgresStore) -> PostgresSessions:
        for token_id in "ab":
            await postgres_store.tokens.add(stored_token(token_id))
        return postgres_store.sessions


class TestMemoryGrants(GrantsConformance):
    @pytest.fixture
    def grants(self) -> MemoryGrants:
        return MemoryGrants()


class TestPostgresGrants(GrantsConformance):
    @pytest.fixture
    def grants(self, postgres_store: PostgresStore) -> PostgresGrants:
        return postgres_store.grants


class TestMemoryAudit(AuditConformance):
    @pytest.fixture
    def audit(self) -> MemoryAudit:
        return MemoryAudit()


class TestPostgresAudit(AuditConformance):
    @pytest.fixture
    def audit(self, postgres_store: PostgresStore) -> PostgresAudit:
        return postgres_store.audit

    @pytest.mark.parametrize("table", ["audit", "audit_answer"])
    @pytest.mark.parametrize(
        "change", ["update noetl.{} set number = default", "delete from noetl.{}", "truncate noetl.{} cascade"]
    )
    async def test_not_even_the_owner_of_the_table_changes_an_entry(
        self, audit: PostgresAudit, watcher: Any, table: str, change: str
    ) -> None:
        await audit.add(attempted(), AuditedAnswer(200))
        with pytest.raises(asyncpg.PostgresError, match="is only ever added to"):
            await watcher.execute(change.format(table))
        assert len(await audit.page(10, None, None)) == 1

    @pytest.mark.parametrize("table", ["audit", "audit_answer"])
    @pytest.mark.parametrize("change", ["update noetl.{} set at_ms = 1", "delete from noetl.{}"])
    async def test_nor_in_a_partition(self, audit: PostgresAudit, watcher: Any, table: str, change: str) -> None:
        await audit.add(attempted(at_ms=0), AuditedAnswer(200))
        with pytest.raises(asyncpg.PostgresError, match="is only ever added to"):
            await watcher.execute(change.format(f"{table}_0"))

    async def test_trimming_deletes_nothing_of_the_last_thirty_days(self, audit: PostgresAudit, watcher: Any) -> None:
        now_ms = await watcher.fetchval("select (extract(epoch from now()) * 1000)::bigint")
        await audit.add(attempted(at_ms=now_ms), AuditedAnswer(200))
        await audit.trim(2 * now_ms)
        assert len(await audit.page(10, None, None)) == 1

    @pytest.mark.parametrize("table", ["audit", "audit_answer"])
    @pytest.mark.parametrize(
        ("change", "found"),
        [
            ("update noetl.{} set at_ms = at_ms + 1 where number = {}", ("changed", "{}")),
            ("delete from noetl.{} where number = {}", ("missing", "{next}")),
            ("delete from noetl.{} where number >= {}", ("missing", "{before}")),
            (
                "insert into noetl.{0} select * from noetl.{0} where number = {1} - 1;"
                " update noetl.{0} set at_ms = at_ms + 1 where number = {1} - 1"
                " and ctid = (select max(ctid) from noetl.{0} where number = {1} - 1)",
                ("inserted", "{before}"),
            ),
            ("update noetl.{} set position = 0 where number = {}", ("inserted", "{}")),
            ("update noetl.{} set lane = null where number = {}", ("inserted", "{}")),
        ],
    )
    async def test_a_change_of_an_entry_by_the_owner_is_found_and_named(
        self, audit: PostgresAudit, watcher: Any, table: str, change: str, found: tuple[str, str]
    ) -> None:
        for _ in range(5):
            await audit.add(attempted(at_ms=1), AuditedAnswer(200))
        number = (await audit.page(10, None, None))[2].number
        await watcher.execute(f"alter table noetl.{table} disable trigger append_only")
        await watcher.execute(f"alter table noetl.{table}_0 disable trigger append_only_rows")
        await watcher.execute(change.format(table, number))
        faults = (await check_audit(audit, None)).faults
        fault, at = found
        named = int(at.format(number, next=number + 1, before=number - 1))
        part = "call" if table == "audit" else "answer"
        assert (fault, named, part) in [(one.fault, one.number, one.part) for one in faults]

    async def test_writers_at_once_add_to_chains_of_their_own(self, audit: PostgresAudit) -> None:
        await asyncio.gather(*(audit.add(attempted(at_ms=1), AuditedAnswer(200)) for _ in range(60)))
        found = await check_audit(audit, None)
        assert (found.checked, found.faults) == (120, [])

    async def test_the_hash_of_an_entry_is_what_the_page_says(self, audit: PostgresAudit, watcher: Any) -> None:
        await audit.begin(attempted(at_ms=1, target='"ü"\x01\x7f/\\'))
        number = await audit.begin(attempted(at_ms=1))
        first, second = await watcher.fetch("select * from noetl.audit order by number")
        values = list(first.values())
        *fields, lane, position, previous = values
        text = json.dumps([previous.hex(), lane, position, *fields], ensure_ascii=False)
        assert second["number"] == number
        assert second["previous"] == hashlib.sha256(text.encode()).digest()
