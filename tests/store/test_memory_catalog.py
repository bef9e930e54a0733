from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_testkit.conformance.catalog import CatalogConformance


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(ManualClock())


@pytest.fixture
def catalog(store: MemoryStore) -> MemoryCatalog:
    return MemoryCatalog(store)


class TestMemoryCatalog(CatalogConformance):
    """The suite."""
