from __future__ import annotations

import pytest

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_testkit.conformance.catalog import CatalogConformance
from noetl_testkit.memory.store import StagedStore


@pytest.fixture
def store() -> StagedStore:
    return StagedStore(ManualClock())


@pytest.fixture
def catalog(store: StagedStore) -> MemoryCatalog:
    return MemoryCatalog(store)


class TestMemoryCatalog(CatalogConformance):
    """The suite."""
