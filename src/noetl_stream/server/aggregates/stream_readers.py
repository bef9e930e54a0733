"""Readers of the NATS streams of triggers whose partitions this server owns; they hand messages to the loop.

A message is acknowledged once it is folded and committed: the next owner reads again what a dying server had read. The
state of its trigger records how far a stream is folded, so a message that comes twice starts nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from noetl_stream.concurrency import closing, end_tasks
from noetl_stream.engine.aggregates.triggers import MAX_RUNNING, StreamReading, TriggerState
from noetl_stream.errors import Forbidden, NoetlError, ReaderBroken
from noetl_stream.model.aggregates import StreamEventRead, StreamFilter, StreamPlace, StreamSeen
from noetl_stream.model.ids import partition_of
from noetl_stream.playbook.trigger.matching import describe_message
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.dead_letters import storable_text
from noetl_stream.ports.streams.trigger_streams import ReadMessage, StreamConsumer, StreamWanted, TriggerStreams
from noetl_stream.retries import pauses
from noetl_stream.trigger.stream_messages import STREAMS_VARIABLE

log = logging.getLogger(__name__)

BATCH: Final = 100
"""The messages of a trigger that are read at once."""

MOST_AT_ONCE: Final = 500
MOST_BYTES: Final = 4 * 1024 * 1024
"""The most messages that one turn folds."""

WAIT_S: Final = 5.0
LOOK_S: Final = 10.0
"""The interval at which the remaining messages of a paused trigger's stream are counted."""

RETRY_S: Final = 1.0
MOST_RETRY_S: Final = 15.0
"""The wait after an error; it doubles with each further one."""

SWEEP_S: Final = 300.0
"""The interval at which consumers of deleted triggers are looked for."""


class StreamInput(NamedTuple):
    """A message of a trigger's stream, or news about it. ``path`` is the trigger's, ``size`` the message's in bytes."""

    aggregate_id: str
    path: str
    fact: StreamEventRead | StreamSeen
    size: int = 0


class OwnConsumer(NamedTuple):
    """The consumer of a trigger on NATS."""

    stream: str
    name: str

    @classmethod
    def of(cls, state: TriggerState) -> OwnConsumer:
        return cls(_filter_of(state).stream, state.consumer)


