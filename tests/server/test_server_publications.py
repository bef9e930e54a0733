from __future__ import annotations

from typing import Any

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.model.events import CancelRequested
from noetl_stream.server.ticks import publications
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost


class SlowIssue(FaultInjector):
    """Lets commands take long to reach the queue."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def inject(self, host: SimulatedHost, point: str) -> None:
        if point == "queue.issue":
            await self.stage.clock.sleep(5)


async def test_a_command_is_withdrawn_once_it_is_known_to_stand(stage: Stage) -> None:
    stage.start_server(stage.host("server", SlowIssue(stage)), reconcile_s=1000.0)
    await stage.request("execution-1", "request-1", ONE_STEP)
    await stage.until(lambda: "execution-1" in stage.tables.executions)
    await stage.ask("execution-1", CancelRequested("cancel-1"))
    assert (await stage.ended("execution-1")).status == "cancelled"
    assert await stage.broker.command_queue.present() == {}
    await stage.pass_time(10)
    assert await stage.broker.command_queue.present() == {}


async def test_nothing_more_is_folded_while_too_much_is_unacknowledged(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publications, "MAX_UNACKNOWLEDGED_BYTES", 1)
    server = await stage.server()
    log: Any = stage.broker.event_log
    held: list[Any] = []
    publish = log.publish_decided

    async def refuse(messages: Any) -> int:
        held.append(messages)
        await stage.clock.sleep(30)  # EVENTS is full, until someone makes room
        return 0

    log.publish_decided = refuse
    await stage.request("execution-1", "request-1", ONE_STEP)
    await stage.until(lambda: server.publications.is_full)
    await stage.request("execution-2", "request-2", ONE_STEP)
    await stage.pass_time(20)
    assert list(stage.tables.executions) == ["execution-1"]
    assert len(server.ownership) == 32  # its leases are renewed meanwhile
    log.publish_decided = publish
    stage.start_worker()
    await stage.ended("execution-1")
    await stage.ended("execution-2")
