from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from server_stage import Stage

from noetl_stream.adapters.simulated_time import SimulatedLoop, cancel_all_tasks


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """All tests here run in simulated time."""
    return {"simulated": SimulatedLoop}


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A broker, a store and a clock in memory; servers, workers and clients are started by the test.

    After no commit of any test may an execution wait for nothing (PROTOCOL §1: every waiting state names a row).
    """
    made = Stage()
    yield made
    await cancel_all_tasks()
    assert not made.store.stuck
