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


class News(NamedTuple):
    """A fact that passed, and the step run of the report it came by (``None`` for the server's own facts)."""

    fact: Fact
    step_run_id: str | None


class Follower:
    """Hears everything that is said about one execution from :meth:`open` on."""

    def __init__(self, bus: Bus, execution_id: str) -> None:
        self._bus = bus
        self._execution_id = execution_id
        self._subscriptions: list[Subscription] = []
        self._news: asyncio.Queue[News] = asyncio.Queue()
        self._begun = asyncio.Event()
        self.finished = asyncio.Event()
        self.refusal: tuple[str, list[dict[str, Any]]] | None = None

    async def open(self, *, reports: bool = False) -> Follower:
        """Subscribes. ``reports``: worker reports too, which show tasks as they run."""
        partition = partition_of(self._execution_id)
        decided = subjects.decided(partition, self._execution_id)
        self._subscriptions.append(await self._bus.listen(decided, self._on_decided))
        if reports:
            reported = subjects.reported(self._execution_id)
            self._subscriptions.append(await self._bus.listen(reported, self._on_reported))
        return self

    async def close(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()

    async def begun(self, timeout_s: float) -> bool:
        """Whether a journal record of the execution has been seen in time: its request is committed."""
        return await _in_time(self._begun, timeout_s)

    async def end(self, timeout_s: float) -> bool:
        """Whether ``execution.finished`` has been seen in time."""
        return await _in_time(self.finished, timeout_s)

    async def news(self) -> AsyncIterator[News]:
        """Facts as they pass, in the order heard; ends with ``execution.finished``."""
        while True:
            news = await self._news.get()
            yield news
            if isinstance(news.fact, ExecutionFinished):
                return

    async def _on_decided(self, subject: str, body: bytes, reply: str) -> None:
        for raw in codec.decode_record(body).entries:
            entry = codec.decode_entry(raw)
            if isinstance(entry, InputByReport):
                continue
            self._news.put_nowait(News(entry, None))
            if isinstance(entry, ExecutionEvaluated) and not entry.ok:
                self.refusal = (self.refusal[0] if self.refusal else "refused", entry.diagnostics)
            elif isinstance(entry, ExecutionFinished):
                error = entry.outcome.error
                if self.refusal is not None and error is not None:
                    self.refusal = (error.message, self.refusal[1])
                self.finished.set()
        self._begun.set()

    async def _on_reported(self, subject: str, body: bytes, reply: str) -> None:
        message = codec.decode_reported(body)
        if isinstance(message, Report):
            for raw in message.events:
                self._news.put_nowait(News(codec.decode_fact(raw), message.step_run_id))


async def _in_time(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
