"""Idempotency keys, in memory and on Postgres."""

from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.adapters.postgres.tables import PostgresIdempotency
from noetl_testkit.conformance.idempotency import IdempotencyConformance
from noetl_testkit.memory.access import MemoryIdempotency


class TestMemoryIdempotency(IdempotencyConformance):
    @pytest.fixture
    def idempotency(self) -> MemoryIdempotency:
        return MemoryIdempotency(ManualClock())


class TestPostgresIdempotency(IdempotencyConformance):
    @pytest.fixture
    def idempotency(self, postgres_store: PostgresStore) -> PostgresIdempotency:
        return postgres_store.idempotency
