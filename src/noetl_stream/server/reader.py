"""Reading EVENTS for the owned partitions: pumps that feed one queue, newest owners' partitions beside the others.

A partition taken over far behind the rest catches up on a reader of its own, holding nobody up (PROTOCOL §2). One that
comes back is read by its new pump alone: the old one has passed messages that were not ours to fold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from noetl_stream.ports.clock import Clock
from noetl_stream.ports.event_log import EventLog, EventReader, ReportedMessage

BATCH_MESSAGES = 512
MAX_READERS = 4


@dataclass(slots=True, eq=False)
class PartitionConsumer:
    """One reader, and how many of its batches nobody has taken."""

    reader: EventReader
    task: asyncio.Task[None] | None = None
    queued: int = 0


Arrived = tuple[PartitionConsumer, list[ReportedMessage]] | Exception | None
"""A batch, a reader's error, or ``None`` for a nudge."""


class PartitionReader:
    """All pumps of a server. Breaks as a whole: a broken reader surfaces in :meth:`take`."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._pumps: list[PartitionConsumer] = []
        self._pump_of: dict[int, PartitionConsumer] = {}
        self._arrived: asyncio.Queue[Arrived] = asyncio.Queue(maxsize=8)

    @property
    def readers(self) -> int:
        return len(self._pumps)

    async def add(self, partitions: Collection[int], after: int) -> None:
        """Reads these partitions too, from the first message above ``after``."""
        pump = PartitionConsumer(await self._log.open_reader(sorted(partitions), after))
        pump.task = asyncio.create_task(self._run(pump))
        self._pumps.append(pump)
        self._pump_of.update(dict.fromkeys(partitions, pump))
        await self._close_useless()

    async def drop(self, partitions: Collection[int]) -> None:
        """Hands out nothing more of these partitions."""
        for partition in partitions:
            self._pump_of.pop(partition, None)
        await self._close_useless()

    def nudge(self) -> None:
        """Lets :meth:`take` return: something other than messages is to be done."""
        if self._arrived.empty():
            self._arrived.put_nowait(None)

    async def take(self, timeout_s: float) -> list[ReportedMessage]:
        """What has arrived, from all pumps; empty when the time is over.

        Raises:
            ReaderBroken: some reader can no longer vouch for what it reads. Any other error of a reader comes as it is.
        """
        arrived = await self._first(timeout_s)
        messages: list[ReportedMessage] = []
        while arrived is not None:
            if isinstance(arrived, Exception):
                raise arrived
            pump, batch = arrived
            pump.queued -= 1
            messages += [message for message in batch if self._pump_of.get(message.partition) is pump]
            arrived = self._arrived.get_nowait() if not self._arrived.empty() else None
        return messages

    async def _first(self, timeout_s: float) -> Arrived | None:
        if not self._arrived.empty():
            return self._arrived.get_nowait()
        arriving = asyncio.ensure_future(self._arrived.get())
        timer = asyncio.ensure_future(self._clock.sleep(timeout_s))
        try:
            await asyncio.wait((arriving, timer), return_when=asyncio.FIRST_COMPLETED)
            return arriving.result() if arriving.done() else None
        finally:
            timer.cancel()
            arriving.cancel()

    def folded_through(self) -> dict[int, int]:
        """Per partition, the sequence up to which everything was handed out; only of pumps with nothing queued."""
        return {p: pump.reader.high_water for p, pump in self._pump_of.items() if not pump.queued}

    def silent_s(self, now_s: float) -> float:
        """Seconds since the reader that has been silent longest heard anything."""
        return max((now_s - pump.reader.contact_s for pump in self._pumps), default=0.0)

    async def close(self) -> None:
        """Ends all pumps and drops what they had read."""
        pumps, self._pumps = self._pumps, []
        self._pump_of.clear()
        await _end(pumps)
        while not self._arrived.empty():
            self._arrived.get_nowait()

    async def _close_useless(self) -> None:
        used = set(self._pump_of.values())
        useless = [pump for pump in self._pumps if pump not in used]
        if useless:
            self._pumps = [pump for pump in self._pumps if pump in used]
            await _end(useless)

    async def _run(self, pump: PartitionConsumer) -> None:
        try:
            while True:
                batch = await pump.reader.next_batch(BATCH_MESSAGES)
                pump.queued += 1
                await self._arrived.put((pump, batch))
        except Exception as error:  # a defect, too: it must stop the server loudly, not leave it waiting for ever
            await self._arrived.put(error)


async def _end(pumps: Collection[PartitionConsumer]) -> None:
    tasks = [pump.task for pump in pumps if pump.task is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for pump in pumps:
        await pump.reader.close()
