"""API tokens, browser sessions and the audit, in memory and on Postgres."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from noetl_stream.adapters.postgres.identities import PostgresAudit, PostgresSessions, PostgresTokens
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.ports.stores.identities import AuditedAnswer
from noetl_testkit.conformance.access import (
    AuditConformance,
    SessionsConformance,
    TokensConformance,
    attempted,
    stored_token,
)
from noetl_testkit.memory.access import MemoryAudit, MemorySessions, MemoryTokens


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

    async def test_whoever_trims_deletes_nothing_of_the_last_thirty_days(
        self, audit: PostgresAudit, watcher: Any
    ) -> None:
        now_ms = await watcher.fetchval("select (extract(epoch from now()) * 1000)::bigint")
        await audit.add(attempted(at_ms=now_ms), AuditedAnswer(200))
        await audit.trim(2 * now_ms)
        assert len(await audit.page(10, None, None)) == 1
