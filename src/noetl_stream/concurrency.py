"""Helpers for asyncio: waits, the end of tasks, work in threads, shared loads, deferred resources."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
)
from itertools import count
from typing import Any, Final, Generic, Protocol, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")
Item = TypeVar("Item")

AT_ONCE: Final = 16
CANCEL_AGAIN_S: Final = 1.0

SWITCH_S: Final = 0.001
"""The time for which a busy thread may hold the interpreter before each step of the loop; Python's default is 5 ms."""

MANY_BYTES: Final = 128 * 1024
"""The size in bytes that takes a few milliseconds to decode or encode."""


class Closable(Protocol):
    async def close(self) -> None: ...


Opened = TypeVar("Opened", bound=Closable)


@contextlib.asynccontextmanager
async def closing(owned: Opened) -> AsyncIterator[Opened]:
    """Closes its argument at the end of the block."""
    try:
        yield owned
    finally:
        await owned.close()


async def begun(pieces: AsyncGenerator[Item, None]) -> AsyncIterator[Item]:
    """Yields these items once there is a first one, or none: earlier failures are raised here."""
    first: list[Item] = []
    with contextlib.suppress(StopAsyncIteration):
        first.append(await anext(pieces))

    async def every() -> AsyncIterator[Item]:
        async with contextlib.aclosing(pieces):
            for item in first:
                yield item
            async for item in pieces:
                yield item

    return every()


async def beside(work: Callable[[], Result], size: int, many: int = MANY_BYTES) -> Result:
    """Returns the result of ``work``, which reads this many bytes; many are read in another thread. Raises its own."""
    return work() if size < many else await asyncio.to_thread(work)


def let_loop_switch_soon() -> None:
    """Makes a busy thread leave the interpreter to the loop after :data:`SWITCH_S`."""
    sys.setswitchinterval(SWITCH_S)


def start_among(tasks: set[asyncio.Task[Result]], work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """Starts work in a task that is among ``tasks`` until it ends: asyncio does not keep it alive."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


async def end_tasks(tasks: Collection[asyncio.Future[Any]], again_s: float = CANCEL_AGAIN_S) -> None:
    """Cancels tasks and waits until all have ended; their results and errors are dropped.

    A task that has not ended after ``again_s`` is cancelled again, even in its cleanup:
    before Python 3.12, ``asyncio.wait_for``, which libraries use, swallows a cancellation that arrives just as the
    awaited work fails.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=again_s)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs it as never retrieved


