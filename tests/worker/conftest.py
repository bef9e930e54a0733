from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from worker_stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A broker in memory, and a clock and a tool that the test controls; the test starts workers."""
    made = Stage()
    yield made
    await made.close()
