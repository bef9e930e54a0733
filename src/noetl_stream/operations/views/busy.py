"""Busy and idle times of an execution, from its commands instead of the rows that are shown."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

LEAST_IDLE_MS: Final = 1_000
"""The length below which breaks are not idle times."""


class _Command:
    """A command that is issued or runs: ``started_ms`` is 0 until a worker has begun it."""

    __slots__ = ("level", "owed_ms", "started_ms")

    def __init__(self, owed_ms: int, level: tuple[int, ...]) -> None:
        self.owed_ms = owed_ms
        self.level = level
        self.started_ms = 0


class BusyTimes:
    """The times in which a worker ran a command, and the moments at which an event was recorded, in ms since the epoch.

    Times less than :data:`LEAST_IDLE_MS` apart are merged. A command that waits, is queued or has ended does not run.
    """

    __slots__ = ("_commands", "begin", "end")

    def __init__(self) -> None:
        self.begin, self.end = array("q"), array("q")
        self._commands: dict[int, dict[str, _Command]] = {}
        """The commands by step run."""

    def add(self, begin_ms: int, end_ms: int) -> None:
        """Adds a busy time; ``end_ms`` is about the time of the last event."""
        while self.end and begin_ms < self.end[-1] + LEAST_IDLE_MS:
            begin_ms, end_ms = min(begin_ms, self.begin.pop()), max(end_ms, self.end.pop())
        self.begin.append(begin_ms)
        self.end.append(end_ms)

    def owed(self, run: int, command_id: str, at_ms: int, level: tuple[int, ...]) -> None:
        """Notes an issued command: of the iteration or level ``level``, ``()`` for the whole step run."""
        self._commands.setdefault(run, {}).setdefault(command_id, _Command(at_ms, level))

    def starts(self, run: int, command_id: str, at_ms: int) -> None:
        """Notes that a worker has begun or continues a command."""
        command = self._commands.setdefault(run, {}).setdefault(command_id, _Command(at_ms, ()))
        command.started_ms = command.started_ms or at_ms

    def measured(self, run: int, command_id: str, begin_ms: int, at_ms: int) -> None:
        """Notes the end of an attempt with its begin as measured by the worker, but not before its command's issue."""
        command = self._commands.get(run, {}).get(command_id)
        self.add(begin_ms if command is None else max(begin_ms, command.owed_ms), at_ms)

    def ends(self, run: int, command_id: str, at_ms: int) -> None:
        """Notes that a command has ended, or waits without a worker."""
        command = self._commands.get(run, {}).pop(command_id, None)
        if command is not None and command.started_ms:
            self.add(command.started_ms, at_ms)

    def ends_level(self, run: int, command_id: str, level: tuple[int, ...], at_ms: int) -> None:
        """Notes the end of an iteration, and of a command for it alone."""
        command = self._commands.get(run, {}).get(command_id)
        if command is not None and command.level == level:
            self.ends(run, command_id, at_ms)

    def ends_run(self, run: int, at_ms: int) -> None:
        """Notes the end of a step run, and of all its commands."""
        for command_id in list(self._commands.get(run, ())):
            self.ends(run, command_id, at_ms)
        self._commands.pop(run, None)

    def idle(self, since_ms: int, until_ms: int, least_ms: int) -> list[tuple[int, int | None]]:
        """The times of at least ``least_ms`` in a range in which nothing ran and nothing happened.

        The last has no end if nothing runs at the end of the journal.
        """
        least_ms = max(least_ms, LEAST_IDLE_MS)
        running = [one.started_ms for some in self._commands.values() for one in some.values() if one.started_ms]
        until_ms = min([until_ms, *running])
        found: list[tuple[int, int | None]] = []
        at_ms = since_ms
        for place in range(bisect_left(self.end, since_ms), len(self.begin)):
            begin_ms = min(self.begin[place], until_ms)
            if begin_ms - at_ms >= least_ms:
                found.append((at_ms, begin_ms))
            at_ms = max(at_ms, self.end[place])
            if at_ms >= until_ms:
                return found
        if not running:
            found.append((at_ms, None))
        elif until_ms - at_ms >= least_ms:
            found.append((at_ms, until_ms))
        return found

    @property
    def size(self) -> int:
        """The approximate size in bytes."""
        return 16 * len(self.begin) + 200 * sum(map(len, self._commands.values()))
