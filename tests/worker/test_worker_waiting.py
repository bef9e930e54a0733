from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from worker_stage import Stage

from noetl_stream.errors import NotReady, Unreachable
from noetl_stream.worker.waiting import ask, done_within, persist


async def test_an_answer_in_time_is_in_time(stage: Stage) -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(done_within(stage.clock, 2.0, answer))
    await stage.advance(1.9)
    answer.set_result(1)
    assert await waiting


async def test_an_answer_too_late_leaves_the_question_open(stage: Stage) -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(done_within(stage.clock, 2.0, answer))
    await stage.settle()
    await stage.advance(2.0)
    assert not await waiting
    assert not answer.cancelled()


async def test_retries_slow_down_to_once_a_second(stage: Stage) -> None:
    tries: list[float] = []

    async def action() -> str:
        tries.append(stage.clock.monotonic_s())
        if len(tries) < 9:
            raise Unreachable("not there")
        return "done"

    working = asyncio.create_task(persist(stage.clock, "try", action))
    await stage.settle()
    await stage.advance(10.0, step_s=0.025)
    assert await working == "done"
    pauses = [later - earlier for earlier, later in pairwise(tries)]
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0], rel=0.25, abs=0.06)


async def test_attempts_that_each_wait_long_are_warned_of_nevertheless(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def action() -> None:
        await stage.clock.sleep(5.0)
        raise Unreachable("no account", hint="reload it")

    working = asyncio.create_task(persist(stage.clock, "open pool night", action))
    await stage.settle()
    await stage.advance(9.0, step_s=1.0)
    assert caplog.messages == []
    await stage.advance(20.0, step_s=1.0)
    assert caplog.messages == ["open pool night: no account (reload it); will retry until it succeeds"]
    working.cancel()


async def test_a_permanent_error_is_not_retried(stage: Stage) -> None:
    async def action() -> None:
        raise NotReady("no stream")

    with pytest.raises(NotReady):
        await persist(stage.clock, "try", action)


async def test_a_question_is_asked_until_a_server_answers(stage: Stage) -> None:
    asking = asyncio.create_task(ask(stage.broker.bus, stage.clock, "noetl.ask.something"))
    await stage.settle()
    await stage.advance(5.0, step_s=1.0)

    async def server(_subject: str, _body: bytes, reply: str) -> None:
        stage.broker.bus.send(reply, b"answer")

    await stage.broker.bus.listen("noetl.ask.*", server)
    await stage.advance(8.0, step_s=1.0)
    assert await asking == b"answer"


async def test_an_answer_that_is_long_on_its_way_is_waited_for_in_the_end(stage: Stage) -> None:
    """Each question has an answer of its own, so that one that comes too late is lost."""
    bus, clock = stage.broker.bus, stage.clock

    async def answer(_subject: str, body: bytes, reply: str) -> None:
        await clock.sleep(7.0)
        bus.send(reply, body)

    async def server(subject: str, body: bytes, reply: str) -> None:
        answers.append(asyncio.create_task(answer(subject, body, reply)))

    answers: list[asyncio.Task[None]] = []
    await bus.listen("noetl.ask.something", server)
    asking = asyncio.create_task(ask(bus, clock, "noetl.ask.something", b"question"))
    await stage.settle()
    await stage.advance(30.0, step_s=0.5)
    assert await asking == b"question"
    assert len(answers) == 3
