from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.model.ids import PARTITIONS
from noetl_stream.model.rights import namespace_of
from noetl_stream.server.inputs.fair_queue import UnfoldedMessages
from noetl_stream.server.inputs.reader import Backlog, PartitionReader
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import JOBS, Job

EXECUTION = "execution-1"


class Breaking(FaultInjector):
    """Breaks all readers at the n-th thing any server does."""

    def __init__(self, stage: Stage, at: int) -> None:
        self.stage = stage
        self.left = at

    async def inject(self, host: SimulatedHost, point: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.stage.broker.event_log.break_readers()


@pytest.mark.parametrize("at", range(1, 60, 3))
async def test_a_reader_may_break_at_any_point(stage: Stage, at: int) -> None:
    injector = Breaking(stage, 10**9)
    server, _, task = stage.start_server(stage.host("server", injector))
    await stage.until(lambda: len(server.ownership) == 32)
    stage.start_worker()
    injector.left = at
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    assert not task.done()
    assert set(stage.effects.values()) == {1}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
async def test_nats_may_be_away_for_a_while_now_and_then(stage: Stage, job: Job) -> None:
    await stage.server()
    stage.start_worker()
    await stage.begin(EXECUTION, job)
    for away_s in (0.3, 1.0, 3.0, 12.0):
        await stage.pass_time(0.7)
        stage.broker.stop()
        await stage.pass_time(away_s)
        stage.broker.start()
    row = await stage.ended(EXECUTION)
    assert row.status == job.status
    assert not stage.running[0].done()


async def test_a_reader_that_breaks_at_once_again_and_again_is_not_opened_in_a_rush(stage: Stage) -> None:
    await stage.server()
    log: Any = stage.broker.event_log
    opened: list[float] = []
    real = log.open_reader

    async def open_broken(partitions: Any, after: int, *choice: bool) -> Any:
        opened.append(stage.clock.monotonic_s())
        reader = await real(partitions, after)
        reader.break_off("it never works")
        return reader

    log.open_reader = open_broken
    log.break_readers()
    await stage.pass_time(5)
    assert 2 <= len(opened) <= 6
    first, *_, last = (after - before for before, after in pairwise(opened))
    assert first < 1.0 < last
    log.open_reader = real
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)


async def test_a_defect_in_a_reader_stops_the_server_with_that_error(stage: Stage) -> None:
    class Defect(FaultInjector):
        async def inject(self, host: SimulatedHost, point: str) -> None:
            if point == "log.next_batch.done":
                raise ZeroDivisionError("a defect")

    stage.start_server(stage.host("server", Defect()))
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    with pytest.raises(ZeroDivisionError):
        await stage.running[0]


async def test_all_waits_for_messages_share_one_alarm() -> None:
    clock = ManualClock()
    log = StagedBroker(clock).event_log
    reader = PartitionReader(log, clock, UnfoldedMessages(lambda _: None, namespace_of))
    await reader.add(range(PARTITIONS), after=0)
    for number in range(5):
        await log.publish_request(EXECUTION, f"request-{number}", b"{}")
        assert len(await reader.take(10.0)) == 1
    taking = asyncio.create_task(reader.take(1.0))  # which moves the alarm
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert clock.sleepers == 1
    clock.advance(1.0)
    assert await taking == []
    await reader.close()
    assert clock.sleepers == 0


async def test_messages_of_a_tick_are_written_before_the_server_looks_for_more(stage: Stage) -> None:
    host = stage.host("server")
    server, _, _ = stage.start_server(host)
    log: Any = host.log
    reader: Any = server.reader
    publish, take = log.publish_decided, reader.take
    order: list[str] = []

    def publish_later(messages: Any) -> Any:
        order.append("sent")
        asyncio.get_running_loop().call_soon(order.append, "written")  # as a connection writes: once a turn
        return publish(messages)

    async def take_noted(timeout_s: float) -> Any:
        order.append("looked")
        return await take(timeout_s)

    log.publish_decided, reader.take = publish_later, take_noted
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    sent = [place for place, what in enumerate(order) if what == "sent"]
    assert sent
    assert {order[place + 1] for place in sent} == {"written"}


async def test_a_backlog_is_what_the_reader_heard_and_grows_with_the_stream_while_nothing_is_taken() -> None:
    stream = Heard()
    backlog = Backlog(stream, stream)  # type: ignore[arg-type]
    assert await backlog.messages() == 0
    stream.received, stream.pending, stream.held_bytes = 5, 100, 50
    assert await backlog.messages() == 100
    assert await backlog.messages() == 100, "nothing came, and nothing says that it grew"
    stream.end += 30
    assert await backlog.messages() == 130
    stream.received, stream.pending, stream.held_bytes = 6, 129, 0
    assert await backlog.messages() == 129
    stream.end += 1000
    assert await backlog.messages() == 129, "what was read is folded: what came since is the records of that"


class Heard:
    """What a reader has heard of EVENTS, and where that ends."""

    received = pending = held_bytes = end = 0

    async def last_sequence(self) -> int:
        return self.end
