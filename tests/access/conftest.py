from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from access_issuer import Issuer, running_issuer

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.operations.access import DirectAccess
from noetl_testkit.memory.access import MemoryAudit, MemoryTokens


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tokens() -> MemoryTokens:
    return MemoryTokens()


@pytest.fixture
def audit() -> MemoryAudit:
    return MemoryAudit()


@pytest.fixture
def keeper(tokens: MemoryTokens, audit: MemoryAudit, clock: ManualClock) -> DirectAccess:
    return DirectAccess(tokens, audit, clock)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with running_issuer() as running:
        yield running
