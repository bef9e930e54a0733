"""Agents at stdin and stdout of ``noetl-stream mcp``, by the SDK's own client, on a real stack."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent import READING, agent_over_stdio

pytestmark = pytest.mark.xdist_group("stack")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_agent_of_either_protocol_reads_at_stdin(shared_home: Path, mode: str) -> None:
    async with agent_over_stdio("--home", shared_home, mode=mode) as agent:
        assert await agent.tools() == READING
        assert isinstance((await agent.data("list_executions"))["items"], list)
