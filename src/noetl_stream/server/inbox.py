"""Messages between executions, from Postgres: a nudge says there are some, else they are looked for (PROTOCOL §1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec
from noetl_stream.ports import subjects
from noetl_stream.ports.bus import Bus, Subscription
from noetl_stream.ports.store import InboxItem, InboxRow, Store

MOST_AT_ONCE = 500
"""How many messages one tick folds."""


class Inbox:
    """``nudge`` is called when something has come for partitions that ``owns`` says are this server's."""

    def __init__(self, store: Store, bus: Bus, owns: Callable[[int], bool], nudge: Callable[[], None]) -> None:
        self._store = store
        self._bus = bus
        self._owns = owns
        self._nudge = nudge
        self._subscription: Subscription | None = None
        self._look = True

    async def open(self) -> None:
        """Begins to hear nudges."""
        self._subscription = await self._bus.listen(subjects.INBOX, self._heard)

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    def look_again(self) -> None:
        """The next :meth:`take` asks Postgres, heard of or not."""
        self._look = True

    async def take(self, partitions: Collection[int]) -> list[InboxItem]:
        """What waits for these partitions, if anything is to be expected; oldest first."""
        if not (self._look and partitions):
            return []
        self._look = False  # before it asks: what is told of meanwhile is looked for next time
        items = await self._store.inbox(partitions, MOST_AT_ONCE)
        self._look = self._look or len(items) == MOST_AT_ONCE
        return items

    def sent(self, rows: Iterable[InboxRow]) -> None:
        """Tells all servers, this one too, of messages that are committed."""
        partitions = sorted({row.partition for row in rows})
        if any(map(self._owns, partitions)):
            self._look = True
        self._bus.send(subjects.INBOX, codec.encode(partitions))

    async def _heard(self, _subject: str, body: bytes, _reply: str) -> None:
        try:
            partitions = codec.decode_json(body)
        except PayloadRefused:
            return
        if any(isinstance(partition, int) and self._owns(partition) for partition in partitions):
            self._look = True
            self._nudge()
