"""Detection of messages that EVENTS has lost, by the sequences of the remaining ones (PROTOCOL §5 *Holes*), and of
records that came late (*Fence in EVENTS*).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from noetl_stream.concurrency import for_each, result_until
from noetl_stream.errors import Conflict
from noetl_stream.model.ids import partition_count
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.cursors import Cursors
from noetl_stream.ports.stores.dead_letters import ALL_EVENTS, DeadLetterRow, DeadLetters
from noetl_stream.ports.stores.retention import RetentionStore
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.event_log import EventLog, EventReader, HeldMessages, ReportedMessage
from noetl_stream.protocol.log_fences import is_late
from noetl_stream.server.journal_records import MARGIN_MS, behind_events, epoch_in
from noetl_stream.server.upkeep.checkpoints import write_checkpoint

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""The interval at which EVENTS is examined, in seconds."""

NEW_AT_ONCE: Final = 5_000
OLD_AT_ONCE: Final = 2_000
"""The number of new and of older messages that one look reads, for some 5 us of CPU each. A hole that NATS knows of is
found at once by its count."""

BEHIND: Final = 100_000
"""The most new messages that wait to be read; earlier ones are read as older ones."""

READ_AT_ONCE: Final = 512

PATIENCE_S: Final = 3.0
"""The wait for the next message: longer than for a heartbeat, which says that none follows."""


class Hole(NamedTuple):
    """The sequences of lost messages; ``before_ms`` is when the message before them was stored."""

    first: int
    last: int
    before_ms: int

    @property
    def letter_id(self) -> str:
        return f"hole-{self.first}-{self.last}-{self.before_ms}"

    def __str__(self) -> str:
        one = f"message {self.first}" if self.first == self.last else f"messages {self.first} to {self.last}"
        return f"EVENTS has lost its {one}"


