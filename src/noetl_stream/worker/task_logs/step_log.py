"""The log of one run of a command, and of each attempt of its tasks."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.engine.runner.lanes import RunTask
from noetl_stream.model.events import Path, TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.model.messages import StepCommand
from noetl_stream.model.outcome import Outcome
from noetl_stream.model.task_log import LogLine, LogStream
from noetl_stream.ports.streams.task_logs import MAX_LOG_MESSAGE_BYTES
from noetl_stream.worker.secrets.run_secrets import RunSecrets
from noetl_stream.worker.task_logs.lines import OutputLines
from noetl_stream.worker.task_logs.publisher import EncodedBatch, LogPublisher
from noetl_stream.worker.worker_limits import MAX_LOG_LINE_BYTES, MAX_TASK_LOG_BYTES

HEADERS_BYTES: Final = 2048
"""Room in a message for its subject, its id, and the metadata of its lines."""
LINE_BYTES: Final = 100
"""The approximate size of a line in a batch in addition to its text."""
PASS_ON_BYTES: Final = 32 * 1024
"""The most bytes that wait before they are redacted and passed on."""


class StepLog:
    """Gathers the lines of all attempts of a run into batches.

    Args:
        secrets: The secrets that the run has read so far, which are redacted.
    """

    __slots__ = ("_bytes", "_command", "_dropped", "_lines", "publisher", "secrets")

    def __init__(self, publisher: LogPublisher, command: StepCommand, secrets: RunSecrets) -> None:
        self.publisher = publisher
        self.secrets = secrets
        self._command = command
        self._lines: list[msgspec.Raw] = []
        self._bytes = 0
        self._dropped = 0

    def retried(self, fact: TaskProcessed) -> None:
        """Logs that an attempt will be followed by another, and by which rule."""
        rule = f"rule {fact.rule + 1} of its policy" if fact.rule >= 0 else "the default policy"
        text = f"attempt {fact.attempt + 1} follows in {fact.delay_s:.3g} s: {rule}"
        self.say(fact.task, fact.attempt, fact.path, text)

    def say(self, task: str, attempt: int, path: Path, text: str, at_ms: int | None = None) -> None:
        """Adds one or more lines of the worker's own."""
        redactor = self.secrets.used
        text = text if redactor is None else redactor.text(text)
        at_ms = self.publisher.clock.now_ms() if at_ms is None else at_ms
        for line in text.encode("utf-8", errors="replace").splitlines():
            shown = line[:MAX_LOG_LINE_BYTES].decode("utf-8", errors="ignore")
            self.add(LogLine(at_ms, task, shown, "worker", attempt, path))

    def add(self, line: LogLine) -> None:
        """Adds a line to be published soon. It is dropped if the worker holds too much."""
        data = codec.encode(line)
        if not self.has_room(self._bytes + len(data), own=line.stream == "worker"):
            self.dropped(1)
            return
        if self._lines and self._bytes + len(data) + HEADERS_BYTES > MAX_LOG_MESSAGE_BYTES:
            self.flush()
        self._lines.append(msgspec.Raw(data))
        self._bytes += len(data) + 1
        self.publisher.flush_soon(self)

    def has_room(self, size: int, *, own: bool = False) -> bool:
        """Whether lines of this size may be published now; ``own`` lines are the worker's."""
        return self.publisher.has_room(self._command.share, size + HEADERS_BYTES, own=own)

    def dropped(self, lines: int) -> None:
        """Counts lines that are not kept. A line reports their number as soon as there is room."""
        self._dropped += lines
        self.publisher.lines_dropped += lines
        self.publisher.flush_soon(self)

    def flush(self) -> None:
        """Publishes the held lines as a batch."""
        if self._dropped:
            if self.has_room(self._bytes):
                dropped, self._dropped = self._dropped, 0
                self.say("", 1, (), f"{dropped:,} lines dropped")
            else:
                self.publisher.flush_soon(self)
        if not self._lines:
            return
        lines, self._lines, self._bytes = self._lines, [], 0
        command = self._command
        head = {"step": command.step, "step_run_id": command.step_run_id, "worker": self.publisher.worker}
        body = codec.encode({**head, "lines": lines})
        batch = EncodedBatch(command.execution_id, command.step_run_id, command.share, body, len(lines))
        self.publisher.publish(batch)


