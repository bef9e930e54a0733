"""Costs of answers, charged to their callers: time of the processor and of Postgres, turns at long answers.

Law: a caller that exceeds its part waits or is refused, and nobody else waits for it.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from noetl_stream.concurrency import result_until
from noetl_stream.errors import TooBusy
from noetl_stream.lru import LruCache
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.idempotency import CHARGED, ChargedQueries
from noetl_stream.ports.stores.identities import Caller
from noetl_stream.settings.gateway_settings import GATEWAY_PREFIX

REMEMBERED: Final = 10_000


class _Level(NamedTuple):
    amount: float
    at_s: float


class LeakyBuckets:
    """A leaky bucket for each key; of very many keys, the least recently used are forgotten.

    Args:
        most: The capacity of a bucket.
        leaks_per_s: The loss of a bucket each second.
    """

    def __init__(self, clock: Clock, most: float, leaks_per_s: float) -> None:
        self._clock = clock
        self._most = most
        self._leaks_per_s = leaks_per_s
        self._levels: LruCache[str, _Level] = LruCache(REMEMBERED)

    def full_for_s(self, key: str) -> float:
        """The seconds until there is room for one unit; 0 if there is."""
        return max(0.0, (self._amount(key) - self._most + 1) / self._leaks_per_s)

    def require(self, key: str, message: str, hint: str | None = None) -> None:
        """Raises :class:`~noetl_stream.errors.TooBusy` with this message while there is no room for one unit."""
        if wait_s := self.full_for_s(key):
            raise TooBusy(message, wait_s, hint=hint)

    def add(self, key: str, amount: float = 1.0) -> None:
        """Adds to the bucket, or takes out of it if negative."""
        self._levels.put(key, _Level(max(0.0, self._amount(key) + amount), self._clock.monotonic_s()))

    def _amount(self, key: str) -> float:
        level = self._levels.get(key)
        if level is None:
            return 0.0
        return max(0.0, level.amount - (self._clock.monotonic_s() - level.at_s) * self._leaks_per_s)


Result = TypeVar("Result")
Given = ParamSpec("Given")

HEAVY_S: Final = 0.05
"""The processor time below which an answer is not charged: quick calls are bounded by their number."""

AT_ONCE_S: Final = 10.0
"""The processor time that a caller may use in a row, before its part of each second bounds it."""

HEAVY_AT_ONCE: Final = 2
"""The number of possibly long answers made for one caller at a time."""

QUERIES_AT_ONCE: Final = 2
"""The connections to Postgres for the reads of one caller, and for its changes, which wait for no read."""

QUERY_TIME_AT_ONCE_S: Final = 30.0
"""The Postgres time that a caller may use in a row; after that, it has the time of one connection."""

LEAST_PERCENT: Final = 1

QUICK_AT_ONCE_S: Final = 0.1
"""The processor time that a caller may use in a row before its answers are delayed."""

LONGEST_DELAY_S: Final = 1.0

SHARED_S: Final = 2.0
"""The time for which a caller counts as one of several that share a gateway."""

ASK_LESS: Final = "ask less often, or for less; cancel, pause and patch are still accepted"


@dataclass(slots=True)
class _SpentTime:
    """The processor time of one request, on the loop and in threads, in seconds."""

    loop_s: float = 0.0
    threads_s: list[float] = field(default_factory=list)

    @property
    def spent_s(self) -> float:
        return self.loop_s + sum(self.threads_s)


_METER: ContextVar[_SpentTime | None] = ContextVar("meter", default=None)


class MeteredThreads(ThreadPoolExecutor):
    """Threads for work beside the loop, metered by request.

    Args:
        processor_s: The processor time used by the calling thread.
    """

    def __init__(self, processor_s: Callable[[], float] = time.thread_time) -> None:
        super().__init__(thread_name_prefix="noetl-beside")
        self._processor_s = processor_s

    def submit(self, fn: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs) -> Future[Result]:
        """Runs ``fn`` in a thread, charged to the current request."""
        meter, processor_s = _METER.get(), self._processor_s
        if meter is None:
            return super().submit(fn, *args, **kwargs)

        def metered_work() -> Result:
            began_s = processor_s()
            try:
                return fn(*args, **kwargs)
            finally:
                meter.threads_s.append(processor_s() - began_s)

        return super().submit(metered_work)


class ProcessorBudgets:
    """A part of the processor for each caller.

    Args:
        percent: Of one processor.
        processor_s: The processor time used by the calling thread.
    """

    def __init__(self, clock: Clock, percent: int, processor_s: Callable[[], float] = time.thread_time) -> None:
        self._percent = max(LEAST_PERCENT, percent)
        self._spent = LeakyBuckets(clock, AT_ONCE_S, self._percent / 100)
        self._processor_s = processor_s

    def admit(self, caller: Caller) -> None:
        """Raises :class:`~noetl_stream.errors.TooBusy` while the caller has used up its part."""
        variable = f"{GATEWAY_PREFIX}MAX_CALLER_PROCESSOR_PERCENT={self._percent}"
        message = f"the answers to {caller.principal} took too much of the processor ({variable})"
        self._spent.require(caller.principal, message, ASK_LESS)

    async def charged(self, caller: Caller, work: Coroutine[Any, Any, Result]) -> Result:
        """Awaits ``work`` and charges its processor time to the caller. Raises its errors."""
        meter = _SpentTime()
        token = _METER.set(meter)
        try:
            return await _metered(work, meter, self._processor_s)
        finally:
            _METER.reset(token)
            if meter.spent_s >= HEAVY_S:
                self._spent.add(caller.principal, meter.spent_s)


class CallerPace:
    """Delays the answers of a caller that takes much of the gateway's processor while others call it, too.

    Quick calls, refused ones among them, are neither long nor many at a time; a caller that sends the next as soon as
    one is answered would otherwise leave the others the rest of one processor.

    Args:
        percent: Of one processor, which a caller may use before its answers are delayed.
        processor_s: The processor time used by the calling thread.
    """

    def __init__(self, clock: Clock, percent: int, processor_s: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        part = max(LEAST_PERCENT, percent) / 100
        self._spent = LeakyBuckets(clock, 2.0, part / QUICK_AT_ONCE_S)
        self._processor_s = processor_s
        self._seen_s: dict[str, float] = {}

    async def kept(self, answering: Coroutine[Any, Any, Result], caller_of: Callable[[], str]) -> Result:
        """Awaits an answer, and then its caller's turn. Raises the errors of ``answering``.

        Args:
            caller_of: Returns the caller, once the answer is known; empty for one that is not paced.
        """
        meter = _SpentTime()
        try:
            return await _metered(answering, meter, self._processor_s)
        finally:
            caller = caller_of()
            if caller:
                self._spent.add(caller, meter.loop_s / QUICK_AT_ONCE_S)
                if self._is_shared(caller) and (wait_s := self._spent.full_for_s(caller)):
                    await self._clock.sleep(min(wait_s, LONGEST_DELAY_S))

    def _is_shared(self, caller: str) -> bool:
        """Whether another caller has been answered within :data:`SHARED_S`."""
        now_s = self._clock.monotonic_s()
        self._seen_s.pop(caller, None)
        self._seen_s[caller] = now_s
        while (oldest := next(iter(self._seen_s))) != caller and now_s - self._seen_s[oldest] > SHARED_S:
            del self._seen_s[oldest]
        return len(self._seen_s) > 1


@types.coroutine
def _metered(
    work: Coroutine[Any, Any, Result], meter: _SpentTime, processor_s: Callable[[], float]
) -> Generator[Any, Any, Result]:
    """Awaits ``work``, and adds up the times of its steps on the loop."""
    sent, error = None, None
    while True:
        began_s = processor_s()
        try:
            waits_for = work.send(sent) if error is None else work.throw(error)
        except StopIteration as ended:
            result: Result = ended.value
            return result
        finally:
            meter.loop_s += processor_s() - began_s
        sent, error = None, None
        try:
            sent = yield waits_for
        except GeneratorExit:
            work.close()
            raise
        except BaseException as thrown:
            error = thrown


@dataclass(slots=True)
class _Turns:
    free: asyncio.Semaphore
    users: int = 0


class CallerTurns:
    """Makes a few possibly long answers for a caller at a time. Its others wait in a queue of their own.

    Args:
        at_once: Their number.
    """

    def __init__(self, at_once: int = HEAVY_AT_ONCE) -> None:
        self._at_once = at_once
        self._of_caller: dict[str, _Turns] = {}
        self.under_way = 0

    @asynccontextmanager
    async def taken(self, principal: str, leaving: asyncio.Event) -> AsyncIterator[None]:
        """Waits for a turn, which lasts until the end of the block.

        Args:
            leaving: Set when the caller has disconnected.

        Raises:
            TooBusy: the caller has disconnected before its turn.
        """
        with self.of(principal) as free:
            if not await result_until(free.acquire(), leaving.wait()):
                raise TooBusy(f"{principal} did not wait for its turn", 1.0)
            self.under_way += 1
            try:
                yield
            finally:
                self.under_way -= 1
                free.release()

    @contextmanager
    def of(self, principal: str) -> Iterator[asyncio.Semaphore]:
        """The turns of a caller, for the block."""
        turns = self._of_caller.setdefault(principal, _Turns(asyncio.Semaphore(self._at_once)))
        turns.users += 1
        try:
            yield turns.free
        finally:
            turns.users -= 1
            if not turns.users:
                del self._of_caller[principal]


class QueryBudgets:
    """A part of Postgres for each caller: queries a few at a time, each bounded, and their time.

    Args:
        longest_s: The longest time of a read-only query, in seconds.
    """

    def __init__(self, clock: Clock, longest_s: float) -> None:
        self._longest_s = longest_s
        self._spent = LeakyBuckets(clock, QUERY_TIME_AT_ONCE_S, 1.0)
        self._reading, self._changing = CallerTurns(QUERIES_AT_ONCE), CallerTurns(QUERIES_AT_ONCE)

    def admit(self, caller: Caller) -> None:
        """Raises :class:`~noetl_stream.errors.TooBusy` while the caller has used up its part."""
        message = f"queries for {caller.principal} took Postgres too much time"
        self._spent.require(caller.principal, message, ASK_LESS)

    async def charged(self, caller: Caller, work: Coroutine[Any, Any, Result], *, changes: bool = False) -> Result:
        """Awaits ``work`` and charges its queries to the caller. Raises its errors.

        Args:
            changes: Whether it may change anything.
        """
        with (self._changing if changes else self._reading).of(caller.principal) as turn:
            queries = ChargedQueries(turn, self._longest_s)
            token = CHARGED.set(queries)
            try:
                return await work
            finally:
                CHARGED.reset(token)
                queries.ended = True
                if queries.spent_s >= HEAVY_S:
                    self._spent.add(caller.principal, queries.spent_s)
