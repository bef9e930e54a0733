from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from gateway_stage import GatewayStage
from openapi_checks import Described

from noetl_stream.settings.gateway_settings import GatewayLimits


@pytest.fixture
async def stage() -> AsyncIterator[GatewayStage]:
    """A gateway over everything it needs in memory; its ``client`` is an admin."""
    async with GatewayStage(GatewayLimits()).open() as opened:
        yield opened


@pytest.fixture
async def api(stage: GatewayStage) -> Described:
    return await Described.read(stage.client)
