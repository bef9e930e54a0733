"""Asking something of an execution, with servers that answer, refuse, are late, or are not there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.errors import OutcomeUnknown
from noetl_stream.model.events import SignalReceived
from noetl_stream.model.json import codec
from noetl_stream.model.messages import FORMAT, Request
from noetl_stream.operations.executions.submit import RequestRefused, Requests, ask_of
from noetl_stream.ports.operations.executions import AcceptedDocument
from noetl_stream.protocol import subjects
from noetl_testkit.keys import SIGNER
from noetl_testkit.memory.broker import StagedBroker

SIGNAL = SignalReceived("request-1", signal="go", payload=[1])
DONE = {"known": True, "answer": {"ok": True, "execution_id": "execution-1", "position": 7}}
REFUSED = {"known": True, "answer": {"ok": False, "execution_id": "execution-1", "error": "it has ended"}}
UNKNOWN = {"known": False}
PUBLISHED = codec.decode_reported(SIGNER.encode(Request("execution-1", "request-1", SIGNAL, format=FORMAT)))
ACCEPTED = AcceptedDocument("execution-1", 7)


class World:
    """A broker, and what any server says each time it is asked: the last answer stays. ``None``: it cannot say."""

    def __init__(self, *answers: Any) -> None:
        self.clock = simulated_clock()
        self.broker = StagedBroker(self.clock)
        self.requests = Requests(self.broker.event_log, SIGNER)
        self.answers = list(answers)
        self.lookups = 0

    async def serve(self) -> None:
        await self.broker.bus.listen("noetl.ask.request.execution-1.request-1", self.answer, "servers")

    async def ask(self, **more: Any) -> AcceptedDocument:
        return await ask_of(self.requests, self.broker.bus, self.clock, "execution-1", SIGNAL, **more)

    def published(self) -> list[Any]:
        return [codec.decode_reported(stored.message.body) for stored in self.broker.event_log.stored]

    async def answer(self, _subject: str, _body: bytes, reply: str) -> None:
        self.lookups += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.broker.bus.send(reply, codec.encode(answer))


async def serving(*answers: Any) -> World:
    world = World(*answers)
    await world.serve()
    return world


async def test_the_folds_answer_arrives_as_soon_as_it_is_committed() -> None:
    world = await serving(UNKNOWN)
    asking = asyncio.create_task(world.ask())
    await world.clock.sleep(0.01)
    world.broker.bus.send(subjects.answered("execution-1", "request-1"), codec.encode(DONE["answer"]))
    assert await asking == ACCEPTED
    assert world.lookups == 0, "nothing was looked up"
    assert world.published() == [PUBLISHED]


async def test_an_answer_that_was_given_before_is_looked_up_at_once() -> None:
    world = await serving(DONE)
    assert await world.ask() == ACCEPTED
    assert world.clock.monotonic_s() < 1


async def test_an_answer_whose_push_is_lost_is_looked_up() -> None:
    world = await serving(UNKNOWN, DONE)
    assert await world.ask() == ACCEPTED
    assert world.lookups == 2 and len(world.published()) == 1


async def test_a_refusal_is_an_error_with_its_reason() -> None:
    world = await serving(UNKNOWN, REFUSED)
    with pytest.raises(RequestRefused, match="it has ended"):
        await world.ask()


async def test_while_no_server_answers_the_same_request_goes_out_again() -> None:
    world = World(DONE)
    calls: list[int] = []

    async def unanswered() -> None:
        calls.append(len(calls))
        world.broker.event_log.forget_message_ids()
        if len(calls) == 3:
            await world.serve()

    assert await world.ask(unanswered=unanswered) == ACCEPTED
    assert len(calls) == 3
    assert world.published() == [PUBLISHED] * 4


async def test_a_server_that_cannot_say_is_asked_again() -> None:
    world = await serving(None, None, DONE)
    assert await world.ask() == ACCEPTED
    assert len(world.published()) == 1, "the log knows the message by its id"


async def test_a_publication_of_unknown_outcome_is_not_a_failure() -> None:
    world = await serving(DONE)
    log: Any = world.broker.event_log

    async def unknown(*_: Any) -> int:
        raise OutcomeUnknown("no acknowledgement")

    log.publish_request = unknown
    assert await world.ask() == ACCEPTED


async def test_the_same_request_id_for_another_execution_is_another_message() -> None:
    """The log forgets nothing of an id for two minutes: an id that names the request alone would swallow the second."""
    world = await serving(DONE)
    await world.ask()
    await world.broker.bus.listen("noetl.ask.request.execution-2.request-1", world.answer, "servers")
    await ask_of(world.requests, world.broker.bus, world.clock, "execution-2", SIGNAL)
    assert [request.execution_id for request in world.published()] == ["execution-1", "execution-2"]


async def test_asking_can_be_given_up() -> None:
    world = World(DONE)
    asking = asyncio.create_task(world.ask())
    await world.clock.sleep(60)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert world.published()
