"""Requests to an execution that is quarantined, and was not read again by the server that has taken it over."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from server_stage import ONE_STEP, Stage

from noetl_stream.engine.advance import UNLOADED
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.server.inputs.messages import reject_unanswered
from noetl_stream.server.memory.execution_cache import CachedExecution, stub_of
from noetl_stream.server.ticks.tick import PendingTick, execution_row
from noetl_testkit.simulation.work import playbook, then, work

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


async def test_properties_of_an_execution_are_journalled_as_its_row_has_them(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    steps = [{"step": "first", "tool": work(1), "next": then("second")}, {"step": "second", "tool": work(2, 600)}]
    about = {"name": "found", "path": "simulation/found", "labels": {"team": "pay"}}
    source = playbook("found", steps, metadata=about)
    await stage.request(EXECUTION, "request-1", source, workload={"customer": "acme"})
    rows = stage.tables.executions
    await stage.until(lambda: EXECUTION in rows and rows[EXECUTION].workers != b"[]")
    row = rows[EXECUTION]
    assert b"{}" not in (row.labels, row.inputs)
    state = await stub_of(row, stage.store.real)
    labels = CachedExecution(state, UNLOADED).labels
    written = execution_row(state, row.partition, row.started_ms, row.updated_ms, labels)
    assert replace(written, commands=row.commands, status=row.status) == row
