from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from worker_stage import Stage


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A broker in memory, a manual clock, a scripted tool; the test starts the workers."""
    made = Stage()
    yield made
    await made.close()
