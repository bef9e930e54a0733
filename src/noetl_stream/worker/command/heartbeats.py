"""Heartbeats of the attempts of one step run: reported at intervals, and kept for the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Final

from noetl_stream.engine.runner.lanes import RunTask
from noetl_stream.model.events import TaskHeartbeat
from noetl_stream.model.messages import path_key
from noetl_stream.ports.clock import Clock

REPORT_EVERY_S: Final = 10.0
"""The shortest interval between reported heartbeats of an attempt: they are events of the journal."""


class Heartbeats:
    """The heartbeats of a step run.

    Args:
        report: Adds a fact to the report of the run.
    """

    __slots__ = ("clock", "last", "report")

    def __init__(self, report: Callable[[TaskHeartbeat], None], clock: Clock) -> None:
        self.report = report
        self.clock = clock
        self.last: dict[str, Any] = {}
        """The last details of the current task, by the path of its iteration."""


class AttemptHeartbeats:
    """The heartbeats of one attempt. Most attempts have none: an object of this class costs them little.

    Attributes:
        previous_details: The last details of the previous attempt, if any.
    """

    __slots__ = ("_action", "_is_reported", "_reported_s", "_run", "previous_details")

    def __init__(self, run: Heartbeats, action: RunTask) -> None:
        self._run = run
        self._action = action
        self._reported_s = -inf
        self._is_reported = True
        self.previous_details: Any = action.progress.details
        if run.last:
            if action.progress.attempt == 1:
                run.last.pop(self._key, None)
            self.previous_details = run.last.get(self._key, self.previous_details)

    @property
    def _key(self) -> str:
        return path_key(self._action.iteration.path)

    def beat(self, details: Any) -> None:
        """Takes the details of a heartbeat, with their secrets hidden."""
        self._run.last[self._key] = details
        self._is_reported = False
        if self._run.clock.monotonic_s() - self._reported_s >= REPORT_EVERY_S:
            self.end()

    def begin_writing(self, key: str) -> None:
        """Reports at once, along with its last details, that the attempt writes a file or table under ``key``."""
        self._run.report(self._heartbeat(self._run.last.get(self._key), key))

    def end(self) -> None:
        """Reports the last heartbeat, if it is still unreported."""
        if not self._is_reported:
            self._is_reported, self._reported_s = True, self._run.clock.monotonic_s()
            self._run.report(self._heartbeat(self._run.last[self._key]))

    def _heartbeat(self, details: Any, key: str = "") -> TaskHeartbeat:
        action = self._action
        return TaskHeartbeat(action.task.name, action.progress.attempt, details, action.iteration.path, key)
