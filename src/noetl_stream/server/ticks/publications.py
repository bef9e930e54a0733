"""Publications: committed messages on their way to JetStream. *Published means PubAcked* (PROTOCOL §2), and stored at
or below the cursor: if the message at the cursor is stored, so are the records, in whatever order they were stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from noetl_stream.concurrency import result_until
from noetl_stream.errors import Unreachable
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.command_queue import CommandQueue, QueuedCommand
from noetl_stream.ports.streams.event_log import DecidedMessage, EventLog

log = logging.getLogger(__name__)

MAX_UNACKNOWLEDGED_BYTES = 64 * 1024 * 1024
"""The unacknowledged bytes above which folding pauses: JetStream is slower than Postgres, or its stream is full."""


class _Sent(NamedTuple):
    """The messages sent after one commit: the tick of each partition, their size, and their acknowledgements.

    Attributes:
        stored: Resolves to the highest sequence of the records.
        issued: Resolves to the partitions whose commands the queue refuses.
    """

    ticks: Mapping[int, int]
    commands: Sequence[QueuedCommand]
    size: int
    stored: asyncio.Future[int] | None
    issued: asyncio.Future[Collection[int]] | None

    @property
    def waits(self) -> Sequence[asyncio.Future[Any]]:
        return [wait for wait in (self.stored, self.issued) if wait is not None]

    @property
    def executions(self) -> set[str]:
        """The executions of the commands sent."""
        return {command.execution_id for command in self.commands}

    @property
    def is_acknowledged(self) -> bool:
        return all(wait.done() for wait in self.waits)


class _Acknowledged(NamedTuple):
    """A tick of a partition, and the sequence at or below which it and all earlier ones are stored."""

    tick: int
    sequence: int


class Publications:
    """Publishes records and commands in commit order and tracks, per partition, the last tick up to which everything is
    acknowledged, and where it is stored.

    Attributes:
        fenced_off: The partitions whose commands the queue has refused, because it holds another fence.
    """

    def __init__(self, log: EventLog, queue: CommandQueue, clock: Clock) -> None:
        self._log = log
        self._queue = queue
        self._clock = clock
        self._under_way: deque[_Sent] = deque()
        self._unacknowledged_bytes = 0
        self._acknowledged: dict[int, deque[_Acknowledged]] = {}
        self._published: dict[int, int] = {}
        self.fenced_off: set[int] = set()
        self._withdrawals: set[asyncio.Future[None]] = set()

    def publish(
        self,
        ticks: Mapping[int, int],
        decided: Sequence[DecidedMessage],
        commands: Sequence[QueuedCommand],
        fences: Mapping[int, int],
    ) -> None:
        """Sends journal records, then commands, at once.

        Args:
            ticks: The committed tick of each partition.
            fences: The fence of each partition, as named in its commands.
        """
        stored = asyncio.ensure_future(self._log.publish_decided(decided)) if decided else None
        issued = asyncio.ensure_future(self._queue.issue(commands, dict(fences))) if commands else None
        size = sum(len(record.body) for record in decided) + sum(len(command.body) for command in commands)
        self._unacknowledged_bytes += size
        self._under_way.append(_Sent(ticks, commands, size, stored, issued))

    @property
    def held_bytes(self) -> int:
        return self._unacknowledged_bytes

    @property
    def is_full(self) -> bool:
        """Whether folding should pause, since too many bytes are unacknowledged."""
        return self._unacknowledged_bytes > MAX_UNACKNOWLEDGED_BYTES

    def withdraw(self, commands: Collection[tuple[str, str]]) -> None:
        """Removes cancelled commands from the queue in the background, once all messages of their executions are
        acknowledged: a purge that overtakes a command leaves it there.
        """
        executions = {execution_id for execution_id, _ in commands}
        waits = [wait for sent in self._under_way if sent.executions & executions for wait in sent.waits]
        task = asyncio.ensure_future(self._withdraw(commands, waits))
        self._withdrawals.add(task)
        task.add_done_callback(self._withdrawals.discard)

    async def _withdraw(self, commands: Collection[tuple[str, str]], waits: Collection[asyncio.Future[Any]]) -> None:
        if waits:
            await asyncio.wait(waits)
        try:
            await self._queue.withdraw(commands)
        except Unreachable as error:
            log.info("%d cancelled commands stay in the queue: %s", len(commands), error)

    def settle(self) -> None:
        """Records the acknowledgements of publications, in order."""
        while self._under_way and self._under_way[0].is_acknowledged:
            sent = self._under_way.popleft()
            self.fenced_off.update(sent.issued.result() if sent.issued is not None else ())
            self._unacknowledged_bytes -= sent.size
            last = sent.stored.result() if sent.stored is not None else 0
            for partition, tick in sent.ticks.items():
                self._note(partition, tick, last)

    def _note(self, partition: int, tick: int, last: int) -> None:
        earlier = self._acknowledged.setdefault(partition, deque())
        sequence = max(last, earlier[-1].sequence) if earlier else last
        if earlier and earlier[-1].sequence == sequence:
            earlier.pop()
        earlier.append(_Acknowledged(tick, sequence))

    def published_tick(self, partition: int, through: int, otherwise: int) -> int:
        """Returns the last tick of ``partition`` up to which everything is known to be stored at or below this
        sequence.

        Args:
            otherwise: The tick in the partition's row, which is later if another server owned the partition in between.
        """
        acknowledged = self._acknowledged.get(partition)
        while acknowledged and acknowledged[0].sequence <= through:
            self._published[partition] = acknowledged.popleft().tick
        return max(self._published.get(partition, otherwise), otherwise)

    def forget(self, partitions: Collection[int]) -> None:
        """Forgets the publications of these partitions: EVENTS has lost some of them."""
        for partition in partitions:
            self._published.pop(partition, None)
            self._acknowledged.pop(partition, None)
        self._under_way = deque(
            sent._replace(ticks={id: tick for id, tick in sent.ticks.items() if id not in partitions})
            for sent in self._under_way
        )

    def commands_under_way(self) -> set[str]:
        """Returns the ids of commands that are sent but not yet acknowledged."""
        return {command.command_id for sent in self._under_way if not sent.is_acknowledged for command in sent.commands}

    async def drain(self, timeout_s: float) -> None:
        """Waits until all messages are acknowledged, for at most ``timeout_s``."""
        waits = [wait for sent in self._under_way for wait in sent.waits if not wait.done()]
        if waits:
            await result_until(asyncio.wait(waits), self._clock.sleep(timeout_s))
        self.settle()
