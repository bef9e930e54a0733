"""When something ran or happened in an execution, and when it was idle: from commands, not from rows that are shown."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

LEAST_IDLE_MS: Final = 1_000
"""Shorter breaks are not idle times."""


class _Command:
    """A command that is owed to a worker, or runs: ``started_ms`` is 0 until a worker has begun it."""

    __slots__ = ("level", "owed_ms", "started_ms")

    def __init__(self, owed_ms: int, level: tuple[int, ...]) -> None:
        self.owed_ms = owed_ms
        self.level = level
        self.started_ms = 0


class BusyTimes:
    """The times in which a worker ran a command, and the moments at which an event was recorded, in ms since the epoch.

    Times less than :data:`LEAST_IDLE_MS` apart are one. A command that waits, is queued or has ended does not run.
    """

    __slots__ = ("_commands", "begin", "end")

    def __init__(self) -> None:
        self.begin, self.end = array("q"), array("q")
        self._commands: dict[int, dict[str, _Command]] = {}
        """By step run."""

    def add(self, begin_ms: int, end_ms: int) -> None:
        """Something ran from ``begin_ms`` to ``end_ms``, which is about the time of the last event."""
        while self.end and begin_ms < self.end[-1] + LEAST_IDLE_MS:
            begin_ms, end_ms = min(begin_ms, self.begin.pop()), max(end_ms, self.end.pop())
        self.begin.append(begin_ms)
        self.end.append(end_ms)

    def owed(self, run: int, command_id: str, at_ms: int, level: tuple[int, ...]) -> None:
        """A command is owed to a worker: of the iteration or level ``level``, ``()`` for all of a step run."""
        self._commands.setdefault(run, {}).setdefault(command_id, _Command(at_ms, level))

    def starts(self, run: int, command_id: str, at_ms: int) -> None:
        """A worker has begun a command, or goes on with it."""
        command = self._commands.setdefault(run, {}).setdefault(command_id, _Command(at_ms, ()))
        command.started_ms = command.started_ms or at_ms

    def measured(self, run: int, command_id: str, begin_ms: int, at_ms: int) -> None:
        """An attempt has ended, which began then by its worker's measure: but not before its command was owed."""
        command = self._commands.get(run, {}).get(command_id)
        self.add(begin_ms if command is None else max(begin_ms, command.owed_ms), at_ms)

    def ends(self, run: int, command_id: str, at_ms: int) -> None:
        """A command has ended, or waits, and no worker holds it."""
        command = self._commands.get(run, {}).pop(command_id, None)
        if command is not None and command.started_ms:
            self.add(command.started_ms, at_ms)

    def ends_level(self, run: int, command_id: str, level: tuple[int, ...], at_ms: int) -> None:
        """An iteration has ended: with it the command of it alone, not one of a whole loop."""
        command = self._commands.get(run, {}).get(command_id)
        if command is not None and command.level == level:
            self.ends(run, command_id, at_ms)

    def ends_run(self, run: int, at_ms: int) -> None:
        """A step run has ended, and all of its commands."""
        for command_id in list(self._commands.get(run, ())):
            self.ends(run, command_id, at_ms)
        self._commands.pop(run, None)

    def idle(self, since_ms: int, until_ms: int, least_ms: int) -> list[tuple[int, int | None]]:
        """From when to when nothing ran and nothing happened in a range, for at least ``least_ms``.

        The last has no end if nothing runs at the end of the journal: it goes on.
        """
        least_ms = max(least_ms, LEAST_IDLE_MS)
        running = [
            one.started_ms for commands in self._commands.values() for one in commands.values() if one.started_ms
        ]
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
        """About how many bytes it takes."""
        return 16 * len(self.begin) + 200 * sum(map(len, self._commands.values()))
