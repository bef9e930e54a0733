"""Messages between executions, stored in Postgres: fetched on a nudge, or by polling (PROTOCOL §1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import InboxItem, InboxRow, Store
from noetl_stream.ports.streams.bus import Bus, Subscription
from noetl_stream.protocol import subjects

MOST_AT_ONCE = 500
"""How many inbox messages one tick folds."""


class Inbox:
    """Fetches inbox messages. ``nudge`` is called when one has arrived for partitions that ``owns`` accepts."""

    def __init__(self, store: Store, bus: Bus, owns: Callable[[int], bool], nudge: Callable[[], None]) -> None:
        self._store = store
        self._bus = bus
        self._owns = owns
        self._nudge = nudge
        self._subscription: Subscription | None = None
        self._expected = True

    async def open(self) -> None:
        """Subscribes to notices of new inbox messages."""
        self._subscription = await self._bus.listen(subjects.INBOX, self._on_nudge)

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()

    def expect_messages(self) -> None:
        """Makes the next :meth:`take` query Postgres for messages, nudged or not."""
        self._expected = True

    async def take(self, partitions: Collection[int]) -> list[InboxItem]:
        """Returns the messages waiting for these partitions, oldest first; queries Postgres only if it expects any."""
        if not (self._expected and partitions):
            return []
        self._expected = False  # before the query: a nudge during it counts for the next
        items = await self._store.inbox(partitions, MOST_AT_ONCE)
        self._expected = self._expected or len(items) == MOST_AT_ONCE
        return items

    def notify(self, rows: Iterable[InboxRow]) -> None:
        """Notifies all servers, this one included, of committed inbox messages."""
        partitions = sorted({row.partition for row in rows})
        if any(map(self._owns, partitions)):
            self._expected = True
        self._bus.send(subjects.INBOX, codec.encode(partitions))

    async def _on_nudge(self, _subject: str, body: bytes, _reply: str) -> None:
        try:
            partitions = codec.decode_partitions(body)
        except PayloadRefused:
            return
        if any(map(self._owns, partitions)):
            self._expected = True
            self._nudge()
