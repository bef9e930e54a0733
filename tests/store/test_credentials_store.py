"""The encrypted credential store, in memory and on Postgres."""

from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.access import MemoryCredentials
from noetl_stream.adapters.postgres.access import PostgresCredentials
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.testing.conformance.credentials import CredentialsConformance


class TestMemoryCredentials(CredentialsConformance):
    @pytest.fixture
    def credentials(self) -> MemoryCredentials:
        return MemoryCredentials(ManualClock())


class TestPostgresCredentials(CredentialsConformance):
    @pytest.fixture
    def credentials(self, postgres_store: PostgresStore) -> PostgresCredentials:
        return postgres_store.credentials