class TaskLog:
    """The log of one attempt. The worker's own lines report attempts that write, fail, are stopped, or take long.

    Attributes:
        began_s: The time of its start, by the monotonic clock.
        has_begun: Whether anything was logged about it.
    """

    __slots__ = ("_action", "_began_ms", "_output", "_step", "began_s", "has_begun")

    def __init__(self, step: StepLog, action: RunTask, began_ms: int, began_s: float) -> None:
        self.began_s = began_s
        self._step = step
        self._action = action
        self._began_ms = began_ms
        self.has_begun = False
        self._output: _Output | None = None
        step.publisher.running.watch(self)

    def write(self, stream: LogStream, data: bytes) -> None:
        """Takes output of the task. See :attr:`~noetl_stream.tools.contract.ToolCall.write`."""
        self.begun()
        if self._output is None:
            self._output = _Output(self._step, self._action)
        self._output.write(stream, data)

    def begun(self) -> None:
        """Logs the start of the attempt, once."""
        if not self.has_begun:
            self.has_begun = True
            self._say("started", self._began_ms)

    def ended(self, outcome: Outcome) -> None:
        """Logs the end of the attempt."""
        error = outcome.error
        if error is not None:
            self.stopped(f"failed: {error.kind}: {error.message}")
        else:
            self.stopped(f"{outcome.status} after {outcome.meta.duration_s:.3f} s")

    def stopped(self, text: str) -> None:
        """Logs the stop of the attempt, after all its output."""
        self.begun()
        if self._output is not None:
            self._output.flush(ended=True)
        self._say(text)

    def _say(self, text: str, at_ms: int | None = None) -> None:
        action = self._action
        self._step.say(action.task.name, action.progress.attempt, action.iteration.path, text, at_ms)


class _Output:
    """The output of an attempt that was not passed on yet. ``_bytes`` counts all its output, as lines."""

    def __init__(self, step: StepLog, action: RunTask) -> None:
        self._step = step
        self._action = action
        self._streams: dict[LogStream, OutputLines] = {}
        self._bytes = 0
        self._passed_on = 0
        self._is_full = False

    def write(self, stream: LogStream, data: bytes) -> None:
        step = self._step
        lines = self._streams.get(stream)
        if lines is None:
            lines = self._streams[stream] = OutputLines(step.secrets)
        dropped = lines.add(data, step.publisher.clock.now_ms(), self._takes)
        if dropped:
            self._say_if_full()
            step.dropped(dropped)
        if self._bytes - self._passed_on > PASS_ON_BYTES:
            self.flush()
        else:
            step.publisher.flush_soon(self)

    def flush(self, *, ended: bool = False) -> None:
        """Passes on the lines that are ready, or all of them when the attempt has ``ended``."""
        self._passed_on = self._bytes
        action = self._action
        task, attempt, path = action.task.name, action.progress.attempt, action.iteration.path
        for stream, lines in self._streams.items():
            for at_ms, text in lines.take(ended=ended):
                self._step.add(LogLine(at_ms, task, text, stream, attempt, path))

    def _takes(self, size: int) -> bool:
        self._bytes += size + LINE_BYTES
        waiting = self._bytes - self._passed_on  # unknown to the publisher so far
        return self._bytes <= MAX_TASK_LOG_BYTES and self._step.has_room(waiting)

    def _say_if_full(self) -> None:
        if self._bytes <= MAX_TASK_LOG_BYTES or self._is_full:
            return
        self._is_full = True
        self.flush()
        action = self._action
        text = f"what follows is dropped: an attempt may write {MAX_TASK_LOG_BYTES:,} bytes (max_task_log_bytes)"
        self._step.say(action.task.name, action.progress.attempt, action.iteration.path, text)
