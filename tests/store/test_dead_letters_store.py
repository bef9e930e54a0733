"""Dead letters in memory and in Postgres."""

from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.ports.stores.dead_letters import DeadLetters
from noetl_testkit.conformance.dead_letters import DeadLetterConformance
from noetl_testkit.memory.store import StagedStore


class TestMemoryDeadLetters(DeadLetterConformance):
    @pytest.fixture
    def store(self) -> StagedStore:
        return StagedStore(ManualClock())

    @pytest.fixture
    def letters(self, store: StagedStore) -> DeadLetters:
        return store.dead_letters


class TestPostgresDeadLetters(DeadLetterConformance):
    @pytest.fixture
    def store(self, postgres_store: PostgresStore) -> PostgresStore:
        return postgres_store

    @pytest.fixture
    def letters(self, postgres_store: PostgresStore) -> DeadLetters:
        return postgres_store.dead_letters
