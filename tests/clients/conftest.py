from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gateway"))

from client_scenarios import PLAYBOOKS
from gateway_stage import TOKEN, GatewayStage

from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_stream_client import AsyncClient


@pytest.fixture
async def stage() -> AsyncIterator[GatewayStage]:
    """A gateway over everything it needs in memory, with the playbooks of the scenarios."""
    async with GatewayStage(GatewayLimits()).open() as opened, AsyncClient(opened.url, TOKEN) as client:
        for source in PLAYBOOKS:
            await client.register_playbook(source)
        yield opened
