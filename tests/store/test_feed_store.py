"""The feed's suite over Postgres and over memory."""

from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.postgres.store import PostgresFeed, PostgresStore
from noetl_testkit.conformance.feed import FeedConformance
from noetl_testkit.memory.journals import MemoryFeed
from noetl_testkit.memory.store import StagedStore


class TestMemoryFeed(FeedConformance):
    @pytest.fixture
    def store(self) -> StagedStore:
        return StagedStore(SystemClock())

    @pytest.fixture
    def feed(self, store: StagedStore) -> MemoryFeed:
        return MemoryFeed(store, SystemClock())


class TestPostgresFeed(FeedConformance):
    @pytest.fixture
    def store(self, postgres_store: PostgresStore) -> PostgresStore:
        return postgres_store

    @pytest.fixture
    def feed(self, postgres_store: PostgresStore) -> PostgresFeed:
        return postgres_store.feed
