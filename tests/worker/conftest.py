from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from worker_stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A broker in memory, a clock in hand, a tool that obeys; workers are started by the test."""
    made = Stage()
    yield made
    await made.close()
