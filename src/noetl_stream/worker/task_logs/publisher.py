"""The publisher of task logs: in batches, within bounds, without delaying the tasks."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from functools import partial
from typing import Final, NamedTuple, Protocol

from noetl_stream.lru import LruCache
from noetl_stream.model.messages import NamespaceShare
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.task_logs import TaskLogs
from noetl_stream.protocol import subjects
from noetl_stream.worker.waiting import Overdue
from noetl_stream.worker.worker_limits import LOG_INTERVAL_S, LONG_TASK_S, MAX_LOGS_HELD_BYTES, MAX_LOGS_IN_FLIGHT_BYTES

log = logging.getLogger(__name__)
WARN_AGAIN_S = 60.0


NAMESPACES_KEPT: Final = 1_000
REFILLED_S: Final = 60.0


class LogBudgets:
    """Budgets of bytes by namespace: a minute's share at once after a rest, and the same per minute from then on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: LruCache[str, tuple[float, float]] = LruCache(NAMESPACES_KEPT)

    def left(self, share: NamespaceShare) -> float:
        """The bytes that a namespace may write now; infinity without a bound, negative above it."""
        if not share.log_bytes:
            return math.inf
        left, at_s = self._left.get(share.namespace) or (math.inf, 0.0)
        refilled = (self._clock.monotonic_s() - at_s) / REFILLED_S * share.log_bytes
        return min(share.log_bytes, left + refilled)

    def spend(self, share: NamespaceShare, size: int) -> None:
        """Counts bytes written by a namespace."""
        if share.log_bytes:
            self._left.put(share.namespace, (self.left(share) - size, self._clock.monotonic_s()))


class EncodedBatch(NamedTuple):
    """A batch to publish. ``lines`` is their number, ``share`` that of its namespace."""

    execution_id: str
    step_run_id: str
    share: NamespaceShare
    body: bytes
    lines: int

    def subject(self, pool: str) -> str:
        """The subject on which workers of a pool publish it."""
        namespace = self.share.namespace
        named = subjects.named_in_logs(namespace) if namespace else self.step_run_id
        return subjects.task_logs(pool, self.execution_id, named)


class LineHolder(Protocol):
    """A holder of log lines that flushes them when they are due."""

    def flush(self) -> None: ...


class RunningTask(Protocol):
    """A running task. ``began_s`` is by the monotonic clock."""

    began_s: float

    def begun(self) -> None: ...


class LogPublisher:
    """The logs of all tasks of a worker.

    A short task without output costs two dictionary entries, no message and no timer.

    Attributes:
        running: Says of each running task that it has begun, once it has run for :data:`LONG_TASK_S`.
        lines_dropped: Lines that are not stored: they exceeded a bound, or the stream did not take them.
        bytes_published: The size of the stored batches.
    """

    def __init__(self, logs: TaskLogs, worker: str, pool: str, clock: Clock) -> None:
        self.worker = worker
        self.clock = clock
        self.lines_dropped = 0
        self.bytes_published = 0
        self._logs = logs
        self._pool = pool
        self._due: dict[LineHolder, None] = {}
        self.running: Overdue[RunningTask] = Overdue(
            clock, LONG_TASK_S, lambda task: task.began_s, lambda task: task.begun()
        )
        self._is_due = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._queue: deque[EncodedBatch] = deque()
        self._budgets = LogBudgets(clock)
        self._held_bytes = 0
        self._held_by = Counter[str]()
        self._in_flight_bytes = 0
        self._published = 0
        self._warned_s = -WARN_AGAIN_S

    def flush_soon(self, holder: LineHolder) -> None:
        """Calls ``holder.flush()`` within :data:`LOG_INTERVAL_S`."""
        if not self._due:
            self._is_due.set()
        self._due[holder] = None

    def has_room(self, share: NamespaceShare, size: int, *, own: bool = False) -> bool:
        """Whether a batch of this size may be published now. A quarter of the room is for the worker's ``own`` lines.

        A namespace may hold no more than it leaves to others, and write no more than its budget.
        """
        room = MAX_LOGS_HELD_BYTES if own else MAX_LOGS_HELD_BYTES * 3 // 4
        spared = 0 if own else share.log_bytes // 4
        fits = self._held_bytes + self._held_by[share.namespace] + size <= room
        return fits and size <= self._budgets.left(share) - spared

    def publish(self, batch: EncodedBatch) -> None:
        """Publishes a batch, in the order of calls."""
        self._budgets.spend(batch.share, len(batch.body))
        self._hold(batch, len(batch.body))
        self._idle.clear()
        self._queue.append(batch)
        self._send_some()

    async def run(self) -> None:
        """Flushes due log lines until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flush_forever())
            group.create_task(self.running.run())

    async def drain(self) -> None:
        """Waits until every batch is stored or given up."""
        self._flush_all()
        await self._idle.wait()

    async def _flush_forever(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            await self.clock.sleep(LOG_INTERVAL_S)
            self._flush_all()

    def _flush_all(self) -> None:
        for _ in range(2):  # attempts pass their lines on to the steps, which publish them
            due, self._due = self._due, {}
            for holder in due:
                holder.flush()

    def _send_some(self) -> None:
        while self._queue and self._in_flight_bytes < MAX_LOGS_IN_FLIGHT_BYTES:
            batch = self._queue.popleft()
            self._in_flight_bytes += len(batch.body)
            self._published += 1
            message_id = f"{self.worker}.{self._published}"
            self._logs.publish(batch.subject(self._pool), message_id, batch.body, partial(self._done, batch))

    def _hold(self, batch: EncodedBatch, size: int) -> None:
        self._held_bytes += size
        self._held_by[batch.share.namespace] += size
        if not self._held_by[batch.share.namespace]:
            del self._held_by[batch.share.namespace]

    def _done(self, batch: EncodedBatch, why_not: str) -> None:
        size = len(batch.body)
        self._in_flight_bytes -= size
        self._hold(batch, -size)
        if why_not:
            self.lines_dropped += batch.lines
            self._warn(why_not)
        else:
            self.bytes_published += size
        self._send_some()
        if not self._held_bytes:
            self._idle.set()

    def _warn(self, why: str) -> None:
        now_s = self.clock.monotonic_s()
        if now_s - self._warned_s >= WARN_AGAIN_S:
            self._warned_s = now_s
            log.warning("logs of tasks are not stored: %s", why)
