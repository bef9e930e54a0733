"""What one run of a command reports: events numbered without holes, one report after the other (PROTOCOL §3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from noetl_stream.errors import OutcomeUnknown, Unreachable
from noetl_stream.model import codec
from noetl_stream.model.events import Fact, StepClaimed
from noetl_stream.model.ids import RunId, report_id
from noetl_stream.model.messages import Report, StepCommand
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.event_log import EventLog
from noetl_stream.worker.broker_liveness import BrokerLiveness
from noetl_stream.worker.limits import FLUSH_INTERVAL_S, MAX_REPORT_BYTES, MAX_UNREPORTED_BYTES
from noetl_stream.worker.waiting import persist


class Flusher:
    """Flushes the reporters whose first waiting event is :data:`FLUSH_INTERVAL_S` old. One task for all of them.

    A step that ends sooner costs an entry in a dictionary, no timer and no task.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watched: dict[Reporter, None] = {}
        self._wanted = asyncio.Event()

    def watch(self, reporter: Reporter) -> None:
        self._watched[reporter] = None
        self._wanted.set()

    def forget(self, reporter: Reporter) -> None:
        self._watched.pop(reporter, None)

    async def run(self) -> None:
        """Flushes without end. The watched stand in the order of their first event, so the oldest is the first."""
        while True:
            await self._wanted.wait()
            oldest = next(iter(self._watched), None)
            if oldest is None:
                self._wanted.clear()
                continue
            left_s = oldest.since_s + FLUSH_INTERVAL_S - self._clock.monotonic_s()
            if left_s > 0:
                await self._clock.sleep(left_s)
                continue
            self.forget(oldest)
            oldest.flush_soon()


class Channel:
    """Where reports go: the log, the clock that paces them, and the proof of contact that each acknowledgement is.

    Attributes:
        stuck: Reports that are not being taken at the moment; the worker fetches nothing new meanwhile.
    """

    def __init__(self, log: EventLog, clock: Clock, liveness: BrokerLiveness, flusher: Flusher) -> None:
        self.clock = clock
        self.flusher = flusher
        self.stuck = 0
        self.on_unstuck: Callable[[], None] = lambda: None
        self._log = log
        self._liveness = liveness

    async def publish(self, report: Report) -> None:
        """Ends when ``report`` is stored; the same bytes go out under the same id until then (PROTOCOL §3 *Order*)."""
        body, identity = codec.encode(report), report_id(report.run, report.number)

        async def store() -> int:
            return await self._log.publish_reported(report.execution_id, identity, body)

        try:
            await store()
        except (OutcomeUnknown, Unreachable):
            self.stuck += 1
            try:
                await persist(self.clock, f"report {identity}", store)
            finally:
                self.stuck -= 1
                self.on_unstuck()
        self._liveness.touch()


class Reporter:
    """The events of one run on their way into the log.

    Attributes:
        run: Whose events these are.
        since_s: Monotonic time at which the oldest waiting event was added.
        next_event: The number of the next event that is sent.
    """

    def __init__(self, channel: Channel, command: StepCommand, run: RunId) -> None:
        self.run = run
        self.since_s = 0.0
        self.next_event = 0
        self._channel = channel
        self._command = command
        self._next_report = 0
        self._groups: list[tuple[list[msgspec.Raw], int]] = []
        self._bytes = 0
        self._sender: asyncio.Task[None] | None = None

    def add(self, *facts: Fact) -> None:
        """Takes the run's next events. Those of one call are never torn apart into two reports."""
        group = [msgspec.Raw(codec.encode(fact)) for fact in facts]
        size = sum(map(len, group))
        if not self._groups:
            self.since_s = self._channel.clock.monotonic_s()
            if self._sender is None:
                self._channel.flusher.watch(self)
        self._groups.append((group, size))
        self._bytes += size

    @property
    def crowded(self) -> bool:
        """Whether so much waits to be reported that the run should wait for :meth:`room`."""
        return self._bytes > MAX_UNREPORTED_BYTES

    async def room(self) -> None:
        """Ends when the run may add events again."""
        while self.crowded:
            self.flush_soon()
            sender = self._sender
            if sender is not None:
                await asyncio.wait((sender,))
                sender.result()

    def flush_soon(self) -> None:
        """Begins to send what waits, unless a report of this run is on its way."""
        if self._sender is None and self._groups:
            self._channel.flusher.forget(self)
            self._sender = asyncio.ensure_future(self._send_as_sender())

    async def finish(self) -> None:
        """Ends when everything is stored."""
        sender = self._sender
        if sender is not None:
            await asyncio.wait((sender,))
            sender.result()
        self._channel.flusher.forget(self)
        await self._send()

    def discard(self) -> None:
        """Forgets what was not sent: nobody takes it any more."""
        self._channel.flusher.forget(self)
        self._groups.clear()
        self._bytes = 0
        if self._sender is not None:
            self._sender.cancel()
            self._sender = None  # nobody is to wait for it: its cancellation is not that of the run

    async def publish_claim(self, claim: StepClaimed) -> None:
        """Sends the claim as event 0, each time in a report of its own."""
        await self._publish([msgspec.Raw(codec.encode(claim))], 0)

    async def _send_as_sender(self) -> None:
        try:
            await self._send()
        finally:
            self._sender = None
            if self._groups:
                self._channel.flusher.watch(self)

    async def _send(self) -> None:
        """Sends what waits now; what is added meanwhile waits for its own time."""
        waiting, self._groups = self._groups, []
        while waiting:
            events, size = waiting.pop(0)
            while waiting and size + waiting[0][1] <= MAX_REPORT_BYTES:
                more, more_bytes = waiting.pop(0)
                events += more
                size += more_bytes
            first, self.next_event = self.next_event, self.next_event + len(events)
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
        )
        await self._channel.publish(report)