class StreamReaders:
    """A reader for each trigger on NATS in the partitions that ``owns`` accepts. ``nudge`` is called when a message
    waits to be folded.

    Args:
        allowed: The names of the streams that triggers may read.
    """

    def __init__(
        self,
        streams: TriggerStreams,
        allowed: Collection[str],
        clock: Clock,
        *,
        owns: Callable[[int], bool],
        nudge: Callable[[], None],
    ) -> None:
        self._streams = streams
        self._allowed = frozenset(allowed)
        self._clock = clock
        self._owns = owns
        self._nudge = nudge
        self._readers: dict[str, StreamReader] = {}
        self._left: set[OwnConsumer] = set()
        self._found: set[OwnConsumer] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._removing: dict[OwnConsumer, asyncio.Task[None]] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._swept_s = float("-inf")

    @property
    def waiting(self) -> int:
        """The number of messages left in the streams at the last look."""
        return sum(one.reading.pending or 0 for one in self._readers.values())

    @property
    def unread(self) -> int:
        """The number of triggers whose stream cannot be read."""
        return sum(bool(one.reading.trouble) for one in self._readers.values())

    def refresh(self, states: Mapping[str, TriggerState], *, sweeps: bool) -> None:
        """Starts and stops readers so that they match the triggers of this server; ``states`` are all triggers on NATS,
        by id.

        Args:
            sweeps: Whether this server looks for consumers whose triggers are gone.
        """
        for id, reader in list(self._readers.items()):
            state = states.get(id)
            if state is None or not self._owns(partition_of(id)) or not reader.takes(state):
                self._stop(id)
                self._left.add(reader.consumer)
        for id, state in states.items():
            if self._owns(partition_of(id)) and id not in self._readers:
                reader = StreamReader(id, state, self._streams, self._allowed, self._clock, nudge=self._nudge)
                self._readers[id] = reader
        self._remove(self._left - {OwnConsumer.of(state) for state in states.values()})
        self._left, self._found = self._found, set()
        now_s = self._clock.monotonic_s()
        if sweeps and now_s - self._swept_s >= SWEEP_S:
            self._swept_s = now_s
            self._sweeping = asyncio.ensure_future(self._sweep())

    def forget(self, partitions: Collection[int]) -> None:
        """Stops reading for these partitions, which another server now owns, until :meth:`refresh`."""
        for id in [id for id in self._readers if partition_of(id) in partitions]:
            self._stop(id)

    def _stop(self, id: str) -> None:
        task = self._readers.pop(id).task
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        task.cancel()

    def offered(self) -> list[StreamInput]:
        """The messages that wait to be folded, up to :data:`MOST_AT_ONCE` and about :data:`MOST_BYTES`, in order for
        each trigger; the same ones again until they are :meth:`folded`.
        """
        found: list[StreamInput] = []
        size = 0
        for id, reader in list(self._readers.items()):
            if not reader.offered or not self._owns(partition_of(id)):
                continue
            for one in reader.offered:
                if len(found) == MOST_AT_ONCE or size > MOST_BYTES:
                    self._nudge()
                    return found
                found.append(one)
                size += one.size
            self._readers[id] = self._readers.pop(id)  # the next call begins with other readers
        return found

    def folded(self, inputs: Sequence[StreamInput], states: Mapping[str, TriggerState]) -> None:
        """Notes that these inputs are committed; ``states`` are the new states of their triggers."""
        for one in inputs:
            reader = self._readers.get(one.aggregate_id)
            if reader is not None:
                reader.folded(one, states.get(one.aggregate_id))

    async def close(self) -> None:
        """Stops reading. Unacknowledged messages are delivered to the next owner."""
        readers, self._readers = self._readers, {}
        sweeping = [self._sweeping] if self._sweeping is not None else []
        reading = [reader.task for reader in readers.values()]
        await end_tasks([*reading, *self._ending, *self._removing.values(), *sweeping])

    def _remove(self, consumers: Collection[OwnConsumer]) -> None:
        for one in sorted(consumers):
            if one not in self._removing:
                self._removing[one] = task = asyncio.ensure_future(self._removed(one))
                task.add_done_callback(partial(self._forget, one))

    def _forget(self, consumer: OwnConsumer, _task: asyncio.Task[None]) -> None:
        del self._removing[consumer]

    async def _removed(self, consumer: OwnConsumer) -> None:
        try:
            await self._streams.remove(*consumer)
            log.info("consumer %s of stream %s is deleted: its trigger is gone", consumer.name, consumer.stream)
        except NoetlError as error:
            log.warning("consumer %s of stream %s stays for now: %s", consumer.name, consumer.stream, error)

    async def _sweep(self) -> None:
        """Lists consumers. Only the second :meth:`refresh` from now certainly knows all their triggers: the next one
        may have read the triggers earlier.
        """
        for stream in self._allowed:
            try:
                self._found |= {OwnConsumer(stream, name) for name in await self._streams.consumers(stream)}
            except NoetlError as error:
                log.debug("consumers of stream %s cannot be listed: %s", stream, error)


