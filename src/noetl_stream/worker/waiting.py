"""Waits by an injected clock: for an answer within a time, until an action succeeds, for the answer of a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

from noetl_stream.concurrency import first_done
from noetl_stream.errors import OutcomeUnknown, Unreachable
from noetl_stream.model.json import codec
from noetl_stream.model.messages import ShownCommand, StepCommand, WorkerQuestion
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.protocol.object_addresses import AddressQuestion
from noetl_stream.retries import pauses
from noetl_stream.worker.worker_limits import FIRST_PAUSE_S, LONGEST_ANSWER_S, LONGEST_PAUSE_S, SERVER_ANSWER_S

log = logging.getLogger(__name__)
Value = TypeVar("Value")
Item = TypeVar("Item")

WARN_TRIES: Final = 6
"""The number of failed tries before a warning is logged, about a second and a half after the first."""

WARN_S: Final = 10.0
"""The time after which fewer tries, which themselves wait for an answer, cause a warning."""


class Trouble:
    """The reason why a worker cannot store something yet.

    Attributes:
        why: The fault in words; empty while there is none.
    """

    __slots__ = ("_clock", "_since_s", "_what", "why")

    def __init__(self, clock: Clock, what: str) -> None:
        self.why = ""
        self._clock = clock
        self._what = what
        self._since_s = 0.0

    def note(self, error: Exception) -> None:
        if not self.why:
            self._since_s = self._clock.monotonic_s()
        self.why = f"{self._what}: {error}"

    def end(self) -> None:
        self.why = ""

    @property
    def lasts_s(self) -> float:
        """Seconds since it began; 0 without a fault."""
        return self._clock.monotonic_s() - self._since_s if self.why else 0.0


class Overdue(Generic[Item]):
    """Acts on items that have waited for too long, in one task for all, in the order in which they came.

    An item that leaves sooner costs a dictionary entry, but no timer and no task.

    Args:
        since_s: Returns the time since which an item has waited, by the monotonic clock.
        act: Called with an item that has waited for ``wait_s`` and has just left.
    """

    def __init__(
        self, clock: Clock, wait_s: float, since_s: Callable[[Item], float], act: Callable[[Item], object]
    ) -> None:
        self._clock = clock
        self._wait_s = wait_s
        self._since_s = since_s
        self._act = act
        self._waiting: dict[Item, None] = {}
        self._wanted = asyncio.Event()

    def watch(self, item: Item) -> None:
        if not self._waiting:
            self._wanted.set()
        self._waiting[item] = None

    def forget(self, item: Item) -> None:
        self._waiting.pop(item, None)

    async def run(self) -> None:
        """Acts on overdue items until cancelled."""
        while True:
            await self._wanted.wait()
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                self._wanted.clear()
                continue
            left_s = self._since_s(oldest) + self._wait_s - self._clock.monotonic_s()
            if left_s > 0:
                await self._clock.sleep(left_s)
                continue
            self.forget(oldest)
            self._act(oldest)


async def done_within(clock: Clock, seconds: float, future: asyncio.Future[Any]) -> bool:
    """Returns whether ``future`` is done within ``seconds``. Otherwise it is not cancelled."""
    return bool(await first_done([future], clock.sleep(seconds)))


async def persist(
    clock: Clock, what: str, action: Callable[[], Awaitable[Value]], failed: Callable[[Exception], None] | None = None
) -> Value:
    """Returns the value of ``action``, retried until the server at the other end answers.

    Calls ``failed`` with each error. Logs nothing while the server may be starting; a warning follows with the
    :data:`WARN_TRIES`-th try, or after :data:`WARN_S`.
    """
    waits = pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
    begun_s, tries, warned = clock.monotonic_s(), 0, False
    while True:
        try:
            value = await action()
        except (OutcomeUnknown, Unreachable) as error:
            if failed is not None:
                failed(error)
            tries += 1
            if not warned and (tries >= WARN_TRIES or clock.monotonic_s() - begun_s >= WARN_S):
                warned = True
                log.warning("%s: %s; will retry until it succeeds", what, error)
        else:
            if warned:
                log.info("%s: succeeded", what)
            return value
        await clock.sleep(next(waits))


UNAVAILABLE: Final = b"null"
"""The answer of a server that cannot reach its store: another server can, or the same one later."""


async def ask(bus: Bus, clock: Clock, subject: str, question: bytes = b"") -> bytes:
    """Returns any server's answer to a question, repeated at growing intervals, since the server may be slow."""
    patience_s, waits = SERVER_ANSWER_S, pauses(LONGEST_PAUSE_S, SERVER_ANSWER_S)
    while True:
        asked = partial(bus.ask, subject, question, patience_s)
        body = await persist(clock, f"ask {subject}", asked)
        if body is not None and body != UNAVAILABLE:
            return body
        log.info("no server answers %s, will retry", subject)
        patience_s = min(2 * patience_s, LONGEST_ANSWER_S)
        await clock.sleep(next(waits))


class Asker:
    """Asks servers the questions of one run, with the capability of its command (PROTOCOL §7 *Capabilities*).

    Each is repeated until the owner of the execution answers.

    Attributes:
        worker: The name of this worker, for the audit.
        digest: The playbook's digest. Answers for one playbook do not apply to another, whose grants may differ.
    """

    __slots__ = ("_bus", "_clock", "_command", "digest", "worker")

    def __init__(self, bus: Bus, clock: Clock, command: StepCommand, worker: str) -> None:
        self._command = command
        self.worker = worker
        self.digest = command.digest
        self._bus = bus
        self._clock = clock

    @property
    def execution_id(self) -> str:
        return self._command.execution_id

    @property
    def command(self) -> ShownCommand:
        """The command as it is shown to servers."""
        return ShownCommand.from_command(self._command)

    async def ask(self, subject: str, question: WorkerQuestion | AddressQuestion) -> bytes:
        """Returns the answer to ``question`` on ``subject``, to which the pool is added."""
        return await ask(self._bus, self._clock, f"{subject}.{self._command.pool}", codec.encode(question))
