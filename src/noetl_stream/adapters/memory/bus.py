"""Transient messages in memory."""

from __future__ import annotations

import asyncio
import logging
from itertools import count

from noetl_stream.adapters.memory.line import Line
from noetl_stream.concurrency import end_tasks, first_done
from noetl_stream.ports.streams.bus import Handler

log = logging.getLogger(__name__)


class MemorySubscription:
    """A subscription that calls its handler for one message at a time."""

    def __init__(self, bus: MemoryBus, subject: str, handler: Handler, group: str) -> None:
        self.subject = subject
        self.group = group
        self._bus = bus
        self._handler = handler
        self._waiting: asyncio.Queue[tuple[str, bytes, str]] = asyncio.Queue()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def put(self, subject: str, body: bytes, reply: str) -> None:
        self._waiting.put_nowait((subject, body, reply))

    async def close(self) -> None:
        self._bus.remove(self)
        await end_tasks([self._task])

    async def _run(self) -> None:
        while True:
            subject, body, reply = await self._waiting.get()
            try:
                await self._handler(subject, body, reply)
            except Exception:
                log.exception("handling a message on %s failed", subject)


class MemoryBus:
    """:class:`~noetl_stream.ports.streams.bus.Bus` in memory. Subjects have ``*`` for one token and ``>`` for the
    rest.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._subscriptions: list[MemorySubscription] = []
        self._asked: dict[str, asyncio.Future[bytes]] = {}
        self._numbers = count(1)
        self._turns = count()

    def send(self, subject: str, body: bytes) -> None:
        self.deliver(subject, body, "")

    async def flush(self) -> None:
        self._line.check()

    async def ask(self, subject: str, body: bytes, timeout_s: float) -> bytes | None:
        reply = f"_INBOX.{next(self._numbers)}"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[reply] = answer
        try:
            if not self.deliver(subject, body, reply):
                return None
            answered = await first_done([answer], self._line.clock.sleep(timeout_s))
            return answer.result() if answered else None
        finally:
            del self._asked[reply]

    async def ask_all(self, subject: str, body: bytes, wait_s: float) -> list[bytes]:
        answers: list[bytes] = []

        async def take(_subject: str, answer: bytes, _reply: str) -> None:
            answers.append(answer)

        reply = f"_INBOX.{next(self._numbers)}"
        subscription = await self.listen(reply, take)
        try:
            if self.deliver(subject, body, reply):
                await self._line.clock.sleep(wait_s)
        finally:
            await subscription.close()
        return answers

    async def listen(self, subject: str, handler: Handler, group: str = "") -> MemorySubscription:
        self._line.check()
        subscription = MemorySubscription(self, subject, handler, group)
        self._subscriptions.append(subscription)
        return subscription

    def remove(self, subscription: MemorySubscription) -> None:
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)

    def deliver(self, subject: str, body: bytes, reply: str) -> bool:
        """Delivers a message to all listeners, one per group; returns whether there were any."""
        if not self._line.is_up:
            return False
        answer = self._asked.get(subject)
        if answer is not None:
            if not answer.done():
                answer.set_result(body)
            return True
        matching = [one for one in self._subscriptions if _matches(one.subject, subject)]
        groups: dict[str, list[MemorySubscription]] = {}
        for one in matching:
            if one.group:
                groups.setdefault(one.group, []).append(one)
            else:
                one.put(subject, body, reply)
        for members in groups.values():
            members[next(self._turns) % len(members)].put(subject, body, reply)
        return bool(matching)


def _matches(pattern: str, subject: str) -> bool:
    if "*" not in pattern and ">" not in pattern:
        return pattern == subject
    expected, given = pattern.split("."), subject.split(".")
    for at, token in enumerate(expected):
        if token == ">":
            return len(given) > at
        if at >= len(given) or token not in ("*", given[at]):
            return False
    return len(expected) == len(given)