class StreamReader:
    """Reads the stream of one trigger in a task of its own.

    Attributes:
        offered: The messages that wait to be folded.
    """

    def __init__(
        self,
        id: str,
        state: TriggerState,
        streams: TriggerStreams,
        allowed: Collection[str],
        clock: Clock,
        *,
        nudge: Callable[[], None],
    ) -> None:
        self.consumer = OwnConsumer.of(state)
        self.offered: list[StreamInput] = []
        self._id = id
        self._state = state
        self._filter = _filter_of(state)
        self._streams = streams
        self._allowed = allowed
        self._clock = clock
        self._nudge = nudge
        self._all_folded = asyncio.Event()
        self._said = ""
        self.task = asyncio.ensure_future(self._run())

    @property
    def reading(self) -> StreamReading:
        """The committed position in the stream."""
        return self._state.reading

    def takes(self, state: TriggerState) -> bool:
        """Takes a later state of the trigger; ``False`` if this reader no longer fits it."""
        if OwnConsumer.of(state) != self.consumer or state.terms.nats != self._filter:
            return False
        self._state = state
        return True

    def folded(self, one: StreamInput, state: TriggerState | None) -> None:
        """Notes that an input is folded and committed."""
        if self.offered and self.offered[0] is one:
            del self.offered[0]
            self._state = state or self._state
            if not self.offered:
                self._all_folded.set()

    async def _run(self) -> None:
        waits = pauses(RETRY_S, MOST_RETRY_S)
        while True:
            began_s = self._clock.monotonic_s()
            try:
                await self._read()
            except ReaderBroken as error:
                log.info("reopening the stream of trigger %s: %s", self._state.path, error)
            except NoetlError as error:
                await self._say(str(error))
            except Exception as error:  # a defect that one message brings out must hold up no other trigger
                log.exception("reading the stream of trigger %s", self._state.path)
                await self._say(f"a defect: {error!r}")
            if self._clock.monotonic_s() - began_s > MOST_RETRY_S:
                waits = pauses(RETRY_S, MOST_RETRY_S)
            await self._clock.sleep(next(waits))

    async def _say(self, trouble: str) -> None:
        if trouble != self._said:
            log.warning("the stream of trigger %s cannot be read, will retry: %s", self._state.path, trouble)
            self._said = trouble
        await self._fold_seen(StreamSeen(self.consumer.name, trouble=storable_text(trouble)))

    async def _read(self) -> None:
        if self.consumer.stream not in self._allowed:
            raise Forbidden(f"triggers may not read stream {self.consumer.stream}: {STREAMS_VARIABLE} does not name it")
        state = self._state
        since_ms = self._filter.from_ms
        wanted = StreamWanted(
            filter=self._filter,
            consumer=self.consumer.name,
            trigger=state.path,
            from_ms=state.reading.since_ms if since_ms is None else since_ms,
            folded=state.reading.place,
        )
        async with closing(await self._streams.open(wanted)) as consumer:
            await self._look(consumer)
            self._said = ""
            while True:
                if self._state.is_read:
                    room = MAX_RUNNING - len(self._state.reading.running)
                    await self._take(consumer, await consumer.next_batch(min(BATCH, room), WAIT_S))
                else:
                    await self._wait_to_read(consumer)

    async def _take(self, consumer: StreamConsumer, batch: Sequence[ReadMessage]) -> None:
        """Has a batch folded, then acknowledges it. Messages folded before are omitted, or faults could be blamed on
        them.
        """
        places = {one.message.sequence: self._place(consumer, one) for one in batch}
        new = [one for one in batch if not self._state.has_folded(places[one.message.sequence])]
        if new:
            await self._fold([self._read_as(places[one.message.sequence], one) for one in new])
        done = [one for one in batch if self._state.has_folded(places[one.message.sequence])]
        await consumer.acknowledge(done)
        if len(done) < len(batch):
            raise ReaderBroken("the trigger was paused or changed before all that was read was folded")

    def _place(self, consumer: StreamConsumer, one: ReadMessage) -> StreamPlace:
        return StreamPlace(self.consumer.stream, consumer.made, one.message.sequence)

    def _read_as(self, place: StreamPlace, one: ReadMessage) -> StreamInput:
        event = describe_message(one.message)
        fact = StreamEventRead(self.consumer.name, place, self._filter.subject, one.pending, one.message.at_ms, event)
        return StreamInput(self._id, self._state.path, fact, one.message.size)

    async def _wait_to_read(self, consumer: StreamConsumer) -> None:
        await self._look(consumer)
        until_s = self._clock.monotonic_s() + (LOOK_S if self._state.paused else RETRY_S)
        while not self._state.is_read and self._clock.monotonic_s() < until_s:
            await self._clock.sleep(RETRY_S)

    async def _look(self, consumer: StreamConsumer) -> None:
        await self._fold_seen(StreamSeen(self.consumer.name, await consumer.pending()))

    async def _fold_seen(self, seen: StreamSeen) -> None:
        await self._fold([StreamInput(self._id, self._state.path, seen)])

    async def _fold(self, inputs: Sequence[StreamInput]) -> None:
        """Waits until the loop has folded and committed these inputs."""
        self.offered = list(inputs)
        self._all_folded.clear()
        self._nudge()
        await self._all_folded.wait()


def _filter_of(state: TriggerState) -> StreamFilter:
    assert state.terms.nats is not None
    return state.terms.nats
