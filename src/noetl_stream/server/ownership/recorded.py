"""Reads executions from EVENTS: their inputs, and the entries of their journals by position (PROTOCOL §1 *Journal*).

After a gap in the positions the rest is left to the fold, which advances over the inputs not yet used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from noetl_stream.concurrency import closing
from noetl_stream.engine.state import RecordedFact
from noetl_stream.errors import NotReady, PayloadRefused
from noetl_stream.model.aggregates import (
    RequestedFact,
    ScheduleRegistered,
    StarterDeleted,
    StarterPaused,
    StarterRegistered,
    StarterResumed,
)
from noetl_stream.model.events import Fact
from noetl_stream.model.ids import report_id, run_of_report
from noetl_stream.model.json import codec
from noetl_stream.model.messages import (
    FORMAT,
    NOTHING,
    AggregateRequest,
    FullEntry,
    JournalRecord,
    Report,
    Request,
    UnreadableCommand,
)
from noetl_stream.ports.streams.event_log import EventLog, ReportedMessage
from noetl_stream.protocol.log_fences import FencePlace, is_late
from noetl_stream.protocol.subjects import sender_of
from noetl_stream.server.journal_records import read_record
from noetl_stream.server.ticks.tick import Input

READ_AT_ONCE: Final = 512


class RecordedEntry(NamedTuple):
    """A journal entry with its inputs, the facts of one message; without them, it has the previous entry's
    decisions.
    """

    inputs: list[Input]
    decisions: list[Fact]

    @property
    def width(self) -> int:
        return sum(given.recorded.fact.width for given in self.inputs) + sum(fact.width for fact in self.decisions)


class RecordedExecution:
    """The inputs and journal records of one execution.

    Attributes:
        inputs: Requests and reports by id, each with the messages that brought it.
        through: The sequence up to which inputs are folded into the entries read so far.
    """

    def __init__(self) -> None:
        self.inputs: dict[str, tuple[list[ReportedMessage], Request | Report]] = {}
        self.through = 0
        self._unreadable: list[int] = []
        self._records: list[JournalRecord] = []
        self._used: set[str] = set()

    def add_input(self, message: ReportedMessage, body: Request | Report | UnreadableCommand) -> None:
        """Adds an input; one that was added before has no effect."""
        if isinstance(body, UnreadableCommand):
            self._unreadable.append(message.sequence)
            return
        identity = body.request_id if isinstance(body, Request) else report_id(body.run, body.number)
        self.inputs.setdefault(identity, ([], body))[0].append(message)

    def add_record(self, record: JournalRecord) -> None:
        self._records.append(record)

    def entries(self, after: int) -> Iterator[RecordedEntry]:
        """Yields the journal entries above this position, in order, up to the first gap."""
        found, ends = self._by_position()
        position = after + 1
        while (entry := found.get(position)) is not None and entry.inputs:
            position += entry.width
            while (more := found.get(position)) is not None and not more.inputs:
                entry.decisions.extend(more.decisions)
                position += more.width
            self._used.update(given.message_id for given in entry.inputs)
            yield entry
        self.through = max((through for last, through in ends if last < position), default=0)

    def unfolded_sequences(self) -> Iterator[int]:
        """Yields the sequences of the inputs that are not folded into any entry so far."""
        for identity, (messages, _) in self.inputs.items():
            if messages[0].sequence > self.through and identity not in self._used:
                yield messages[0].sequence
        yield from (sequence for sequence in self._unreadable if sequence > self.through)

    def dropped_requests(self) -> list[Request]:
        """Returns the folded requests that are in no entry: they were refused or redundant."""
        bodies = ((one, body) for identity, ((one, *_), body) in self.inputs.items() if identity not in self._used)
        return [body for one, body in bodies if isinstance(body, Request) and one.sequence <= self.through]

    def _by_position(self) -> tuple[dict[int, RecordedEntry], list[tuple[int, int]]]:
        """Returns each entry by its position, and the last position and ``through`` of each record.

        Where histories diverge, because Postgres lost ticks that were published late, the later owner's prevails.
        """
        found: dict[int, RecordedEntry] = {}
        ends: list[tuple[int, int]] = []
        reached = 0
        for record in sorted(self._records, key=lambda one: (one.epoch, one.tick, one.first_position)):
            position = record.first_position
            if position < reached:
                found = {at: entry for at, entry in found.items() if at < position}
                ends = [end for end in ends if end[0] < position]
            for raw in record.entries:
                entry = self._resolve_entry(raw, record.through)
                if entry is None:
                    break
                found[position] = entry
                position += entry.width
            else:
                ends.append((position - 1, record.through))
            reached = position
        return found, ends

    def _resolve_entry(self, raw: msgspec.Raw, through: int) -> RecordedEntry | None:
        """Returns the entry with its inputs; ``None`` if they are not among :attr:`inputs`, or cannot be read."""
        try:
            return self._read_entry(codec.decode_entry(raw), through)
        except (PayloadRefused, ValueError):
            return None

    def _read_entry(self, entry: FullEntry, through: int) -> RecordedEntry | None:
        decisions = [fact for fact, _ in codec.decode_facts(entry.decisions)]
        if entry.facts != NOTHING:
            return RecordedEntry(list(_inputs_in_full(entry)), decisions)
        if not entry.report_id:
            return RecordedEntry([], decisions)
        if entry.report_id not in self.inputs:
            return None
        messages, body = self.inputs[entry.report_id]
        again = [one for one in messages if sender_of(one.subject).kind == "requeued" and one.sequence <= through]
        message = (again or messages)[0]  # a requeued message had not been folded
        if isinstance(body, Request):
            return RecordedEntry([Input.by_client(message, body)], decisions)
        given = list(_inputs_of(message, body))[entry.index : entry.index + entry.count]
        return RecordedEntry(given, decisions)


class RecordedPartition:
    """The executions of one partition.

    Attributes:
        tick, epoch: The highest of the partition's records.
        asked: The requests to aggregates, which are in no journal.
    """

    def __init__(self, messages: Iterable[ReportedMessage], after_tick: int, fences: Collection[FencePlace]) -> None:
        """Reads the messages of a partition.

        Args:
            after_tick: Records of ticks up to this one are left out.
            fences: Those of the partition: late records are left out.

        Raises:
            NotReady: a newer server has written some of the records.
        """
        self.executions: dict[str, RecordedExecution] = {}
        self.tick = self.epoch = 0
        self.asked: list[tuple[ReportedMessage, AggregateRequest]] = []
        self._unread: list[int] = []
        for message in messages:
            if message.subject.endswith((".decided", ".checkpoint")):
                self._add_record(message, after_tick, fences)
            else:
                self._add_input(message)

    def first_unfolded(self, *, asked: bool) -> int | None:
        """Returns the sequence of the first input that still has to be folded; ``None`` if there is none.

        Args:
            asked: Whether requests to aggregates are folded again, and answered once.
        """
        left = [sequence for one in self.executions.values() for sequence in one.unfolded_sequences()]
        of_aggregates = [message.sequence for message, _ in self.asked] if asked else []
        return min([*left, *self._unread, *of_aggregates], default=None)

    def _add_record(self, message: ReportedMessage, after_tick: int, fences: Collection[FencePlace]) -> None:
        record = read_record(message.body)
        if record is None:  # if an owner wrote it, the journal has a gap there
            return
        if record.format > FORMAT:
            raise NotReady(f"EVENTS holds a journal record of format {record.format}", hint="upgrade this server")
        if message.subject.endswith(".decided") and is_late(fences, record.epoch, message.sequence):
            return  # a checkpoint is a copy of what Postgres has
        self.tick, self.epoch = max(self.tick, record.tick), max(self.epoch, record.epoch)
        if record.tick > after_tick:
            self._execution(record.execution).add_record(record)

    def _add_input(self, message: ReportedMessage) -> None:
        try:
            body = codec.decode_reported(message.body)
        except PayloadRefused:  # it becomes a dead letter when it is folded
            self._unread.append(message.sequence)
        else:
            if isinstance(body, AggregateRequest):
                self.asked.append((message, body))
                return
            self._execution(message.execution_id).add_input(message, body)

    def _execution(self, execution_id: str) -> RecordedExecution:
        return self.executions.setdefault(execution_id, RecordedExecution())


async def read_partition(log: EventLog, partition: int, after: int) -> list[ReportedMessage]:
    """Reads the messages of a partition above this sequence, inputs and records, up to the present end.

    Raises:
        Unreachable: NATS is away, or the stream missing.
        ReaderBroken: the reader may have missed messages.
    """
    last = await log.last_of(partition)
    if last <= after:
        return []
    messages: list[ReportedMessage] = []
    async with closing(await log.open_reader([partition], after, True)) as reader:
        while not messages or messages[-1].sequence < last:
            messages += await reader.next_batch(READ_AT_ONCE)
    return messages


def _inputs_in_full(entry: FullEntry) -> Iterator[Input]:
    run = run_of_report(entry.report_id) if entry.report_id else None
    number = entry.number
    for place, (fact, raw) in enumerate(codec.decode_facts(entry.facts)):
        recorded = RecordedFact(fact, run, number, entry.at_ms, step_run_id=entry.step_run_id)
        message_id = entry.report_id
        if entry.source == "client":
            message_id = getattr(fact, "request_id", "")
        yield Input(recorded, entry.source, bytes(raw), None, message_id, place)
        number += fact.width if run is not None else 0


def _inputs_of(message: ReportedMessage, report: Report) -> Iterator[Input]:
    number, identity = report.first, report_id(report.run, report.number)
    for place, raw in enumerate(report.events):
        fact = codec.decode_fact(raw)
        recorded = RecordedFact(fact, report.run, number, message.at_ms, step_run_id=report.step_run_id)
        yield Input(recorded, "worker", bytes(raw), message.sequence, identity, place)
        number += fact.width


class RecordedStarter(NamedTuple):
    """A schedule or a trigger, as last requested. ``playbook`` and ``by`` are empty if its registration is trimmed."""

    kind: str
    path: str
    playbook: str = ""
    by: str = ""
    is_paused: bool = False

    def __str__(self) -> str:
        about = f"starts {self.playbook}, registered by {self.by or 'nobody in particular'}"
        paused = ", paused" if self.is_paused else ""
        return f"{self.kind.lower()} {self.path}: {about if self.playbook else 'EVENTS has no more of it'}{paused}"


def starters_in(requests: Iterable[RequestedFact]) -> dict[str, RecordedStarter | None]:
    """Returns what these requests, in order, leave registered, by path; ``None`` for a deleted registration.

    EVENTS does not say whether a request was refused.
    """
    found: dict[str, RecordedStarter | None] = {}
    for fact in requests:
        before = found.get(fact.key)
        match fact:
            case StarterRegistered():
                is_paused = isinstance(fact, ScheduleRegistered) and fact.paused if before is None else before.is_paused
                found[fact.key] = RecordedStarter(
                    type(fact).of, fact.key, fact.terms.playbook, fact.principal, is_paused
                )
            case StarterDeleted():
                found[fact.key] = None
            case StarterPaused() | StarterResumed():
                if before is not None:
                    found[fact.key] = before._replace(is_paused=isinstance(fact, StarterPaused))
    return found


def left_of(
    registered: Mapping[str, RecordedStarter | None], origins: Mapping[str, str]
) -> tuple[RecordedStarter, ...]:
    """Returns what is registered in the end, by path, with those known only by the executions they started.

    Args:
        origins: The kinds of the starters of executions, by path.
    """
    trimmed = {path: RecordedStarter(kind, path) for path, kind in origins.items() if path not in registered}
    left = [one for one in {**registered, **trimmed}.values() if one is not None]
    return tuple(sorted(left, key=lambda one: one.path))
