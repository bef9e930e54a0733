from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from operations_stage import OperationsStage

from noetl_stream.adapters.simulated_time import SimulatedLoop


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """All tests here run in simulated time."""
    return {"simulated": SimulatedLoop}


@pytest.fixture
async def without_worker() -> AsyncIterator[OperationsStage]:
    """Operations with a server behind them, and no worker yet."""
    stage = OperationsStage()
    await stage.begin(workers=())
    yield stage
    await stage.close()


@pytest.fixture
async def stage() -> AsyncIterator[OperationsStage]:
    """Operations with a server and a worker behind them."""
    stage = OperationsStage()
    await stage.begin()
    yield stage
    await stage.close()
