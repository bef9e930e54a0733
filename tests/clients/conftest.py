from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gateway"))

from client_scenarios import PLAYBOOKS
from gateway_stage import TOKEN, GatewayStage

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_stream.tools.inputs import Inputs, Knobs
from noetl_stream_client import AsyncClient


class KeepInputs(Inputs):
    content: str


class KeepTool:
    """Returns its input as a file."""

    spec = KindSpec(kind="keep", inputs=KeepInputs, knobs=Knobs)

    async def run(self, call: ToolCall) -> ToolResult:
        async def pieces() -> AsyncIterator[bytes]:
            yield str(call.inputs["content"]).encode()

        return ToolResult({"file": await call.data.save(pieces(), name="kept.csv")})

    async def close(self) -> None:
        """Holds nothing."""


@pytest.fixture
async def stage() -> AsyncIterator[GatewayStage]:
    """A gateway over everything it needs in memory, with the playbooks of the scenarios."""
    staged = GatewayStage(GatewayLimits(), more_tools={"keep": KeepTool()})
    async with staged.open() as opened, AsyncClient(opened.url, TOKEN) as client:
        for source in PLAYBOOKS:
            await client.register_playbook(source)
        yield opened
