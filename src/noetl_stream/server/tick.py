"""A tick in the making: the rows one transaction writes and the messages that follow its commit (PROTOCOL §1, §2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec

from noetl_stream.engine.effects.child_messages import child_message
from noetl_stream.engine.effects.commands import build_command
from noetl_stream.engine.state import Execution, Timer
from noetl_stream.model import codec
from noetl_stream.model.events import (
    ExecutionFinished,
    ExecutionPaused,
    ExecutionStarted,
    Fact,
    StepCancelled,
    StepScheduled,
)
from noetl_stream.model.ids import RunId, derive, partition_of
from noetl_stream.model.messages import FORMAT, InboxMessage, InputByReport, JournalRecord, Stop
from noetl_stream.model.reference import Reference
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.command_queue import QueuedCommand
from noetl_stream.ports.dead_letters import DeadLetterRow
from noetl_stream.ports.event_log import DecidedMessage
from noetl_stream.ports.listing import error_terms, label_terms
from noetl_stream.ports.store import (
    EventRow,
    ExecutionRow,
    FeedRow,
    InboxRow,
    ObjectUseRow,
    PlaybookRow,
    RequestRow,
    TermRow,
    TimerRow,
)

MAX_RECORD_BYTES = 512 * 1024
"""A journal record is cut above this; one entry alone may be larger, up to a few limits of an execution."""

NO_LABELS: Mapping[str, Any] = MappingProxyType({})

Timers = Mapping[str, Timer]

_names: dict[type, str] = {}


def name_of(fact: Fact) -> str:
    """The event name of a fact."""
    name = _names.get(type(fact))
    if name is None:
        name = _names[type(fact)] = str(type(fact).__struct_config__.tag)
    return name


@dataclass(slots=True)
class JournalSegment:
    """What one execution adds to its journal in this tick."""

    partition: int
    first_position: int
    through: int
    entries: list[msgspec.Raw] = field(default_factory=list)


@dataclass(slots=True)
class PendingTick:
    """Collects; holds no decision of its own."""

    events: list[EventRow] = field(default_factory=list)
    touched: dict[str, tuple[Execution, int, int]] = field(default_factory=dict)
    requests: list[RequestRow] = field(default_factory=list)
    playbooks: dict[str, PlaybookRow] = field(default_factory=dict)
    stretches: dict[str, JournalSegment] = field(default_factory=dict)
    commands: list[QueuedCommand] = field(default_factory=list)
    withdrawn: list[tuple[str, str]] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    claims: list[tuple[str, str, RunId]] = field(default_factory=list)
    timers: dict[tuple[str, str], TimerRow] = field(default_factory=dict)
    timers_gone: set[tuple[str, str]] = field(default_factory=set)
    inbox: list[InboxRow] = field(default_factory=list)
    inbox_folded: list[int] = field(default_factory=list)
    object_uses: list[ObjectUseRow] = field(default_factory=list)
    dead_letters: list[DeadLetterRow] = field(default_factory=list)
    terms: list[TermRow] = field(default_factory=list)

    @property
    def partitions(self) -> set[int]:
        """Those of the executions it touches."""
        return {partition for _, partition, _ in self.touched.values()}

    def record_input(self, row: EventRow, partition: int, entry: bytes, through: int) -> None:
        """An input that changed something: its row, and its place in the journal record."""
        self.events.append(row)
        self._stretch(row.execution_id, partition, row.position, through).entries.append(msgspec.Raw(entry))

    def record_decisions(
        self,
        plan: Plan | None,
        state: Execution,
        facts: Sequence[Fact],
        partition: int,
        through: int,
        at_ms: int,
        *,
        with_input: bool = False,
    ) -> None:
        """Decisions in fold order, the last at ``state.position``; commands, cancellations and messages they order.

        ``with_input``: the first is no decision but their input, one of the server's own.
        """
        if not facts:
            return
        execution_id = state.execution_id
        position = state.position - len(facts)
        cause = position + 1 if with_input else position
        stretch = self._stretch(execution_id, partition, position + 1, through)
        for fact in facts:
            position += 1
            data = codec.encode(fact)
            step_run_id = getattr(fact, "step_run_id", None)
            self.events.append(
                EventRow(
                    execution_id,
                    position,
                    name_of(fact),
                    "server",
                    at_ms,
                    step_run_id,
                    None,
                    None,
                    None,
                    data,
                    None if position == cause else cause,
                )
            )
            stretch.entries.append(msgspec.Raw(data))
            if plan is not None:
                self._order(plan, state, fact, partition)
                if isinstance(fact, ExecutionStarted):
                    self._find_by(execution_id, label_terms(plan.labels))
            if isinstance(fact, ExecutionFinished) and fact.outcome.error is not None:
                self._find_by(execution_id, error_terms(msgspec.structs.asdict(fact.outcome.error)))
            message = child_message(state, fact, position)
            if message is not None:
                self._send(derive(execution_id, "inbox", position), message)

    def touch(self, state: Execution, partition: int, at_ms: int) -> None:
        """The execution's row is written anew."""
        self.touched[state.execution_id] = (state, partition, at_ms)

    def note_timers(self, execution_id: str, partition: int, before: Timers, after: Timers) -> None:
        """Rows follow the timers of the state: what is set or moved is written, what is gone is deleted."""
        for timer_id in before.keys() - after.keys():
            self.timers.pop((execution_id, timer_id), None)
            self.timers_gone.add((execution_id, timer_id))
        for timer_id, timer in after.items():
            if before.get(timer_id) is not timer:
                key = (execution_id, timer_id)
                self.timers[key] = TimerRow(execution_id, timer_id, partition, timer.due_ms, timer.purpose)
                self.timers_gone.discard(key)

    def use_object(self, execution_id: str, reference: Reference) -> None:
        """The execution's journal names a result of another one from here on."""
        self.object_uses.append(ObjectUseRow(execution_id, reference.key, reference.store, reference.execution_id))

    def _find_by(self, execution_id: str, terms: Iterable[str]) -> None:
        self.terms += [TermRow(term, execution_id) for term in terms]

    def _send(self, identity: str, message: InboxMessage) -> None:
        row = InboxRow(identity, partition_of(message.execution_id), message.execution_id, codec.encode(message))
        self.inbox.append(row)

    def _order(self, plan: Plan, state: Execution, fact: Fact, partition: int) -> None:
        if isinstance(fact, StepScheduled):
            assignment = state.assignments.get(fact.command_id)
            if assignment is not None and assignment.issue == fact.issue:
                command = build_command(plan, state, assignment, partition)
                body = codec.encode(command)
                self.commands.append(
                    QueuedCommand(command.pool, state.execution_id, command.command_id, command.issue, body)
                )
        elif isinstance(fact, StepCancelled):
            if fact.command_id not in state.assignments:  # nobody had begun it: its copy in the queue has no meaning
                self.withdrawn.append((state.execution_id, fact.command_id))
            self.stops.append(Stop(state.execution_id, [fact.command_id], fact.reason))
        elif isinstance(fact, ExecutionPaused) and state.assignments:
            self.stops.append(Stop(state.execution_id, list(state.assignments), "paused", pausing=True))

    def _stretch(self, execution_id: str, partition: int, position: int, through: int) -> JournalSegment:
        stretch = self.stretches.get(execution_id)
        if stretch is None:
            stretch = self.stretches[execution_id] = JournalSegment(partition, position, through)
        stretch.through = max(stretch.through, through)
        return stretch

    def fed(self, ticks: Mapping[int, int]) -> list[FeedRow]:
        """What the whole feed is told: a row for each partition whose journals grow.

        Args:
            ticks: Of each partition after the commit.
        """
        grown: dict[int, list[tuple[str, int, int]]] = {}
        for execution_id, stretch in self.stretches.items():
            last = stretch.first_position + len(stretch.entries) - 1
            grown.setdefault(stretch.partition, []).append((execution_id, stretch.first_position, last))
        return [FeedRow(partition, ticks[partition], codec.encode(entries)) for partition, entries in grown.items()]

    def decided(self, ticks: dict[int, tuple[int, int]], owner: str) -> list[DecidedMessage]:
        """The journal records, one an execution, cut where they would grow too large.

        Args:
            ticks: ``(tick, epoch)`` of each partition after the commit.
        """
        messages: list[DecidedMessage] = []
        for execution_id, stretch in self.stretches.items():
            tick, epoch = ticks[stretch.partition]
            for first, entries in _cut(stretch):
                record = JournalRecord(
                    execution_id, first, entries, stretch.through, stretch.partition, tick, epoch, FORMAT
                )
                identity = f"{stretch.partition}.{tick}.{epoch}.{owner}.{execution_id}.{first}"
                messages.append(DecidedMessage(stretch.partition, execution_id, identity, codec.encode(record)))
        return messages


