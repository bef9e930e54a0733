"""Conformance of :class:`~noetl_stream.ports.streams.bus.Bus`, as tests to inherit.

A test class inherits :class:`BusConformance`; the module or its ``conftest.py`` provides one fixture:

``bus``
    A bus of its own.
"""

from __future__ import annotations

import asyncio

from noetl_stream.ports.streams.bus import Bus, Subscription
from noetl_testkit.waiting import TIMEOUT_S

SHORT_S = 0.05
ENOUGH_S = 0.3


class RecordingHandler:
    """A handler that records messages."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

    async def __call__(self, subject: str, body: bytes, reply: str) -> None:
        self.heard.put_nowait((subject, body))

    async def next(self) -> tuple[str, bytes]:
        return await asyncio.wait_for(self.heard.get(), TIMEOUT_S)


class BusConformance:
    async def test_messages_arrive_in_the_order_sent(self, bus: Bus) -> None:
        ear = RecordingHandler()
        subscription = await bus.listen("noetl.nudge.worker-1", ear)
        for number in range(100):
            bus.send("noetl.nudge.worker-1", b"%d" % number)
        assert [await ear.next() for _ in range(100)] == [("noetl.nudge.worker-1", b"%d" % n) for n in range(100)]
        await subscription.close()

    async def test_wildcards_take_one_token_or_the_rest(self, bus: Bus) -> None:
        one, rest = RecordingHandler(), RecordingHandler()
        subscriptions = [await bus.listen("noetl.a.*", one), await bus.listen("noetl.a.>", rest)]
        bus.send("noetl.a.b.c", b"deep")
        bus.send("noetl.b", b"elsewhere")
        bus.send("noetl.a.b", b"flat")
        assert await one.next() == ("noetl.a.b", b"flat")
        assert [await rest.next(), await rest.next()] == [("noetl.a.b.c", b"deep"), ("noetl.a.b", b"flat")]
        for subscription in subscriptions:
            await subscription.close()

    async def test_a_group_shares_its_messages(self, bus: Bus) -> None:
        heard = RecordingHandler()
        subscriptions = [await bus.listen("noetl.ask.x", heard, group="servers") for _ in range(3)]
        for number in range(30):
            bus.send("noetl.ask.x", b"%d" % number)
        bodies = [(await heard.next())[1] for _ in range(30)]
        assert sorted(map(int, bodies)) == list(range(30))
        assert heard.heard.empty()
        for subscription in subscriptions:
            await subscription.close()

    async def test_a_question_gets_its_answer(self, bus: Bus) -> None:
        async def answer(subject: str, body: bytes, reply: str) -> None:
            bus.send(reply, subject.encode() + b" " + body)

        subscription = await bus.listen("noetl.ask.>", answer)
        answers = await asyncio.gather(*(bus.ask(f"noetl.ask.{n}", b"?", TIMEOUT_S) for n in range(20)))
        assert answers == [b"noetl.ask.%d ?" % n for n in range(20)]
        await subscription.close()

    async def test_a_question_without_a_listener_has_no_answer(self, bus: Bus) -> None:
        assert await asyncio.wait_for(bus.ask("noetl.ask.nobody", b"?", 2 * TIMEOUT_S), TIMEOUT_S) is None

    async def test_a_question_without_an_answer_times_out(self, bus: Bus) -> None:
        ear = RecordingHandler()
        subscription = await bus.listen("noetl.ask.silent", ear)
        assert await asyncio.wait_for(bus.ask("noetl.ask.silent", b"?", SHORT_S), TIMEOUT_S) is None
        assert (await ear.next())[1] == b"?"
        await subscription.close()

    async def test_everybody_who_listens_may_answer_one_question(self, bus: Bus) -> None:
        async def answer_as(name: bytes) -> Subscription:
            async def answer(subject: str, body: bytes, reply: str) -> None:
                bus.send(reply, name + body)

            return await bus.listen("noetl.ask.all", answer)

        subscriptions = [await answer_as(b"worker-%d" % n) for n in range(5)]
        answers = await bus.ask_all("noetl.ask.all", b"!", ENOUGH_S)
        assert sorted(answers) == [b"worker-%d!" % n for n in range(5)]
        for subscription in subscriptions[1:]:
            await subscription.close()
        assert await bus.ask_all("noetl.ask.all", b"?", ENOUGH_S) == [b"worker-0?"]
        await subscriptions[0].close()

    async def test_a_question_to_all_without_listeners_ends_at_once(self, bus: Bus) -> None:
        assert await asyncio.wait_for(bus.ask_all("noetl.ask.all", b"?", 2 * TIMEOUT_S), TIMEOUT_S) == []

    async def test_a_closed_subscription_receives_nothing_more(self, bus: Bus) -> None:
        closed, open_ear = RecordingHandler(), RecordingHandler()
        subscription = await bus.listen("noetl.x", closed)
        other = await bus.listen("noetl.x", open_ear)
        await subscription.close()
        bus.send("noetl.x", b"late")
        assert (await open_ear.next())[1] == b"late"
        assert closed.heard.empty()
        await other.close()

    async def test_messages_are_handled_one_after_the_other(self, bus: Bus) -> None:
        steps: asyncio.Queue[bytes] = asyncio.Queue()

        async def slow(subject: str, body: bytes, reply: str) -> None:
            steps.put_nowait(b"begin " + body)
            await asyncio.sleep(0)
            steps.put_nowait(b"end " + body)

        subscription = await bus.listen("noetl.x", slow)
        for body in (b"1", b"2"):
            bus.send("noetl.x", body)
        found = [await asyncio.wait_for(steps.get(), TIMEOUT_S) for _ in range(4)]
        assert found == [b"begin 1", b"end 1", b"begin 2", b"end 2"]
        await subscription.close()

    async def test_a_failing_handler_does_not_end_the_subscription(self, bus: Bus) -> None:
        ear = RecordingHandler()

        async def fail_once(subject: str, body: bytes, reply: str) -> None:
            if body == b"bad":
                raise ValueError("a defect in a handler")
            await ear(subject, body, reply)

        subscription = await bus.listen("noetl.x", fail_once)
        bus.send("noetl.x", b"bad")
        bus.send("noetl.x", b"good")
        assert (await ear.next())[1] == b"good"
        await subscription.close()
