"""What a client does, with ``async`` and without: one list of scenarios, which clients in other languages share."""

from __future__ import annotations

from typing import Any

import pytest
from client_scenarios import SCENARIOS, AsyncDoer, Doer, ThreadDoer
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
