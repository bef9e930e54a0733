"""Starts executions as clients do, and follows them: for tests and benchmarks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from noetl_stream.model.events import ExecutionFinished, ExecutionRequested, Fact
from noetl_stream.model.events.composite import expand
from noetl_stream.model.ids import partition_of, uuid7
from noetl_stream.model.json import codec
from noetl_stream.model.messages import FORMAT, Report, Request
from noetl_stream.operations.executions.follow import Follower
from noetl_stream.operations.executions.submit import Client
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.bus import Bus, Subscription
from noetl_stream.protocol import subjects


class Submission(msgspec.Struct, frozen=True):
    """A request to run a playbook. ``source`` is its YAML text, checked before (LANGUAGE §9)."""

    source: str
    path: str
    workload: dict[str, Any]
    execution_id: str
    request_id: str
    trace_id: str = ""
    principal: str = ""

    @classmethod
    def new(cls, source: str, path: str, workload: dict[str, Any], clock: Clock, *, principal: str = "") -> Submission:
        """A submission with new ids. Submitting it again, even elsewhere, starts nothing twice."""
        return cls(
            source=source,
            path=path,
            workload=workload,
            execution_id=uuid7(clock.now_ms(), clock.random_bytes(10)),
            request_id=uuid7(clock.now_ms(), clock.random_bytes(10)),
            trace_id=clock.random_bytes(16).hex(),
            principal=principal,
        )


async def submit(client: Client, submission: Submission, follower: Follower) -> None:
    """Stores the playbook, and publishes the request until the fold has answered it.

    Args:
        follower: An open one of the execution.

    Raises:
        RequestRefused: the fold rejected it.
    """
    fact = ExecutionRequested(
        submission.request_id,
        await client.put(submission.source),
        submission.path,
        submission.workload,
        principal=submission.principal,
        trace_id=submission.trace_id,
    )
    await client.begin(Request(submission.execution_id, submission.request_id, fact, format=FORMAT), follower)


class News(NamedTuple):
    """A fact, and the step run whose report it came with (``None`` for the server's own facts)."""

    fact: Fact
    step_run_id: str | None


class Watcher(Follower):
    """A follower that tells what it hears.

    Attributes:
        finished: Set by ``execution.finished``.
    """

    def __init__(self, bus: Bus, execution_id: str) -> None:
        super().__init__(bus, execution_id)
        self.finished = asyncio.Event()
        self._news: asyncio.Queue[News] = asyncio.Queue()
        self._reports: Subscription | None = None

    async def open(self, *, reports: bool = False) -> Watcher:
        """Subscribes. ``reports``: to worker reports, too, which show tasks as they run."""
        await super().open()
        if reports:
            subject = subjects.decided(partition_of(self._execution_id), self._execution_id)
            self._reports = await self._bus.listen(f"{subject.rpartition('.')[0]}.*", self._on_reported)
        return self

    async def close(self) -> None:
        await super().close()
        if self._reports is not None:
            await self._reports.close()

    async def news(self) -> AsyncIterator[News]:
        """Facts in the order of arrival; ends with ``execution.finished``."""
        while True:
            news = await self._news.get()
            yield news
            if isinstance(news.fact, ExecutionFinished):
                return

    def _hear(self, heard: Fact) -> None:
        super()._hear(heard)
        for fact in expand(self._execution_id, heard):
            self._news.put_nowait(News(fact, None))
            if isinstance(fact, ExecutionFinished):
                self.finished.set()

    async def _on_reported(self, subject: str, body: bytes, _reply: str) -> None:
        message = None if subject.endswith(".decided") else codec.decode_reported(body)
        if isinstance(message, Report):
            for raw in message.events:
                for fact in expand(self._execution_id, codec.decode_fact(raw)):
                    self._news.put_nowait(News(fact, message.step_run_id))
