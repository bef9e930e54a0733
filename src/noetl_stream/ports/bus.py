"""Messages that need no memory: questions to any server, nudges to workers, live decided records (core NATS)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

Handler = Callable[[str, bytes, str], Awaitable[None]]
"""Called with subject, body, reply subject ('' if none)."""


class Subscription(Protocol):
    async def close(self) -> None: ...


class Bus(Protocol):
    def send(self, subject: str, body: bytes) -> None:
        """Sends at once and forgets. Nothing is promised."""
        ...

    async def ask(self, subject: str, body: bytes, timeout_s: float) -> bytes | None:
        """One answer, or ``None`` in time: nobody listened, or nobody answered."""
        ...

    async def ask_all(self, subject: str, body: bytes, wait_s: float) -> list[bytes]:
        """Every answer that comes within ``wait_s``; none, at once, if nobody listens."""
        ...

    async def listen(self, subject: str, handler: Handler, group: str = "") -> Subscription:
        """Calls ``handler`` for each message, in order. ``group`` shares messages among listeners of that group.

        When this returns the subscription is active on the server.
        """
        ...
