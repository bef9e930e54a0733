"""Fetches as many commands as there are free slots (DESIGN §4)."""

from __future__ import annotations

from collections.abc import Callable

from noetl_stream.ports.command_queue import CommandSource, Delivery
from noetl_stream.worker.command.reporter import Channel

_REFILLS_A_ROUND = 4


class Puller:
    """Keeps credit with the source and starts what arrives.

    Credit is requested when none is left, or for a quarter of the slots at once: one request per step would cost NATS
    an extra message per step.

    Args:
        start: Starts a delivery and returns whether it took a slot; :meth:`release` is called when the slot is free
            again.
    """

    def __init__(
        self, source: CommandSource, slots: int, channel: Channel, start: Callable[[Delivery, int], bool]
    ) -> None:
        self._source = source
        self._slots = slots
        self._channel = channel
        self._start = start
        self._refill = max(1, slots // _REFILLS_A_ROUND)
        self._running = 0
        self._credit = 0
        self._stopped = False

    async def run(self) -> None:
        """Fetches for ever."""
        self.top_up()
        while True:
            delivery = await self._source.next()
            self._credit -= 1
            if self._stopped:
                delivery.nak()
            elif self._start(delivery, self._source.connected_ms):
                self._running += 1
            self.top_up()

    def release(self) -> None:
        self._running -= 1
        self.top_up()

    def stop(self) -> None:
        """Stops asking for commands; those that still arrive are returned at once."""
        self._stopped = True

    def top_up(self) -> None:
        """Requests more if slots are free, unless a report is being held up (PROTOCOL §3 *Order*)."""
        free = self._slots - self._running - self._credit
        is_due = free > 0 and (self._credit == 0 or free >= self._refill)
        if is_due and not self._stopped and not self._channel.stuck:
            self._credit += free
            self._source.request(free)
