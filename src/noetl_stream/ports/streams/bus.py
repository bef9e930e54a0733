"""Transient messages over core NATS: requests to servers, nudges to workers, live journal records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

Handler = Callable[[str, bytes, str], Awaitable[None]]
"""A handler, called with subject, body and reply subject ('' if none)."""


class Subscription(Protocol):
    async def close(self) -> None: ...


class Bus(Protocol):
    def send(self, subject: str, body: bytes) -> None:
        """Sends at once, without any delivery guarantee."""

    async def flush(self) -> None:
        """Returns when the server has received everything sent before: after one round trip.

        Raises:
            Unreachable: no answer in time.
        """

    async def ask(self, subject: str, body: bytes, timeout_s: float) -> bytes | None:
        """One answer, or ``None`` if none comes in time."""

    async def ask_all(self, subject: str, body: bytes, wait_s: float) -> list[bytes]:
        """All answers that arrive within ``wait_s`` and their time on the way; an empty list without listeners."""

    async def listen(self, subject: str, handler: Handler, group: str = "") -> Subscription:
        """Calls ``handler`` for each message, in order. ``group`` shares messages among listeners of that group.

        The subscription is active on the server when this returns.
        """
