"""The log of one run of a command, and of each attempt of its tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from noetl_stream.engine.runner.outputs import RunTask
from noetl_stream.model import codec
from noetl_stream.model.events import Path, TaskProcessed
from noetl_stream.model.messages import StepCommand
from noetl_stream.model.outcome import Outcome
from noetl_stream.model.redaction import Redactor
from noetl_stream.model.task_log import LogLine, LogStream
from noetl_stream.ports.task_logs import MAX_LOG_MESSAGE_BYTES
from noetl_stream.worker.limits import MAX_LOG_LINE_BYTES, MAX_TASK_LOG_BYTES
from noetl_stream.worker.task_logs.lines import OutputLines, TimedText
from noetl_stream.worker.task_logs.publisher import Batch, LogPublisher

HEADERS_BYTES: Final = 2048
"""Room in a message for its subject, its id, and what a batch says of its lines."""
_LINE_BYTES: Final = 100
"""What a line takes in a batch besides its text, about."""
_PASS_ON_BYTES: Final = 32 * 1024
"""Lines wait together at most, before they are redacted and passed on."""


class StepLog:
    """Gathers the lines of all attempts of a run into batches.

    Args:
        secrets: What the run has read so far; ``None``: nothing.
    """

    def __init__(self, publisher: LogPublisher, command: StepCommand, secrets: Callable[[], Redactor | None]) -> None:
        self.publisher = publisher
        self.secrets = secrets
        self._command = command
        self._lines: list[msgspec.Raw] = []
        self._bytes = 0
        self._dropped = 0

    def task(self, action: RunTask, began_ms: int, began_s: float) -> TaskLog:
        """The log of one attempt."""
        return TaskLog(self, action, began_ms, began_s)

    def retried(self, fact: TaskProcessed) -> None:
        """Says that an attempt will be followed by another, and which rule says so."""
        rule = f"rule {fact.rule + 1} of its policy" if fact.rule >= 0 else "the default policy"
        text = f"attempt {fact.attempt + 1} follows in {fact.delay_s:.3g} s: {rule}"
        self.say(fact.task, fact.attempt, fact.path, text)

    def say(self, task: str, attempt: int, path: Path, text: str, at_ms: int | None = None) -> None:
        """A line of the worker's own."""
        redactor = self.secrets()
        text = text if redactor is None else redactor.text(text)
        at_ms = self.publisher.clock.now_ms() if at_ms is None else at_ms
        for line in text.encode("utf-8", errors="replace").splitlines():
            shown = line[:MAX_LOG_LINE_BYTES].decode("utf-8", errors="ignore")
            self.add(LogLine(at_ms, task, shown, "worker", attempt, path))

    def add(self, line: LogLine) -> None:
        """Adds a line, to be published soon. It is dropped if the worker holds too much."""
        data = codec.encode(line)
        if not self.publisher.has_room(self._bytes + len(data) + HEADERS_BYTES, own=line.stream == "worker"):
            self.dropped(1)
            return
        if self._lines and self._bytes + len(data) + HEADERS_BYTES > MAX_LOG_MESSAGE_BYTES:
            self.flush()
        self._lines.append(msgspec.Raw(data))
        self._bytes += len(data) + 1
        self.publisher.flush_soon(self)

    def dropped(self, lines: int) -> None:
        """Counts lines that are not kept. A line says how many, as soon as there is room."""
        self._dropped += lines
        self.publisher.lines_dropped += lines
        self.publisher.flush_soon(self)

    def flush(self) -> None:
        """Publishes what there is."""
        if self._dropped:
            if self.publisher.has_room(self._bytes + HEADERS_BYTES):
                dropped, self._dropped = self._dropped, 0
                self.say("", 1, (), f"{dropped:,} lines dropped")
            else:
                self.publisher.flush_soon(self)
        if not self._lines:
            return
        lines, self._lines, self._bytes = self._lines, [], 0
        command = self._command
        body = codec.encode(
            {
                "step": command.step,
                "step_run_id": command.step_run_id,
                "worker": self.publisher.worker,
                "lines": lines,
            }
        )
        self.publisher.publish(Batch(command.execution_id, command.step_run_id, body, len(lines)))


