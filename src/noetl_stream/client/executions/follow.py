"""Following one execution live: decided records and worker reports as they pass, over core NATS.

What is seen here is news, not truth: a record may be missed over a reconnect. The truth is Postgres.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from noetl_stream.model import codec
from noetl_stream.model.events import ExecutionEvaluated, ExecutionFinished, Fact
from noetl_stream.model.ids import partition_of
from noetl_stream.model.messages import InputByReport, Report
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus, Subscription


class ProgressUpdate(NamedTuple):
    """A fact that passed, and the step run of the report it came by (``None`` for the server's own facts)."""

    fact: Fact
    step_run_id: str | None


class Follower:
    """Hears everything that is said about one execution from :meth:`open` on."""

    def __init__(self, bus: Bus, execution_id: str) -> None:
        self._bus = bus
        self._execution_id = execution_id
        self._subscription: Subscription | None = None
        self._news: asyncio.Queue[ProgressUpdate] = asyncio.Queue()
        self._begun = asyncio.Event()
        self.finished = asyncio.Event()
        self.refusal: tuple[str, list[dict[str, Any]]] | None = None

    async def open(self, *, reports: bool = False) -> Follower:
        """Subscribes. ``reports``: worker reports too, which show tasks as they run."""
        partition = partition_of(self._execution_id)
        subject = subjects.decided(partition, self._execution_id)
        if reports:
            # One subscription for both: two would be heard in an order of their own.
            subject = f"{subject.rpartition('.')[0]}.*"
        self._subscription = await self._bus.listen(subject, self._on_message)
        return self

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    async def begun(self, timeout_s: float) -> bool:
        """Whether a journal record of the execution has been seen in time: its request is committed."""
        return await _in_time(self._begun, timeout_s)

    async def end(self, timeout_s: float) -> bool:
        """Whether ``execution.finished`` has been seen in time."""
        return await _in_time(self.finished, timeout_s)

    async def news(self) -> AsyncIterator[ProgressUpdate]:
        """Facts as they pass, in the order heard; ends with ``execution.finished``."""
        while True:
            news = await self._news.get()
            yield news
            if isinstance(news.fact, ExecutionFinished):
                return

    async def _on_message(self, subject: str, body: bytes, reply: str) -> None:
        if subject.endswith(".decided"):
            self._on_decided(body)
        else:
            self._on_reported(body)

    def _on_decided(self, body: bytes) -> None:
        for raw in codec.decode_record(body).entries:
            entry = codec.decode_entry(raw)
            if isinstance(entry, InputByReport):
                continue
            self._news.put_nowait(ProgressUpdate(entry, None))
            if isinstance(entry, ExecutionEvaluated) and not entry.ok:
                self.refusal = (self.refusal[0] if self.refusal else "refused", entry.diagnostics)
            elif isinstance(entry, ExecutionFinished):
                error = entry.outcome.error
                if self.refusal is not None and error is not None:
                    self.refusal = (error.message, self.refusal[1])
                self.finished.set()
        self._begun.set()

    def _on_reported(self, body: bytes) -> None:
        message = codec.decode_reported(body)
        if isinstance(message, Report):
            for raw in message.events:
                self._news.put_nowait(ProgressUpdate(codec.decode_fact(raw), message.step_run_id))


async def _in_time(event: asyncio.Event, timeout_s: float) -> bool:
    # Not `wait_for`: Python 3.11's forgets a cancellation that comes together with the event.
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
