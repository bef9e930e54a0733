"""A pending tick: the rows one transaction writes and the messages that follow its commit (PROTOCOL §1, §2)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar, assert_never

import msgspec

from noetl_stream.engine.effects import (
    AddTerms,
    AnswerStart,
    DropTerms,
    DropTimer,
    Effect,
    InheritSecrets,
    IssueCommand,
    SendMessage,
    SetTimer,
    StopWorkers,
    TellOfEvent,
    UseObject,
    WithdrawCommand,
)
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.model.events import Fact, Source
from noetl_stream.model.ids import RunId, derive, partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import (
    AGGREGATES_FORMAT,
    FORMAT,
    NOTHING,
    AggregateMessage,
    Drop,
    FullEntry,
    InboxMessage,
    RecordEntry,
    Request,
    StepCommand,
    Stop,
    UnreadableCommand,
)
from noetl_stream.model.search_terms import duration_terms
from noetl_stream.model.status import Rejection
from noetl_stream.ports.stores.aggregates import (
    AggregateKey,
    AggregateRow,
    HistoryRow,
    HistoryTrim,
    LimitSlotKey,
    LimitSlotRow,
    RequestTrim,
)
from noetl_stream.ports.stores.dead_letters import DeadLetterRow, storable_text
from noetl_stream.ports.stores.store import (
    EntryRow,
    ExecutionRow,
    FeedRow,
    InboxItem,
    InboxRow,
    ObjectUseRow,
    PlaybookRow,
    RequestRow,
    StaleReportRow,
    TermRow,
    TimerRow,
)
from noetl_stream.ports.streams.command_queue import QueuedCommand
from noetl_stream.ports.streams.event_log import DecidedMessage, ReportedMessage
from noetl_stream.protocol.subjects import command_subject, sender_of
from noetl_stream.server.journal_records import Part, Stamp, messages_of, parts_of
from noetl_stream.server.memory.execution_cache import CachedExecution
from noetl_stream.server.memory.snapshots import decoded_bytes
from noetl_stream.server.playbook_measures import EndedStep
from noetl_stream.server.ticks.watching import ToTrigger

log = logging.getLogger(__name__)


class Outgoing(NamedTuple):
    """A message that an execution or aggregate sends to another one."""

    sender: str
    row: InboxRow


class SentEvent(NamedTuple):
    """A message to a trigger about the execution ``sender``; ``number`` distinguishes messages of one position."""

    effect: SendMessage
    sender: str
    number: int


_Sent = TypeVar("_Sent", bound=StepCommand | InboxMessage | AggregateMessage)

EMPTY: Final = b"{}"


class Input(msgspec.Struct, frozen=True, gc=False):
    """One fact on its way into the journal.

    Attributes:
        recorded: The fact as the engine takes it.
        source: The recorder of the fact.
        data: The fact as JSON, as stored in the journal.
        sequence: The sequence of its message in EVENTS; ``None`` for the server's own inputs.
        message_id: The id of that message, a request or report. Empty for the server's own inputs.
        place: The index of the fact in that message.
    """

    recorded: RecordedFact
    source: Source
    data: bytes
    sequence: int | None = None
    message_id: str = ""
    place: int = 0

    @classmethod
    def by_client(cls, message: ReportedMessage, request: Request) -> Input:
        """Makes the input of a request, from its message in EVENTS."""
        recorded = RecordedFact(request.fact, at_ms=message.at_ms)
        return cls(recorded, "client", codec.encode(request.fact), message.sequence, request.request_id)

    @classmethod
    def by_server(cls, recorded: RecordedFact) -> Input:
        """Makes an input that did not come through EVENTS: timer, inbox, reference, reconcile."""
        return cls(recorded, "server", codec.encode(recorded.fact))


class PendingEntry(msgspec.Struct, gc=False):
    """A journal entry in preparation: the facts of one message, and the decisions after the last of them.

    ``decided_at`` is the position of the first decision.
    """

    position: int
    given: Input
    at_ms: int
    facts: list[bytes]
    decisions: bytes | None = None
    decided_at: int = 0

    def may_take(self, given: Input) -> bool:
        """Returns whether the input is the next fact of the same message, and no decision precedes it."""
        mine = self.given
        follows = given.message_id == mine.message_id != "" and given.place == mine.place + len(self.facts)
        return follows and self.decisions is None

    def row(self, execution_id: str) -> EntryRow:
        recorded, given = self.given.recorded, self.given
        is_reported = recorded.run is not None
        return EntryRow(
            execution_id=execution_id,
            position=self.position,
            source=given.source,
            at_ms=self.at_ms,
            step_run_id=recorded.step_run_id or getattr(recorded.fact, "step_run_id", None),
            report_id=given.message_id if is_reported else None,
            number=recorded.number if is_reported else None,
            source_seq=given.sequence,
            data=codec.encode_facts(self.facts),
            decisions=self.decisions,
        )

    def record_parts(self) -> Sequence[Part]:
        """Returns the entry as parts of journal records, with positions; several if it has many decisions."""
        decisions = NOTHING if self.decisions is None else msgspec.Raw(self.decisions)
        if self.given.message_id:
            entry = RecordEntry(self.given.message_id, self.given.place, len(self.facts), decisions)
        else:
            facts = msgspec.Raw(codec.encode_facts(self.facts))
            entry = FullEntry("", 0, len(self.facts), decisions, facts, self.at_ms)
        return parts_of(self.position, entry, self.decided_at)


class JournalSegment(msgspec.Struct, gc=False):
    """The additions of one execution to its journal in this tick: about ``size`` bytes of memory."""

    partition: int
    through: int
    last_position: int = 0
    size: int = 0
    entries: list[PendingEntry] = []

    @property
    def first_position(self) -> int:
        return self.entries[0].position


class Touched(msgspec.Struct, frozen=True, gc=False):
    """An execution after a tick, as far as its row needs it."""

    state: Execution
    partition: int
    started_ms: int
    at_ms: int
    labels: Mapping[str, Any]


@dataclass(slots=True)
class PendingTick:
    """Collects the rows and messages of a tick; makes no decisions of its own.

    Attributes:
        encode_command: Encodes a command for its worker, given the path of its playbook.
        format: The format of messages sent.
        claims: Claims of commands, by the subject of the answer, which is made from the committed state.
        moved: The new cursors of partitions whose messages the tick folds: sequence and time of the last.
        inherited: Pairs of executions in which the second gets values of the first.
        drops: Claims that are refused in any state, by the subject of the answer.
        terms: The search terms that each execution has from now on, or no longer.
        steps_ended: The step runs that ended, to be measured.
        late: The delays of starts of occurrences, in seconds, with the path of the schedule.
    """

    encode_command: Callable[[StepCommand, str], bytes] = lambda command, _path: codec.encode(command)
    format: int = FORMAT
    moved: dict[int, tuple[int, int]] = field(default_factory=dict)
    touched: dict[str, Touched] = field(default_factory=dict)
    requests: list[RequestRow] = field(default_factory=list)
    answers: list[RequestRow] = field(default_factory=list)
    playbooks: dict[str, PlaybookRow] = field(default_factory=dict)
    segments: dict[str, JournalSegment] = field(default_factory=dict)
    commands: list[QueuedCommand] = field(default_factory=list)
    withdrawn: list[tuple[str, str]] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    claims: list[tuple[str, str, RunId]] = field(default_factory=list)
    drops: list[tuple[str, Drop]] = field(default_factory=list)
    timers: dict[tuple[str, str], TimerRow] = field(default_factory=dict)
    timers_gone: set[tuple[str, str]] = field(default_factory=set)
    inbox: list[Outgoing] = field(default_factory=list)
    inbox_folded: list[int] = field(default_factory=list)
    told: list[SentEvent] = field(default_factory=list)
    object_uses: list[ObjectUseRow] = field(default_factory=list)
    dead_letters: list[DeadLetterRow] = field(default_factory=list)
    stale_reports: list[StaleReportRow] = field(default_factory=list)
    inherited: set[tuple[str, str]] = field(default_factory=set)
    terms: dict[str, dict[str, bool]] = field(default_factory=dict)
    aggregates: dict[str, AggregateRow] = field(default_factory=dict)
    aggregates_gone: dict[str, AggregateKey] = field(default_factory=dict)
    history: dict[tuple[str, int], HistoryRow] = field(default_factory=dict)
    history_gone: dict[str, HistoryTrim] = field(default_factory=dict)
    limit_slots: dict[LimitSlotKey, LimitSlotRow] = field(default_factory=dict)
    limit_slots_gone: dict[LimitSlotKey, LimitSlotKey] = field(default_factory=dict)
    requests_gone: dict[str, RequestTrim] = field(default_factory=dict)
    trigger_faults: int = 0
    steps_ended: list[EndedStep] = field(default_factory=list)
    late: list[tuple[str, float]] = field(default_factory=list)

    @property
    def partitions(self) -> set[int]:
        """The partitions of the executions and aggregates in this tick."""
        touched = {one.partition for one in self.touched.values()}
        if self.aggregates or self.aggregates_gone:
            touched.update(map(partition_of, (*self.aggregates, *self.aggregates_gone)))
        return touched

    def record(
        self,
        given: Input,
        position: int,
        decisions: Sequence[Fact],
        cached: CachedExecution,
    ) -> None:
        """Records an input at ``position`` and its decisions in the segment of ``cached``, the execution after them."""
        after, at_ms = cached.state, cached.at_ms
        assert after is not None
        execution_id = after.execution_id
        segment = self.segments.get(execution_id)
        if segment is None:
            segment = self.segments[execution_id] = JournalSegment(partition_of(execution_id), cached.through)
        elif segment.through < cached.through:
            segment.through = cached.through
        entries = segment.entries
        if entries and entries[-1].may_take(given):
            entry = entries[-1]
            entry.facts.append(given.data)
        else:
            entry = PendingEntry(position, given, at_ms, [given.data])
            entries.append(entry)
        segment.size += decoded_bytes(given.data)
        if decisions:
            entry.decisions = encoded = codec.encode(decisions)
            entry.decided_at = position + given.recorded.fact.width
            segment.size += decoded_bytes(encoded)
        segment.last_position = after.position
        self.touched[execution_id] = Touched(after, segment.partition, cached.started_ms, at_ms, cached.labels)
        if after.ended:
            self._add_terms(execution_id, duration_terms(at_ms - cached.started_ms))

    def collect(self, execution_id: str, effects: Sequence[Effect]) -> list[AnswerStart | TellOfEvent]:
        """Collects effects, applied once this tick is committed. The last change of a timer wins.

        Returns those that are left to the fold, which knows the plan and the triggers.
        """
        left: list[AnswerStart | TellOfEvent] = []
        for effect in effects:
            match effect:
                case IssueCommand():
                    self._issue(effect.command)
                case AnswerStart() | TellOfEvent():
                    left.append(effect)
                case WithdrawCommand(command_id):
                    self.withdrawn.append((execution_id, command_id))
                case StopWorkers(stop):
                    self.stops.append(stop)
                case SendMessage():
                    self.send(effect, execution_id, *([effect.part] if effect.part else []))
                case SetTimer(timer_id, timer):
                    self._set_timer(execution_id, timer_id, timer.due_ms, timer.purpose)
                case DropTimer(timer_id):
                    self._drop_timer(execution_id, timer_id)
                case AddTerms(terms):
                    self._add_terms(execution_id, terms)
                case DropTerms(terms):
                    self._add_terms(execution_id, terms, found=False)
                case UseObject(reference):
                    self.object_uses.append(
                        ObjectUseRow(
                            execution_id=execution_id,
                            key=reference.key,
                            # The files and tables in it stay sealed for its owner.
                            store="journal" if reference.has_data else reference.store,
                            owner=reference.execution_id,
                        )
                    )
                case InheritSecrets(giver):
                    self.inherited.add((giver, execution_id))
                case _:
                    assert_never(effect)
        return left

    def _issue(self, command: StepCommand) -> None:
        path = self.touched[command.execution_id].state.path
        body = self.encode_command(_in_format(command, self.format), path)
        queued = QueuedCommand(
            command.pool, command.execution_id, command.command_id, command.issue, body, command.priority
        )
        self.commands.append(queued)

    def _add_terms(self, execution_id: str, terms: Collection[str], *, found: bool = True) -> None:
        if terms:
            self.terms.setdefault(execution_id, {}).update(dict.fromkeys(sorted(terms), found))

    def term_rows(self, *, found: bool) -> list[TermRow]:
        """Returns the terms by which executions can be found from now on, or no longer."""
        return [
            TermRow(term=term, execution_id=execution_id)
            for execution_id, terms in self.terms.items()
            for term, is_found in terms.items()
            if is_found is found
        ]

    def send(self, effect: SendMessage, sender: str, *place: int) -> None:
        """Collects a message to another execution, or to or from an aggregate.

        Args:
            sender: The id of the sending execution or aggregate.
            place: Numbers that distinguish the message from others of this sender at this position.
        """
        receiver = effect.message.execution_id
        identity = derive(sender, "inbox", effect.position, *place)
        body = codec.encode(_in_format(effect.message, self.format))
        row = InboxRow(id=identity, partition=partition_of(receiver), execution_id=receiver, body=body)
        self.inbox.append(Outgoing(sender, row))

    def tell_triggers(self, messages: Iterable[ToTrigger], position: int, execution_id: str) -> int:
        """Collects the messages to triggers about an execution's acts at ``position``; returns the bytes of their
        events. They are sent once secrets are hidden in them.
        """
        total = 0
        for number, (message, size) in enumerate(messages, start=1):
            self.told.append(SentEvent(SendMessage(position, message), execution_id, number))
            total += size
        return total

    def set_timers(self, aggregate_id: str, due: Mapping[str, int], gone: Sequence[str]) -> None:
        """Sets timers of an aggregate, by id, and drops the ``gone`` ones."""
        for timer_id, due_ms in due.items():
            self._set_timer(aggregate_id, timer_id, due_ms, "due")
        for timer_id in gone:
            self._drop_timer(aggregate_id, timer_id)

    def _set_timer(self, id: str, timer_id: str, due_ms: int, purpose: str) -> None:
        self.timers_gone.discard((id, timer_id))
        self.timers[id, timer_id] = TimerRow(
            execution_id=id, timer_id=timer_id, partition=partition_of(id), due_ms=due_ms, purpose=purpose
        )

    def _drop_timer(self, id: str, timer_id: str) -> None:
        self.timers.pop((id, timer_id), None)
        self.timers_gone.add((id, timer_id))

    def answer(
        self, request_id: str, execution_id: str, answer: Mapping[str, Any], position: int, *, push: bool = True
    ) -> None:
        """Records the answer to a client's request, at the position of its change.

        Args:
            push: Whether the client is notified after the commit. A start is announced by its journal record instead.
        """
        row = RequestRow(
            request_id=request_id, execution_id=execution_id, answer=codec.encode(answer), position=position
        )
        self.requests.append(row)
        if push:
            self.answers.append(row)

    def leave_letters(self, messages: Sequence[ReportedMessage]) -> None:
        """Leaves the dead letters of these messages of EVENTS to a later tick."""
        left = {message.sequence for message in messages}
        self.dead_letters = [one for one in self.dead_letters if one.source != "events" or one.source_seq not in left]

    def entry_rows(self) -> list[EntryRow]:
        """Returns the rows of the journal entries."""
        return [entry.row(execution_id) for execution_id, one in self.segments.items() for entry in one.entries]

    def execution_rows(self) -> list[ExecutionRow]:
        """Returns the rows of executions that people read."""
        return [
            execution_row(one.state, one.partition, one.started_ms, one.at_ms, one.labels)
            for one in self.touched.values()
        ]

    def feed_rows(self, ticks: Mapping[int, int]) -> list[FeedRow]:
        """Returns the feed rows: one for each partition whose journals grow.

        Args:
            ticks: The tick of each partition after the commit.
        """
        grown: dict[int, list[tuple[str, int, int]]] = {}
        for execution_id, segment in self.segments.items():
            grown.setdefault(segment.partition, []).append(
                (execution_id, segment.first_position, segment.last_position)
            )
        return [
            FeedRow(partition=partition, tick=ticks[partition], entries=codec.encode(entries))
            for partition, entries in grown.items()
        ]

    def journal_records(self, ticks: Mapping[int, int], epochs: Mapping[int, int], owner: str) -> list[DecidedMessage]:
        """Returns the journal records, one per execution, split where they would grow too large.

        Args:
            ticks: The tick of each partition after the commit.
        """
        messages: list[DecidedMessage] = []
        stamps: dict[int, Stamp] = {}
        for execution_id, segment in self.segments.items():
            partition = segment.partition
            stamp = stamps.get(partition)
            if stamp is None:
                stamps[partition] = stamp = Stamp(partition, ticks[partition], epochs[partition], owner, self.format)
            parts = [part for entry in segment.entries for part in entry.record_parts()]
            messages += messages_of(execution_id, parts, segment.through, stamp)
        return messages


def _in_format(message: _Sent, written: int) -> _Sent:
    return (
        message if message.format in (written, AGGREGATES_FORMAT) else msgspec.structs.replace(message, format=written)
    )


def refused_answer(execution_id: str, rejection: Rejection) -> dict[str, Any]:
    """Returns the answer to a rejected request."""
    return {"ok": False, "execution_id": execution_id, "error": rejection.text, "code": rejection.code}


def execution_row(
    state: Execution, partition: int, started_ms: int, at_ms: int, labels: Mapping[str, Any]
) -> ExecutionRow:
    """Returns the execution's row for people, made of ``state``."""
    outcome = state.outcome
    return ExecutionRow(
        execution_id=state.execution_id,
        partition=partition,
        status=state.shown_status,
        path=state.path,
        version=state.version,
        digest=state.digest,
        position=state.position,
        started_ms=started_ms,
        updated_ms=at_ms,
        finished_ms=at_ms if state.ended else None,
        result=codec.encode(outcome.result) if outcome is not None and outcome.status == "ok" else None,
        error=codec.encode(outcome.error) if outcome is not None and outcome.error is not None else None,
        ctx=codec.encode(state.ctx) if state.ctx else EMPTY,
        discarded=state.discarded,
        trace_id=state.trace_id,
        commands=len(state.assignments),
        children=len(state.children),
        looks_into=state.looks_into,
        ctx_version=state.ctx_version,
        labels=codec.encode(dict(labels)) if labels else EMPTY,
        rerun_of=state.rerun_of or None,
        stored_bytes=state.stored_bytes,
        key=state.key,
        inputs=codec.encode(state.inputs) if state.inputs else EMPTY,
        failed_step=state.failed_step,
        workers=_encode_workers(state.workers),
        due=state.due,
    )