class TaskLog:
    """The log of one attempt. The worker's own lines are about attempts that write, fail, are stopped, or take long.

    Attributes:
        began_s: When it began, by the monotonic clock.
    """

    __slots__ = (
        "_action",
        "_began_ms",
        "_bytes",
        "_has_begun",
        "_is_full",
        "_passed_on",
        "_step",
        "_streams",
        "began_s",
    )

    def __init__(self, step: StepLog, action: RunTask, began_ms: int, began_s: float) -> None:
        self.began_s = began_s
        self._step = step
        self._action = action
        self._began_ms = began_ms
        self._streams: dict[LogStream, OutputLines] | None = None
        self._bytes = 0
        self._passed_on = 0
        self._has_begun = False
        self._is_full = False
        step.publisher.begin(self)

    def write(self, stream: LogStream, data: bytes) -> None:
        """Takes what the task writes. See :attr:`~noetl_stream.tools.contract.ToolCall.write`."""
        self._begin()
        if self._streams is None:
            self._streams = {}
        lines = self._streams.get(stream)
        if lines is None:
            lines = self._streams[stream] = OutputLines(self._step.secrets)
        dropped = lines.add(data, self._step.publisher.clock.now_ms(), self._takes)
        if dropped:
            self._drop(dropped)
        if self._bytes - self._passed_on > _PASS_ON_BYTES:
            self._pass_on(ended=False)
        else:
            self._step.publisher.flush_soon(self)

    def flush(self) -> None:
        """Passes on the lines that are ready."""
        self._pass_on(ended=False)

    def takes_long(self) -> None:
        """Says that it has begun."""
        self._begin()

    def ended(self, outcome: Outcome) -> None:
        """Says how it ended, if there is anything to say."""
        self._step.publisher.end(self)
        error = outcome.error
        if outcome.status == "error" and error is not None:
            self._stop(f"failed: {error.kind}: {error.message}")
        elif self._has_begun:
            self._stop(f"{outcome.status} after {outcome.meta.duration_s:.3f} s")

    def suspended(self) -> None:
        """It waits, and writes nothing."""
        self._step.publisher.end(self)

    def stopped(self, why: str) -> None:
        """Says that it was stopped."""
        self._step.publisher.end(self)
        self._stop(why)

    def _stop(self, text: str) -> None:
        self._begin()
        self._pass_on(ended=True)
        self._say(text)

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._say("started", self._began_ms)

    def _say(self, text: str, at_ms: int | None = None) -> None:
        action = self._action
        self._step.say(action.task.name, action.progress.attempt, action.iteration.path, text, at_ms)

    def _takes(self, size: int) -> bool:
        self._bytes += size + _LINE_BYTES
        return self._bytes <= MAX_TASK_LOG_BYTES and self._step.publisher.has_room(size + HEADERS_BYTES)

    def _drop(self, lines: int) -> None:
        if self._bytes <= MAX_TASK_LOG_BYTES or self._is_full:
            self._step.dropped(lines)
            return
        self._is_full = True
        self._pass_on(ended=False)
        self._say(f"what follows is dropped: an attempt may write {MAX_TASK_LOG_BYTES:,} bytes (max_task_log_bytes)")
        self._step.dropped(lines)

    def _pass_on(self, *, ended: bool) -> None:
        self._passed_on = self._bytes
        for stream, lines in (self._streams or {}).items():
            for line in lines.take(ended=ended):
                self._step.add(self._line(stream, line))

    def _line(self, stream: LogStream, line: TimedText) -> LogLine:
        action = self._action
        return LogLine(line.at_ms, action.task.name, line.text, stream, action.progress.attempt, action.iteration.path)
