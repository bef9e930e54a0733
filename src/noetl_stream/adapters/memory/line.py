"""The connection between the roles of a test and its broker, and the broker's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from noetl_stream.errors import Unreachable
from noetl_stream.ports.clock import Clock

DUPLICATE_WINDOW_MS = 120_000

Result = TypeVar("Result")


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
        """Runs ``action`` when the connection is up; the future ends with its result."""
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
