from __future__ import annotations

from typing import Any

import pytest

from noetl_stream.testing.simulated_time import SimulatedLoop


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """All tests here run in simulated time."""
    return {"simulated": SimulatedLoop}
