"""Gateways that agents call."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / area) for area in ("gateway", "access")]

from gateway_stage import GatewayStage  # noqa: E402

from noetl_stream.settings.gateway_settings import GatewayLimits  # noqa: E402


@pytest.fixture
async def stage() -> AsyncIterator[GatewayStage]:
    """A gateway over everything it needs in memory, where agents may change something."""
    async with GatewayStage(GatewayLimits(), agents="changes").open() as opened:
        yield opened


@pytest.fixture
async def reading_stage() -> AsyncIterator[GatewayStage]:
    """As a gateway is without a setting: agents may only read."""
    async with GatewayStage(GatewayLimits()).open() as opened:
        yield opened