class HoleFinder:
    """Reads the sequences of EVENTS without the bodies: new ones and, slice by slice, all others again.

    Attributes:
        lost: The number of messages found to be lost.
        late: The number of late records among the new messages.
    """

    def __init__(
        self,
        event_log: EventLog,
        store: Store,
        cursors: Cursors,
        retained: RetentionStore,
        letters: DeadLetters,
        clock: Clock,
    ) -> None:
        self._log = event_log
        self._store = store
        self._cursors = cursors
        self._retained = retained
        self._letters = letters
        self._clock = clock
        self.lost = self.late = 0
        self._end = (0, 0)
        self._lacking = self._fresh = self._old = self._folded = 0

    async def look(self) -> None:
        """Reads a slice; leaves a dead letter for each new hole, and writes affected journals again.

        Raises:
            Conflict: Postgres has yet to catch up with EVENTS.
            ReaderBroken, Unreachable: a store is away; the next look continues.
        """
        floor, held = await self._cursors.floor(), await self._log.held()
        if held.last < floor:
            return  # a different stream is reported by the owners of the partitions
        folded = min(cursor.last_seq for cursor in await self._cursors.all())
        await self._check_end(held)
        lacking = held.last - floor - held.count
        if lacking > self._lacking:  # NATS knows of them; at the last look they existed
            await self._scan(floor, held.last, held.last, self._folded)
        self._lacking = max(0, lacking)
        fresh = max(self._fresh or folded, held.last - BEHIND)
        self._fresh = await self._scan(fresh, held.last, NEW_AT_ONCE, are_new=True)
        self._old = await self._scan(max(self._old, floor), self._fresh, OLD_AT_ONCE)
        self._old = self._old if self._old < self._fresh else 0
        self._folded = folded

    async def _check_end(self, held: HeldMessages) -> None:
        """Reports messages that the stream has lost at its end, even if others have taken their sequences."""
        last, at_ms = self._end
        found = await self._log.stored_at(last)
        if held.last < last or (found is not None and at_ms and found != at_ms):
            hole = Hole(min(held.last + 1, last), last, at_ms)
            await self._leave_letter(hole, "its end. Servers publish again what they had published")
            self._fresh = self._old = self._lacking = 0
        self._end = held.last, await self._log.stored_at(held.last) or 0

    async def _scan(self, after: int, through: int, count: int, folded: int = 0, *, are_new: bool = False) -> int:
        """Reads the next ``count`` messages above ``after``, up to ``through``; returns the last sequence it reached.

        Args:
            folded: The sequence up to which all messages were folded when they still existed.
            are_new: Whether no scan has read these messages before.
        """
        if after >= through:
            return through
        reader = await self._log.open_reader(range(partition_count()), after, records=True, bodies=False)
        try:
            reached, gaps, records = await self._read(reader, after, through, count)
        finally:
            await reader.close()
        if are_new:
            await self._count_late(records)
        if gaps:
            await self._report(gaps, folded)
        return min(reached, through)

    async def _read(
        self, reader: EventReader, reached: int, through: int, count: int
    ) -> tuple[int, list[tuple[int, int]], list[ReportedMessage]]:
        gaps, records = [], list[ReportedMessage]()
        while reached < through and count > 0:
            batch = await result_until(reader.next_batch(min(count, READ_AT_ONCE)), self._clock.sleep(PATIENCE_S))
            if batch is None and reader.high_water < through:
                break  # its consumer has not looked so far yet; the next one may
            sequences = [through + 1] if batch is None else [message.sequence for message in batch]
            for sequence in sequences:
                if sequence > reached + 1:
                    gaps.append((reached + 1, sequence - 1))
                reached = sequence
            records += [message for message in batch or () if message.subject.endswith(".decided")]
            count -= len(sequences)
        return reached, gaps, records

    async def _count_late(self, records: Sequence[ReportedMessage]) -> None:
        """Counts the records that a server has stored after the fence of its successor."""
        fences = {partition: await self._log.fences(partition) for partition in {one.partition for one in records}}
        late = [
            one.partition
            for one in records
            if (epoch := epoch_in(one.message_id)) and is_late(fences[one.partition], epoch, one.sequence)
        ]
        if late:
            log.warning("EVENTS has late records, which do not count: %d of partitions %s", len(late), sorted({*late}))
        self.late += len(late)

    async def _report(self, gaps: Sequence[tuple[int, int]], folded: int) -> None:
        """Leaves a letter for each new gap that was not trimmed meanwhile."""
        floor = await self._cursors.floor()
        times = {first: await self._log.stored_at(first - 1) for first, _ in gaps}
        holes = [Hole(first, last, times[first] or 0) for first, last in gaps if first > floor]
        known = await self._letters.known([hole.letter_id for hole in holes]) if holes else set()
        new = [hole for hole in holes if hole.letter_id not in known]
        if not new:
            return
        written = await self._write_again(new)
        for hole in new:
            lost = "after all had read it" if hole.last <= folded else "maybe before all had read it"
            if await self._log.stored_at(hole.first) is not None:  # the reader's consumer was with another copy
                lost = "on one of the nats-servers; its leader has it"
            more = f"Journals of that time that were written to it again: {written}"
            await self._leave_letter(hole, f"{lost}. {more}")

    async def _write_again(self, holes: Sequence[Hole]) -> int:
        """Writes the journals to EVENTS whose records or inputs may be lost; returns the number of executions."""
        if await behind_events(self._log, self._store):
            raise Conflict("EVENTS has lost messages, and Postgres has yet to catch up with it")
        partitions = {view.id: view for view in await self._store.read_partitions()}  # before their journals
        lived: dict[str, int] = {}
        for hole in holes:
            after_ms = await self._log.stored_at(hole.last + 1) or self._clock.now_ms()
            before_ms = hole.before_ms or after_ms
            lived |= await self._retained.lived_between(before_ms - MARGIN_MS, after_ms + MARGIN_MS)

        async def write(execution_id: str) -> None:
            view = partitions[lived[execution_id]]
            await write_checkpoint(self._log, self._store, self._clock, execution_id, view)

        await for_each(lived, write)
        return len(lived)

    async def _leave_letter(self, hole: Hole, more: str) -> None:
        reason = f"{hole}, {more}"
        log.error("%s", reason)
        self.lost += hole.last - hole.first + 1
        letter = DeadLetterRow(
            id=hole.letter_id,
            at_ms=self._clock.now_ms(),
            source="events",
            partition=0,
            execution_id="",
            subject=ALL_EVENTS,
            reason=reason,
            body=b"",
            source_seq=hole.first,
        )
        await self._letters.add(letter)
