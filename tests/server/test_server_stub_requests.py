"""Requests to an execution that is quarantined, and was not read again by the server that has taken it over."""

from __future__ import annotations

from typing import Any

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.engine.advance import UNLOADED
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.server.inputs.messages import reject_unanswered
from noetl_stream.server.memory.execution_cache import CachedExecution
from noetl_stream.server.ticks.tick import PendingTick

EXECUTION = "execution-1"


@pytest.mark.parametrize(
    ("request_id", "refusals"), [("request-1", []), ("request-2", ["exists"])], ids=["repeated", "another"]
)
async def test_a_start_that_comes_again_is_not_refused_by_its_own_execution(
    stage: Stage, request_id: str, refusals: list[str]
) -> None:
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    stage.tables.requests.clear()  # it is answered once its playbook is evaluated: it was set aside before
    signed = await Stage().request(EXECUTION, request_id, ONE_STEP)
    message = ReportedMessage(1, 0, partition_of(EXECUTION), EXECUTION, signed, "")
    executions: Any = {EXECUTION: CachedExecution(None, UNLOADED, is_stub=True)}
    bodies, tick = [(message, codec.decode_reported(signed))], PendingTick()
    await reject_unanswered(bodies, bodies, executions, stage.store.real, tick)
    assert [codec.decode_json(row.answer)["code"] for row in tick.requests] == refusals
