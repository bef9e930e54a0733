"""Tests here use the stages of other folders."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from noetl_stream.adapters.simulated_time import SimulatedLoop

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / area) for area in ("access", "client", "gateway", "server")]

IN_SIMULATED_TIME = ("test_former_secrets.py", "test_taken_over_worker.py", "test_tenants.py", "test_tenants_limits.py")


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Any]:
    """Servers on the stage of ``tests/server`` run in simulated time, everything else in real time."""
    if item.path.name in IN_SIMULATED_TIME:
        return {"simulated": SimulatedLoop}
    return {"real": asyncio.new_event_loop}
