"""Sends the lineage of all executions to a receiver, in the order of the feed, from the stored position.

Invariant: an event is in the journal before it is sent, and the position is stored after the receiver has answered. So
each run is sent at least once while it is in the feed, even if a process crashes. One background task of one server
sends one event at a time; executions never wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from noetl_stream.errors import NoetlError, PayloadRefused, Unreachable
from noetl_stream.lru import LruCache
from noetl_stream.model.events import TaskProcessed, TokenClaimed, TokenEnqueued
from noetl_stream.model.json import codec
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.fed_events import FedEvent, FeedStore
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.traces import LineageReceiver
from noetl_stream.retries import backoff_s
from noetl_stream.server.open_lineage import run_events_of
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_stream.telemetry.measures import Metric, Reading

log = logging.getLogger(__name__)

READER: Final = "openlineage"
"""The name of the reader whose position in the feed is stored."""

PAGE_TICKS: Final = 2
POLL_S: Final = 2.0
"""The interval between reads at the end of the feed, in seconds."""
LOOK_S: Final = 5.0
"""The interval at which a server that does not send checks for its turn, in seconds."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
RUNS_KEPT: Final = 20_000
"""The maximum number of runs whose steps are cached. The steps of other runs are read from their journals."""

TOLD: Final = Metric("counter", "noetl_server_lineage_events", "Run events of OpenLineage, by outcome.", ("outcome",))
UNTOLD: Final = Metric("gauge", "noetl_server_lineage_failing", "Whether the receiver of lineage takes nothing now.")


class LineageFeed:
    """Sends lineage to a receiver.

    Args:
        secrets: Redacts the secrets of executions in events.

    Attributes:
        failure: The reason why sending fails now; empty if it succeeds.
        counts: The run events that were sent (``told``) and that the receiver rejected (``refused``), and the ticks
            that were trimmed before they were sent (``lost``).
    """

    def __init__(
        self, feed: FeedStore, store: Store, receiver: LineageReceiver, clock: Clock, secrets: UsedSecrets | None
    ) -> None:
        self._feed, self._store, self._receiver, self._clock = feed, store, receiver, clock
        self._secrets = secrets
        self._steps = _Steps(store)
        self.failure = ""
        self.counts = {"told": 0, "refused": 0, "lost": 0}

    def readings(self) -> Sequence[Reading]:
        return [TOLD.read_each(self.counts), UNTOLD.read(int(bool(self.failure)))]

    async def run(self, is_mine: Callable[[], bool]) -> None:
        """Sends the lineage of the feed until cancelled.

        Args:
            is_mine: Returns true while this server is the one that sends lineage.
        """
        tries, places = 0, None
        while True:
            if not is_mine():
                self.failure, tries, places = "", 0, None
                await self._clock.sleep(LOOK_S)
                continue
            try:
                before = places if places is not None else await self._begin()
                places = await self._tell_page(before, is_mine)
                self.failure, tries = "", 0
            except NoetlError as error:
                self._note(error)
                places = None
                await self._clock.sleep(backoff_s(FIRST_PAUSE_S, tries, LONGEST_PAUSE_S))
                tries += 1
                continue
            if places == before:
                await self._clock.sleep(POLL_S)

    async def close(self) -> None:
        await self._receiver.close()

    async def _begin(self) -> dict[int, int]:
        """Returns the stored position, or the beginning of the feed if there is none."""
        now, stored = await self._feed.now(), await self._feed.told(READER)
        stored = stored or (await self._feed.floor()).ticks
        # After a restore, the feed may end before the stored position.
        return await self._kept({one: min(stored.get(one, 0), tick) for one, tick in now.items()})

    async def _kept(self, places: Mapping[int, int]) -> dict[int, int]:
        """Moves positions past ticks that have been trimmed, and counts these ticks as lost."""
        floor = (await self._feed.floor()).ticks
        lost = sum(max(0, floor.get(one, 0) - tick) for one, tick in places.items())
        if lost:
            self.counts["lost"] += lost
            log.error("%d ticks of the feed were trimmed before their lineage was told", lost)
        return {one: max(tick, floor.get(one, 0)) for one, tick in places.items()}

    async def _tell_page(self, places: Mapping[int, int], is_mine: Callable[[], bool]) -> dict[int, int]:
        """Sends the next ticks and stores the position after them; returns that position."""
        rows = await self._feed.read(places, PAGE_TICKS)
        # Ticks that were trimmed in the meantime are missing from the rows.
        after = await self._kept(places) | {row.partition: row.tick for row in rows}
        for row in rows:
            self._steps.take(row)
            for event in await self._events(row):
                if not await self._tell(event, is_mine):
                    return dict(places)
        if rows:
            await self._feed.set_told(READER, after)
        return after

    async def _events(self, row: FedEvent) -> list[dict[str, Any]]:
        if row.event is None:
            return []
        step = await self._steps.of(row) if row.event.name == TaskProcessed.event_name() else ""
        told = list(run_events_of(row, step))
        if told and self._secrets is not None:
            redactor = (await self._secrets.redactors((row.execution_id,))).get(row.execution_id)
            if redactor is not None:
                told = await asyncio.to_thread(redactor.value, told)
        return told

    async def _tell(self, event: Mapping[str, Any], is_mine: Callable[[], bool]) -> bool:
        """Sends an event, with retries, until the receiver answers; returns false if another server sends now."""
        tries = 0
        while is_mine():
            try:
                await self._receiver.send(event)
                self.counts["told"] += 1
                self.failure = ""
                return True
            except PayloadRefused as error:
                self.counts["refused"] += 1
                log.warning("a run event is left out: %s", error)
                return True
            except Unreachable as error:
                self._note(error)
                await self._clock.sleep(backoff_s(FIRST_PAUSE_S, tries, LONGEST_PAUSE_S))
                tries += 1
        return False

    def _note(self, error: NoetlError) -> None:
        if not self.failure:
            log.warning("lineage is not told, will retry: %s", error)
        self.failure = str(error)


class _TokenOf(msgspec.Struct, frozen=True):
    token_id: str
    step: str = ""


class _Enqueued(msgspec.Struct, frozen=True):
    token: _TokenOf


class _Claimed(msgspec.Struct, frozen=True):
    token_id: str
    step_run_id: str


class _Steps:
    """The steps of runs, cached."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._of_token: LruCache[str, str] = LruCache(RUNS_KEPT)
        self._of_run: LruCache[str, str] = LruCache(RUNS_KEPT)

    def take(self, row: FedEvent) -> None:
        """Records the step that an event names."""
        if row.event is not None:
            self._learn(row.event.name, row.event.data)

    async def of(self, row: FedEvent) -> str:
        """Returns the step of an event's run; empty if it is unknown."""
        run = (row.event.step_run_id if row.event is not None else None) or ""
        if self._of_run.get(run) is None:
            for event in await self._store.events_named(row.execution_id, _NAMES):
                self._learn(event.name, event.data)
        return self._of_run.get(run) or ""

    def _learn(self, name: str, data: bytes) -> None:
        if name == TokenEnqueued.event_name():
            token = codec.decode_as(_Enqueued, data).token
            self._of_token.put(token.token_id, token.step)
        elif name == TokenClaimed.event_name():
            claimed = codec.decode_as(_Claimed, data)
            self._of_run.put(claimed.step_run_id, self._of_token.get(claimed.token_id) or "")


_NAMES: Final = (TokenEnqueued.event_name(), TokenClaimed.event_name())