def _cut(stretch: JournalSegment) -> list[tuple[int, list[msgspec.Raw]]]:
    pieces: list[tuple[int, list[msgspec.Raw]]] = []
    first, size = stretch.first_position, 0
    entries: list[msgspec.Raw] = []
    for entry in stretch.entries:
        if entries and size + len(entry) > MAX_RECORD_BYTES:
            pieces.append((first, entries))
            first, size, entries = first + len(entries), 0, []
        entries.append(entry)
        size += len(entry) + 1
    pieces.append((first, entries))
    return pieces


def input_entry(report_id: str, index: int) -> bytes:
    """How a record names a reported fact."""
    return codec.encode(InputByReport(report_id, index))


def execution_row(
    state: Execution, partition: int, started_ms: int, at_ms: int, labels: Mapping[str, Any] = NO_LABELS
) -> ExecutionRow:
    """What people read of ``state``."""
    outcome = state.outcome
    result = codec.encode(outcome.result) if outcome is not None and outcome.status == "ok" else None
    error = codec.encode(outcome.error) if outcome is not None and outcome.error is not None else None
    return ExecutionRow(
        state.execution_id,
        partition,
        state.shown_status,
        state.path,
        state.version,
        state.digest,
        state.position,
        started_ms,
        at_ms,
        at_ms if state.ended else None,
        result,
        error,
        codec.encode(state.ctx),
        state.discarded,
        state.trace_id,
        len(state.assignments),
        len(state.children),
        state.deciding.key if state.deciding is not None else None,
        state.ctx_version,
        codec.encode(dict(labels)),
        state.rerun_of or None,
    )