async def result_when_ended(task: asyncio.Task[Result]) -> Result:
    """Waits for the result of a task that cannot be cancelled; a cancelled caller also waits until the task has ended.

    Raises:
        CancelledError: the caller was cancelled.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


async def first_done(
    futures: Collection[asyncio.Future[Any]], until: Coroutine[Any, Any, object]
) -> set[asyncio.Future[Any]]:
    """Waits until one of ``futures`` is done or ``until`` ends. Only ``until`` is cancelled.

    Returns:
        The futures that are done; empty if ``until`` was first.

    Raises:
        Exception: an error of ``until``.
    """
    if done := {future for future in futures if future.done()}:
        until.close()
        return done
    end = asyncio.ensure_future(until)
    try:
        done, _ = await asyncio.wait((end, *futures), return_when=asyncio.FIRST_COMPLETED)
    finally:
        end.cancel()
    if end in done:
        end.result()
    return done - {end}


async def for_each(items: Iterable[Item], work: Callable[[Item], Awaitable[None]], at_once: int = AT_ONCE) -> None:
    """Runs ``work`` for each item, at most ``at_once`` at a time; the first error cancels all."""
    waiting = iter(items)

    async def run() -> None:
        for one in waiting:
            await work(one)

    runners = [asyncio.create_task(run()) for _ in range(at_once)]
    try:
        await asyncio.gather(*runners)
    finally:
        for task in runners:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*runners, return_exceptions=True)


async def result_until(
    work: Coroutine[Any, Any, Result], until: Coroutine[Any, Any, object], again_s: float = CANCEL_AGAIN_S
) -> Result | None:
    """Returns the result of ``work``; ``None`` if ``until`` ends first. ``work`` is then cancelled and has ended."""
    task = asyncio.ensure_future(work)
    try:
        done = await first_done([task], until)
        return task.result() if done else None
    finally:
        await end_tasks([task], again_s)


async def set_within(event: asyncio.Event, timeout_s: float) -> bool:
    """Waits until ``event`` is set; false if ``timeout_s`` pass first."""
    # Not `wait_for`: in Python 3.11 it loses a cancellation that arrives together with the event.
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True


Queued = Callable[[], contextlib.AbstractContextManager[None]]
"""A context that is entered while a task waits."""

SPARE_PART: Final = 8
"""The places for each spare one, rounded up."""


def spare_of(most: int) -> int:
    """Returns the number of spare places beside that many."""
    return -(-most // SPARE_PART)


class Capacity:
    """Up to ``most`` places for tasks. Further ones wait: the next place goes to the namespace that has the fewest, and
    there to the task that came first.

    Args:
        spare: Further places, each for a namespace that has none: long tasks of one do not hold up all others.
    """

    def __init__(self, most: int, spare: int = 0) -> None:
        self.most = most
        self._spare = spare
        self._busy: Counter[str] = Counter()
        self._queues: dict[str, dict[int, asyncio.Future[None]]] = {}
        self._numbers = count()

    @property
    def busy(self) -> int:
        """The number of places taken."""
        return self._busy.total()

    @property
    def waiting(self) -> int:
        """The number of waiting tasks."""
        return sum(not turn.done() for queue in self._queues.values() for turn in queue.values())

    def is_full(self, namespace: str = "") -> bool:
        """Whether the next task of a namespace would wait."""
        spare = 0 if self._busy[namespace] else self._spare
        return self.busy >= self.most + spare

    @contextlib.asynccontextmanager
    async def place(self, queued: Queued = contextlib.nullcontext, namespace: str = "") -> AsyncIterator[None]:
        """Holds a place for a task of a namespace during the context; ``queued`` is entered while it waits."""
        if self.is_full(namespace):
            with queued():
                await self._turn(namespace)
        else:
            self._busy[namespace] += 1
        try:
            yield
        finally:
            self._leave(namespace)

    async def _turn(self, namespace: str) -> None:
        """Waits for a place, which is taken then."""
        number, turn = next(self._numbers), asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(namespace, {})
        queue[number] = turn
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the place was given in the same moment
                self._leave(namespace)
            raise
        finally:
            del queue[number]
            if not queue:
                del self._queues[namespace]

    def _leave(self, namespace: str) -> None:
        self._busy[namespace] -= 1
        if not self._busy[namespace]:
            del self._busy[namespace]
        fitting = [(self._busy[one], *head, one) for one, head in self._heads() if not self.is_full(one)]
        if fitting:
            _, _, turn, chosen = min(fitting, key=lambda found: found[:2])
            self._busy[chosen] += 1
            turn.set_result(None)

    def _heads(self) -> Iterator[tuple[str, tuple[int, asyncio.Future[None]]]]:
        """Yields the first waiting task of each namespace, by its number."""
        for namespace, queue in self._queues.items():
            if head := next(((number, turn) for number, turn in queue.items() if not turn.done()), None):
                yield namespace, head


class SharedLoads(Generic[Key, Result]):
    """Loads in progress. Concurrent callers of one key share one load."""

    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[Result]] = {}

    async def get(self, key: Key, load: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Returns the result of the load in progress for ``key``, else of ``load``. Raises the errors of the load."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(load())
            task.add_done_callback(lambda done: self._drop_load(key, done))
        # A cancelled caller must not take the result from the others.
        return await asyncio.shield(task)

    def __contains__(self, key: Key) -> bool:
        """Whether ``key`` is being loaded."""
        return key in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    async def close(self) -> None:
        await end_tasks(list(self._tasks.values()))

    def _drop_load(self, key: Key, task: asyncio.Task[Result]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieved here: all callers may have been cancelled


class Deferred(Generic[Opened]):
    """A resource that is opened when one of its parts is first used. If opening fails, the next use tries again.

    Args:
        open: Opens the resource.
    """

    def __init__(self, open: Callable[[], Coroutine[Any, Any, Opened]]) -> None:
        self._open = open
        self._loads: SharedLoads[str, Opened] = SharedLoads()
        self._opened: Opened | None = None

    def part(self, name: str) -> Any:
        """A proxy for the attribute ``name`` of the resource. Only its coroutine methods can be called."""
        return _Part(self, name)

    def whole(self) -> Any:
        """A proxy for the resource itself. Only its coroutine methods can be called."""
        return _Part(self, "")

    async def get(self) -> Opened:
        """Returns the resource, opened if needed. Raises like ``open``."""
        return self._opened or await self._loads.get("", self._load)

    async def close(self) -> None:
        """Closes the resource if it was opened."""
        await self._loads.close()
        if self._opened is not None:
            await self._opened.close()

    async def _load(self) -> Opened:
        self._opened = await self._open()
        return self._opened


class _Part:
    def __init__(self, whole: Deferred[Any], name: str) -> None:
        self._whole = whole
        self._name = name

    def __getattr__(self, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*words: Any, **named: Any) -> Any:
            opened = await self._whole.get()
            part = getattr(opened, self._name) if self._name else opened
            return await getattr(part, method)(*words, **named)

        return call
