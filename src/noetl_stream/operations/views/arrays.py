"""The arrays of an index of a long journal: a few bytes for each step run, attempt, wait and iteration.

Times are ms since the epoch, 0 if not reached. Statuses are indexes into :data:`STATUSES`.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from noetl_stream.ports.operations.reading.timelines import SPAN_STATUSES, RowKind

STATUSES: Final = SPAN_STATUSES
WAITING, RUNNING, DONE, FAILED, CANCELLED, REUSED, SKIPPED = range(len(STATUSES))

ERROR_CHARS: Final = 300

RUN_BYTES: Final = 240
"""The approximate memory of a step run in addition to its numbers: its id."""


class RowKey(NamedTuple):
    """The subject of a row's spans. ``step`` is empty for the execution, ``task`` for a whole step."""

    kind: RowKind
    step: str = ""
    task: str = ""


class Spans:
    """The spans of a row, in the order in which they were opened."""

    __slots__ = ("begin", "end", "position", "run", "status")

    def __init__(self) -> None:
        self.begin = array("q")
        self.end = array("q")
        self.status = array("b")
        self.run = array("i")
        self.position = array("i")

    def open(self, at_ms: int, run: int, position: int) -> int:
        """A new span; its place."""
        self.begin.append(at_ms)
        self.end.append(0)
        self.status.append(RUNNING)
        self.run.append(run)
        self.position.append(position)
        return len(self.begin) - 1

    def close(self, place: int, at_ms: int, status: int, begin_ms: int | None = None) -> None:
        """
        Args:
            begin_ms: Its begin, if that is earlier than known so far.
        """
        self.end[place], self.status[place] = at_ms, status
        if begin_ms is not None and begin_ms < self.begin[place]:
            self.begin[place] = begin_ms

    def __len__(self) -> int:
        return len(self.begin)

    @property
    def size(self) -> int:
        return 25 * len(self.begin)


class Failure(NamedTuple):
    """The error of an iteration, shortened."""

    kind: str
    message: str


class LoopLevel:
    """The iterations of a level of a loop, by index."""

    __slots__ = ("attempts", "begin", "count", "end", "ended", "errors", "status")

    def __init__(self, count: int) -> None:
        self.count = count
        self.ended = False
        self.begin, self.end = array("q"), array("q")
        self.status, self.attempts = array("b"), array("i")
        self.errors: dict[int, Failure] = {}

    def _reach(self, index: int) -> None:
        if missing := index + 1 - len(self.begin):
            if missing > 0:
                for numbers in (self.begin, self.end, self.status, self.attempts):
                    numbers.frombytes(bytes(missing * numbers.itemsize))
            self.count = max(self.count, index + 1)

    def begins(self, index: int, at_ms: int) -> None:
        self._reach(index)
        if not self.begin[index]:
            self.begin[index], self.status[index] = at_ms, RUNNING

    def attempted(self, index: int, begin_ms: int) -> None:
        """Adds a task attempt to it, with its begin as measured by the worker."""
        self._reach(index)
        self.attempts[index] += 1
        if begin_ms < self.begin[index]:
            self.begin[index] = begin_ms

    def ends(self, index: int, at_ms: int, status: int, error: Failure | None = None) -> None:
        self.begins(index, at_ms)
        self.end[index], self.status[index] = at_ms, status
        if error is not None:
            self.errors[index] = error

    def closes(self, at_ms: int) -> None:
        """Ends the level: running iterations are cancelled, those that had not begun are skipped."""
        self.ended = True
        place = -1
        while RUNNING in self.status[place + 1 :]:
            place = self.status.index(RUNNING, place + 1)
            self.end[place], self.status[place] = at_ms, CANCELLED

    def status_of(self, index: int) -> int:
        found = self.status[index] if index < len(self.status) else WAITING
        return SKIPPED if found == WAITING and self.ended else found

    def counts(self, first: int, end: int) -> list[int]:
        """The iterations in a range of indexes, by status."""
        known = self.status[first:end].tobytes()
        counted = [known.count(status) for status in range(len(STATUSES))]
        counted[WAITING] += end - first - len(known)
        if self.ended:
            counted[SKIPPED], counted[WAITING] = counted[WAITING], 0
        return counted

    @property
    def size(self) -> int:
        return 500 + 21 * len(self.begin) + 300 * len(self.errors)


class Runs:
    """The step runs, in the order in which they were claimed."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.step = array("i")
        self.claimed, self.ended = array("i"), array("i")
        """Positions."""
        self.status = array("b")

    def claim(self, step_run_id: str, step: int, position: int) -> int:
        self.ids.append(step_run_id)
        self.step.append(step)
        self.claimed.append(position)
        self.ended.append(0)
        self.status.append(WAITING)
        return len(self.ids) - 1

    def end_at(self, number: int, position: int) -> int | None:
        """The status with which it has ended after this position; ``None`` if it has not ended there."""
        return self.status[number] if 0 < self.ended[number] <= position else None

    @property
    def size(self) -> int:
        return (13 + RUN_BYTES) * len(self.ids)


class Changes:
    """The changes of ``ctx`` by position: the key, and the step run (-1: none)."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._numbers: dict[str, int] = {}
        self.position, self.key, self.run = array("i"), array("i"), array("i")

    def add(self, position: int, key: str, run: int) -> None:
        number = self._numbers.setdefault(key, len(self.keys))
        if number == len(self.keys):
            self.keys.append(key)
        self.position.append(position)
        self.key.append(number)
        self.run.append(run)

    @property
    def size(self) -> int:
        return 12 * len(self.position) + 200 * len(self.keys)


class ArcCounts:
    """The counts of a step's fired arcs; ``position`` is that of its last routing, ``run`` the routed run."""

    __slots__ = ("fired", "held", "last_fired", "position", "routings", "run")

    def __init__(self) -> None:
        self.routings = 0
        self.fired: dict[int, int] = {}
        self.last_fired: list[int] = []
        self.held: dict[int, bool] = {}
        """The values of the guards at the last routing, by arc."""
        self.position = 0
        self.run = -1
