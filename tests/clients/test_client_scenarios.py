"""What a client does, with ``async`` and without: one list of scenarios, which clients in other languages share."""

from __future__ import annotations

from typing import Any

import pytest
from broken_line import BrokenLine
from client_scenarios import BREAKS, OVER_BREAKS, SCENARIOS, AsyncDoer, Doer, ThreadDoer
from gateway_stage import TOKEN, GatewayStage


@pytest.mark.parametrize("kind", [AsyncDoer, ThreadDoer])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[one["name"] for one in SCENARIOS])
async def test_a_client_does_what_the_scenario_says(
    stage: GatewayStage, kind: type[Doer], scenario: dict[str, Any]
) -> None:
    doer = kind(stage.url, TOKEN)
    try:
        await doer.do(scenario["steps"])
    finally:
        await doer.close()
    assert scenario["steps"]


@pytest.mark.parametrize("scenario", OVER_BREAKS, ids=[one["name"] for one in OVER_BREAKS])
async def test_a_client_works_over_a_line_that_breaks(stage: GatewayStage, scenario: dict[str, Any]) -> None:
    async with BrokenLine(stage.url, BREAKS * 20).open() as line:
        doer = AsyncDoer(line.url, TOKEN)
        try:
            await doer.do(scenario["steps"])
        finally:
            await doer.close()
    assert len(line.breaks) < len(BREAKS) * 20
