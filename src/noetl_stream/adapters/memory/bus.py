"""The connection between the roles of a test and its broker, its clock, and the transient messages over it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from noetl_stream.concurrency import closing, end_tasks, first_done
from noetl_stream.errors import Unreachable
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.bus import Handler
from noetl_stream.trigger.stream_messages import subject_matches

log = logging.getLogger(__name__)

Result = TypeVar("Result")

DUPLICATE_WINDOW_MS = 120_000


class Line:
    """The connection of all roles, up or down. Actions held while it is down run in order when it is up again."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.is_up = True
        self._last_ms = 0
        self._held: list[Callable[[], None]] = []
        self._lost: list[Callable[[], None]] = []
        self._restored: list[Callable[[], None]] = []

    def stamp_ms(self) -> int:
        """Returns the broker's time. Each call returns a later one, so that stored times are distinct."""
        self._last_ms = max(self.clock.now_ms(), self._last_ms + 1)
        return self._last_ms

    def check(self) -> None:
        """Raises ``Unreachable`` while the connection is down."""
        if not self.is_up:
            raise Unreachable("the message broker in memory was stopped", hint="start it again")

    def hold(self, action: Callable[[], Result]) -> asyncio.Future[Result]:
        """Runs ``action`` once the connection is up; the future resolves to its result."""
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

        def act() -> None:
            result = action()
            if not done.done():
                done.set_result(result)

        if self.is_up:
            act()
        else:
            self._held.append(act)
        return done

    def on_lost(self, hook: Callable[[], None]) -> None:
        self._lost.append(hook)

    def on_restored(self, hook: Callable[[], None]) -> None:
        self._restored.append(hook)

    def stop(self) -> None:
        if self.is_up:
            self.is_up = False
            for hook in list(self._lost):
                hook()

    def start(self) -> None:
        if not self.is_up:
            self.is_up = True
            for hook in list(self._restored):
                hook()
            held, self._held = self._held, []
            for act in held:
                act()


class MessageIds:
    """Message ids stored within the duplicate window, with their sequences."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[int, int]] = {}

    def find(self, message_id: str) -> int | None:
        """Returns the sequence at which this message id was stored within the window."""
        known = self._known.get(message_id)
        if known is None or self._clock.now_ms() - known[1] > DUPLICATE_WINDOW_MS:
            return None
        return known[0]

    def add(self, message_id: str, sequence: int) -> None:
        self._known[message_id] = (sequence, self._clock.now_ms())

    def clear(self) -> None:
        self._known.clear()


class MemorySubscription:
    """A subscription that calls its handler for one message at a time."""

    def __init__(self, bus: MemoryBus, subject: str, handler: Handler, group: str) -> None:
        self.subject = subject
        self.group = group
        self._has_wildcards = "*" in subject or ">" in subject
        self._bus = bus
        self._handler = handler
        self._waiting: asyncio.Queue[tuple[str, bytes, str]] = asyncio.Queue()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def matches(self, subject: str) -> bool:
        return self.subject == subject or (self._has_wildcards and subject_matches(self.subject, subject))

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
    """:class:`~noetl_stream.ports.streams.bus.Bus` in memory. Subjects have ``*`` for one token and ``>`` the rest."""

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
        async with closing(await self.listen(reply, take)):
            if self.deliver(subject, body, reply):
                await self._line.clock.sleep(wait_s)
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
        matching = [one for one in self._subscriptions if one.matches(subject)]
        groups: dict[str, list[MemorySubscription]] = {}
        for one in matching:
            if one.group:
                groups.setdefault(one.group, []).append(one)
            else:
                one.put(subject, body, reply)
        for members in groups.values():
            members[next(self._turns) % len(members)].put(subject, body, reply)
        return bool(matching)