@lru_cache(maxsize=1024)
def _encode_workers(workers: tuple[str, ...]) -> bytes:
    """Encodes the names of workers; most executions have the same few."""
    return codec.encode(workers)


def message_letter(message: ReportedMessage, reason: str) -> DeadLetterRow:
    """Makes a dead letter of a message of EVENTS, identified also by its time: the stream may lose its tail."""
    place = {"sequence": message.sequence, "execution": message.execution_id}
    reason = storable_text(reason)  # it may quote the message
    log.error("dead letter in EVENTS: %s", reason, extra=place)
    return DeadLetterRow(
        id=f"events-{message.sequence}-{message.at_ms}",
        at_ms=message.at_ms,
        source="events",
        partition=message.partition,
        execution_id=message.execution_id,
        subject=message.subject,
        reason=reason,
        body=message.body,
        source_seq=message.sequence,
    )


def inbox_letter(item: InboxItem, at_ms: int, reason: str) -> DeadLetterRow:
    """Makes a dead letter for an inbox message."""
    reason = storable_text(reason)
    log.error("dead letter in the inbox: %s", reason, extra={"execution": item.execution_id})
    return DeadLetterRow(
        id=f"inbox-{item.seq}",
        at_ms=at_ms,
        source="inbox",
        partition=item.partition,
        execution_id=item.execution_id,
        subject="inbox",
        reason=reason,
        body=item.body,
        source_seq=item.seq,
    )


def command_letter(command: StepCommand, at_ms: int, reason: str) -> DeadLetterRow:
    """Makes a dead letter for a command given up; its step run has failed."""
    place = {"execution": command.execution_id, "command": command.command_id}
    log.error("dead letter in COMMANDS: %s", reason, extra=place)
    return DeadLetterRow(
        id=f"command-{command.command_id}-{command.issue}",
        at_ms=at_ms,
        source="command",
        partition=command.partition,
        execution_id=command.execution_id,
        subject=command_subject(command.pool, command.execution_id, command.command_id, command.priority),
        reason=reason,
        body=codec.encode(command),
    )


def unreadable_letter(message: ReportedMessage, command: UnreadableCommand) -> DeadLetterRow:
    """Makes a dead letter for a command that no worker could read."""
    reason = storable_text(command.reason)
    log.error("dead letter in COMMANDS: %s", reason, extra={"execution": command.execution_id})
    return DeadLetterRow(
        id=f"events-{message.sequence}-{message.at_ms}",
        at_ms=message.at_ms,
        source="command",
        partition=message.partition,
        execution_id=command.execution_id,
        subject=command_subject(sender_of(message.subject).pool, command.execution_id, command.command_id),
        reason=reason,
        body=command.body,
    )
