"""What a server does besides folding: warnings when it starts, trimming the feed."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from server_stage import ONE_STEP, Stage

from measured import samples_of
from noetl_stream.adapters.evaluation.pool import MemoryEvaluator
from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.errors import Unreachable
from noetl_stream.ports.stores.dead_letters import LetterBounds
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.server.assembly import ServerPorts, ServerTimes
from noetl_stream.server.server import Server
from noetl_stream.server.status_report import ServerStatus
from noetl_stream.server.upkeep import upkeep
from noetl_stream.server.upkeep.upkeep import TICKS_AT_ONCE, TRIM_FEED_S, TRIM_LETTERS_S, QueueSweeper, Upkeep
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_testkit.keys import CAPABILITIES, OBJECT_KEYS, SIGNER
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.journals import MemoryFeed


class Trimmed(MemoryFeed):
    """Tells what it is asked to forget, and what it answers."""

    takes_s = 0.0
    answers: list[int | Unreachable]
    calls: list[tuple[float, int, int]]

    async def trim(self, keep_ms: int, limit: int) -> int:
        clock = simulated_clock()
        self.calls.append((clock.monotonic_s(), keep_ms, limit))
        await clock.sleep(self.takes_s)
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, Unreachable):
            raise answer
        return answer


def trimmed(stage: Stage, *answers: int | Unreachable) -> Trimmed:
    feed = Trimmed(stage.store.real, stage.clock)
    feed.answers, feed.calls = list(answers), []
    return feed


async def test_a_server_warns_when_it_starts_of_settings_that_may_lose_work(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.tables.warnings.append("Postgres has fsync = off: a power failure may lose acknowledged work")
    await stage.server()
    assert [record.message for record in caplog.records if "fsync" in record.message] == stage.tables.warnings


async def test_a_long_trim_holds_up_nothing(stage: Stage) -> None:
    feed = trimmed(stage)
    feed.takes_s = 3_600.0
    host = stage.host("server")
    ports = ServerPorts(
        log=host.log,
        queue=host.queue,
        store=host.store,
        blobs=SealedBlobs(host.blobs, OBJECT_KEYS),
        task_logs=host.task_logs,
        bus=host.bus,
        clock=stage.clock,
        catalog=stage.catalog,
        evaluator=MemoryEvaluator(),
        capabilities=CAPABILITIES,
        signer=SIGNER,
        upkeep=Upkeep(stage.clock, feed=feed),
    )
    server = Server(host.name, ports, stage.kinds, ServerTimes(feed_keep_s=5.0))
    stage.running.append(asyncio.create_task(server.run()))
    await stage.until(lambda: len(server.ownership) > 0)
    stage.start_worker()
    began_s = stage.clock.monotonic_s()
    await stage.ended(await stage.submit(ONE_STEP))
    assert stage.clock.monotonic_s() - began_s < 10.0
    assert [(keep_ms, limit) for _, keep_ms, limit in feed.calls] == [(5_000, TICKS_AT_ONCE)]


async def test_a_server_drops_the_oldest_dead_letters_and_reports_it(
    stage: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = stage.store.real.dead_letters
    monkeypatch.setattr(upkeep, "LETTERS_AT_ONCE", 2)
    monkeypatch.setattr(upkeep, "LetterBounds", partial(LetterBounds, letters=3))
    stage.upkeep = Upkeep(stage.clock, letters=letters)
    server = await stage.server()
    partition = next(iter(server.ownership.ids))
    for number in range(8):
        stage.broker.event_log.store_stray(partition, f"not.{number}!", b"\x00\xff")
    await stage.until(lambda: server.counts.dead_letters["events"] == 8)
    await stage.pass_time(2 * TRIM_LETTERS_S)
    assert [one.row.execution_id for one in await letters.page(10, None)] == ["not.7!", "not.6!", "not.5!"]
    measured = samples_of(await ServerStatus(server, lambda: True).readings())
    assert measured["noetl_server_dead_letters_dropped_total"] == 5
    assert "dropped the 5 oldest dead letters: above their bounds" in caplog.messages


async def test_commands_of_executions_that_have_ended_leave_the_queue_and_others_stay(stage: Stage) -> None:
    """As after the kill of a nats-server, which forgot what it had deleted."""
    stage.start_worker()
    await stage.server()
    ended = await stage.ended(await stage.submit(ONE_STEP))
    queue = StagedBroker(stage.clock).command_queue
    left = [QueuedCommand("default", one, f"of-{one}", 1, b"{}") for one in (ended.execution_id, "01-unknown")]
    await queue.issue(left, {})
    await QueueSweeper(queue, stage.store).sweep()
    assert await queue.present() == {"of-01-unknown": "01-unknown"}


async def test_all_that_is_too_old_goes_part_by_part_and_again_after_a_failure(stage: Stage) -> None:
    feed = trimmed(stage, TICKS_AT_ONCE, TICKS_AT_ONCE, 7, Unreachable("Postgres is away"))
    trimming = asyncio.create_task(Upkeep(stage.clock, feed=feed).run(5.0, lambda: False))
    began_s = stage.clock.monotonic_s()
    while len(feed.calls) < 5:
        await stage.clock.sleep(TRIM_FEED_S / 2)
    trimming.cancel()
    assert [at_s - began_s for at_s, _, _ in feed.calls] == [0.0, 0.0, 0.0, TRIM_FEED_S, 2 * TRIM_FEED_S]
