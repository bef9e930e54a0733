"""Reports of one run of a command: events numbered without gaps, one report at a time (PROTOCOL §3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from noetl_stream.errors import OutcomeUnknown, Unreachable
from noetl_stream.model.events import Fact, StepClaimed
from noetl_stream.model.events.composite import MAX_TASKS, whole_run
from noetl_stream.model.ids import RunId, report_id
from noetl_stream.model.json import codec
from noetl_stream.model.messages import FORMAT, Report, StepCommand
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.worker.lease import BrokerLiveness
from noetl_stream.worker.waiting import Overdue, Trouble, persist
from noetl_stream.worker.worker_limits import FLUSH_INTERVAL_S, MAX_REPORT_BYTES, MAX_UNREPORTED_BYTES

MAX_OPENING: Final = 1 + 2 * MAX_TASKS
"""The most calls of :meth:`Reporter.add` in a whole short step."""


class Channel:
    """Publishes reports of a pool's worker to the log. Each acknowledgement also proves contact with NATS.

    Attributes:
        flusher: Flushes reporters whose oldest unsent event has waited for :data:`FLUSH_INTERVAL_S`.
        retrying: The number of reports being retried; meanwhile the worker fetches no new commands.
        trouble: The reason why the last report failed.
    """

    def __init__(self, log: EventLog, pool: str, clock: Clock, liveness: BrokerLiveness) -> None:
        self.clock = clock
        self.flusher: Overdue[Reporter] = Overdue(
            clock, FLUSH_INTERVAL_S, lambda reporter: reporter.since_s, lambda reporter: reporter.flush_soon()
        )
        self.retrying = 0
        self.trouble = Trouble(clock, "its report is not taken")
        self.on_recovered: Callable[[], None] = lambda: None
        self._log = log
        self._pool = pool
        self._liveness = liveness

    async def publish(self, execution_id: str, identity: str, body: bytes) -> None:
        """Publishes a report until it is stored. A retry sends the same bytes and id (PROTOCOL §3 *Order*)."""
        try:
            await self._log.publish_report(execution_id, self._pool, identity, body)
        except (OutcomeUnknown, Unreachable) as error:
            self.trouble.note(error)
            self.retrying += 1
            try:
                again = partial(self._log.publish_report, execution_id, self._pool, identity, body)
                await persist(self.clock, f"report {identity}", again, self.trouble.note)
            finally:
                self.retrying -= 1
                if not self.retrying:
                    self.trouble.end()
                self.on_recovered()
        self._liveness.touch()


class Reporter:
    """Numbers, groups and sends the events of one run.

    Attributes:
        run: The run.
        since_s: The monotonic time at which the oldest unsent event was added.
        next_event: The number of the next event to send.
    """

    def __init__(self, channel: Channel, command: StepCommand, run: RunId) -> None:
        self.run = run
        self.since_s = 0.0
        self.next_event = 0
        self._channel = channel
        self._command = command
        self._next_report = 0
        self._opening: list[Sequence[Fact]] | None = []
        self._groups: list[tuple[list[msgspec.Raw], int, int]] = []
        self._bytes = 0
        self._sender: asyncio.Task[None] | None = None

    def add(self, *facts: Fact) -> None:
        """Adds the run's next events. The events of one call are never split between two reports."""
        if not (self._groups or self._opening):
            self.since_s = self._channel.clock.monotonic_s()
            if self._sender is None:
                self._channel.flusher.watch(self)
        if self._opening is None:
            self._append(facts)
            return
        self._opening.append(facts)
        if len(self._opening) > MAX_OPENING:
            self._end_opening()

    def keep_apart(self) -> None:
        """Reports each fact by itself instead of the run as one: the step has a timer, set once it has started."""
        self._end_opening()

    def _append(self, facts: Sequence[Fact], at_most: int | None = None) -> bool:
        """Adds a group of events, unless it has more bytes than ``at_most``; returns whether it was added."""
        group = [msgspec.Raw(codec.encode(fact)) for fact in facts]
        size = sum(map(len, group))
        if at_most is not None and size > at_most:
            return False
        self._groups.append((group, size, sum(fact.width for fact in facts)))
        self._bytes += size
        return True

    def _end_opening(self) -> None:
        """Adds the run's first events to the report, as one fact if they are a whole short step."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        whole = whole_run(self._command.step_run_id, [fact for facts in opening for fact in facts])
        if whole is not None and self._append((whole,), at_most=MAX_REPORT_BYTES):
            return
        for facts in opening:
            self._append(facts)

    @property
    def is_full(self) -> bool:
        """Whether so many bytes are unreported that the run should :meth:`wait_for_room`."""
        return self._bytes > MAX_UNREPORTED_BYTES

    async def wait_for_room(self) -> None:
        """Waits until the run may add events again."""
        while self.is_full:
            self.flush_soon()
            sender = self._sender
            if sender is not None:
                await asyncio.wait((sender,))
                sender.result()

    def flush_soon(self) -> None:
        """Starts sending the unsent events, unless a report of this run is being sent."""
        if self._sender is None and (self._groups or self._opening):
            self._channel.flusher.forget(self)
            self._sender = asyncio.ensure_future(self._send_as_sender())

    async def finish(self) -> None:
        """Waits until all events of the run are stored."""
        sender = self._sender
        if sender is not None:
            await asyncio.wait((sender,))
            sender.result()
        self._channel.flusher.forget(self)
        await self._send()

    def discard(self) -> None:
        """Drops unsent events, which servers would reject."""
        self._channel.flusher.forget(self)
        self._groups.clear()
        self._opening = None
        self._bytes = 0
        if self._sender is not None:
            self._sender.cancel()
            self._sender = None  # not awaited: its cancellation must not look like the run's

    async def publish_claim(self, claim: StepClaimed) -> None:
        """Sends the claim as event 0, in a report of its own."""
        await self._publish([msgspec.Raw(codec.encode(claim))], 0)

    async def _send_as_sender(self) -> None:
        try:
            await self._send()
        finally:
            self._sender = None
            if self._groups:
                self._channel.flusher.watch(self)

    async def _send(self) -> None:
        """Sends the present events in reports. Events added meanwhile are sent later."""
        if self._opening is not None:
            self._end_opening()
        unsent, self._groups = self._groups, []
        while unsent:
            events, size, width = unsent.pop(0)
            while unsent and size + unsent[0][1] <= MAX_REPORT_BYTES:
                more, more_bytes, more_width = unsent.pop(0)
                events += more
                size += more_bytes
                width += more_width
            first, self.next_event = self.next_event, self.next_event + width
            await self._publish(events, first)
            self._bytes -= size

    async def _publish(self, events: list[msgspec.Raw], first: int) -> None:
        number, self._next_report = self._next_report, self._next_report + 1
        command, run = self._command, self.run
        report = Report(
            execution_id=command.execution_id,
            step_run_id=command.step_run_id,
            command_id=command.command_id,
            issue=run.issue,
            num_delivered=run.num_delivered,
            nonce=run.nonce,
            number=number,
            first=first,
            events=events,
            capability=command.capability,
            format=max(FORMAT, command.format),
        )
        # Text such as an error's message may contain NUL characters, which no server accepts.
        body = codec.without_nul(codec.encode(report))
        await self._channel.publish(report.execution_id, report_id(run, number), body)
