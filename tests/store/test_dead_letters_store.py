"""Dead letters in memory and in Postgres."""

from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.ports.stores.dead_letters import DeadLetters
from noetl_testkit.conformance.dead_letters import DeadLetterConformance


class TestMemoryDeadLetters(DeadLetterConformance):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore(ManualClock())

    @pytest.fixture
    def letters(self, store: MemoryStore) -> DeadLetters:
        return store.dead_letters


class TestPostgresDeadLetters(DeadLetterConformance):
    @pytest.fixture
    def store(self, postgres_store: PostgresStore) -> PostgresStore:
        return postgres_store

    @pytest.fixture
    def letters(self, postgres_store: PostgresStore) -> DeadLetters:
        return postgres_store.dead_letters
