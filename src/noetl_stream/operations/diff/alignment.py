"""The alignment of two courses: which step runs correspond, which facts differ, and where they diverge first.

Pure. Order is that of the journals, as far as it is the same in both: causes precede their effects in both.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from noetl_stream.operations.diff.course import EXECUTION, KINDS, MASK, Course, CourseRun
from noetl_stream.ports.operations.reading.diffs import RowState

NONE: Final = -1
"""The number of a missing run or fact."""

_OF_REUSED: Final = frozenset(KINDS.index(kind) for kind in ("token", "admission", "end", "arc"))
"""Facts recorded for a step run that a rerun has reused."""

_INTERVENTIONS: Final = frozenset(KINDS.index(kind) for kind in ("patch", "signal"))
"""Facts from outside: by themselves, not a different choice."""


class Pair(NamedTuple):
    """Corresponding runs of A and B."""

    a: int
    b: int


class Difference(NamedTuple):
    """Facts of A and B that differ, or a fact of one alone; and their pair."""

    pair: int
    a: int
    b: int


class AlignedRow(NamedTuple):
    """A pair, or one of its iterations that differs. ``a`` and ``b`` are the first differing facts."""

    pair: int
    a: int
    b: int
    is_iteration: bool
    iterations: int = 0

    @property
    def difference(self) -> Difference:
        return Difference(self.pair, self.a, self.b)


class Alignment:
    """
    Attributes:
        pairs: All runs, in the order of A, the executions first; those of B alone precede what follows them in B.
        first: The first divergence.
        first_choice: The first differing choice.
        rows: One for each pair but the first, and for each iteration that differs.
    """

    def __init__(self, a: Course, b: Course) -> None:
        self.a, self.b = a, b
        self.pairs = _ordered(_aligned(a, b))
        self.first: Difference | None = None
        self.first_choice: Difference | None = None
        self.rows: list[AlignedRow] = []
        self.different = array("i")
        """The numbers of the rows that differ."""
        self._is_cut = a.is_cut or b.is_cut
        self._compare()

    def runs_of(self, pair: int) -> tuple[CourseRun | None, CourseRun | None]:
        a, b = self.pairs[pair]
        return (None if a == NONE else self.a.runs[a]), (None if b == NONE else self.b.runs[b])

    def step_of(self, pair: int) -> str:
        a, b = self.pairs[pair]
        return self.b.runs[b].step if a == NONE else self.a.runs[a].step

    def state_of(self, row: AlignedRow) -> RowState:
        a, b = self.pairs[row.pair] if not row.is_iteration else (row.a, row.b)
        if a == NONE or b == NONE:
            return "only_b" if a == NONE else "only_a"
        return "same" if row.a == row.b == NONE else "different"

    # --- comparing ----------------------------------------------------------------------------------------------------

    def _compare(self) -> None:
        of_a, of_b = _by_run(self.a), _by_run(self.b)
        first, choices = _Earliest(self.a, self.b), _Earliest(self.a, self.b)
        for pair, (run_a, run_b) in enumerate(self.pairs):
            found = list(self._differing(pair, of_a, of_b))
            for one in found:
                first.take(one)
                if self._is_choice(one):
                    choices.take(one)
            if run_a == EXECUTION:
                continue
            known = [run for run in self.runs_of(pair) if run is not None]
            if any(run.is_merged for run in known) and not found:
                continue  # the row of the token it was merged into covers it
            own = min(found, key=self._place, default=Difference(pair, NONE, NONE))
            inner = sorted((one for one in found if self._is_inner(one)), key=self._place)
            is_alone = NONE in (run_a, run_b)
            if not (is_alone and self._is_cut):
                self._add(AlignedRow(pair, own.a, own.b, False, len(inner)), is_alone or bool(found))
            for one in inner:
                self._add(AlignedRow(pair, one.a, one.b, True), True)
        self.first, self.first_choice = first.found, choices.found

    def _add(self, row: AlignedRow, differs: bool) -> None:
        if differs:
            self.different.append(len(self.rows))
        self.rows.append(row)

    def _differing(self, pair: int, of_a: _Grouped, of_b: _Grouped) -> Iterator[Difference]:
        """The first difference of each lane of a pair. If one of the journals is cut, a missing fact means nothing."""
        run_a, run_b = self.pairs[pair]
        if run_a == NONE or run_b == NONE:
            if not self._is_cut:
                facts = of_a.of(run_a) if run_b == NONE else of_b.of(run_b)
                yield from (Difference(pair, *((one, NONE) if run_b == NONE else (NONE, one))) for one in facts[:1])
            return
        a, b = self.a, self.b
        reused = "reused" in (a.runs[run_a].status, b.runs[run_b].status)
        there = {(b.lane[n] + b.number[n]) & MASK: n for n in of_b.of(run_b) if not reused or b.kind[n] in _OF_REUSED}
        done: set[int] = set()
        for n in of_a.of(run_a):
            if reused and a.kind[n] not in _OF_REUSED:
                continue
            lane = a.lane[n]
            other = there.pop((lane + a.number[n]) & MASK, NONE)
            if lane in done or (other == NONE and self._is_cut):
                continue
            if other == NONE or a.choice[n] != b.choice[other] or a.data[n] != b.data[other]:
                done.add(lane)
                yield Difference(pair, n, other)
        if self._is_cut:
            return
        for n in there.values():
            if b.lane[n] not in done:
                done.add(b.lane[n])
                yield Difference(pair, NONE, n)

    def _is_choice(self, one: Difference) -> bool:
        if one.a == NONE or one.b == NONE:
            kind = self.b.kind[one.b] if one.a == NONE else self.a.kind[one.a]
            return kind not in _INTERVENTIONS
        return self.a.choice[one.a] != self.b.choice[one.b]

    def _is_inner(self, one: Difference) -> bool:
        return bool(self.b.inner[one.b] if one.a == NONE else self.a.inner[one.a])

    def _place(self, one: Difference) -> int:
        return self.b.position_of[one.b] if one.a == NONE else self.a.position_of[one.a]


class _Earliest:
    """The earliest difference: in A, unless one in B alone precedes it in B."""

    def __init__(self, a: Course, b: Course) -> None:
        self._a, self._b = a.position_of, b.position_of
        self._in_a: Difference | None = None
        self._in_b: Difference | None = None

    def take(self, one: Difference) -> None:
        if one.a == NONE:
            if self._in_b is None or self._b[one.b] < self._b[self._in_b.b]:
                self._in_b = one
        elif self._in_a is None or self._a[one.a] < self._a[self._in_a.a]:
            self._in_a = one

    @property
    def found(self) -> Difference | None:
        in_a, in_b = self._in_a, self._in_b
        if in_a is None or in_b is None:
            return in_a or in_b
        place = self._a[in_a.a] if in_a.b == NONE else self._b[in_a.b]
        return in_a if place <= self._b[in_b.b] else in_b


class _Grouped:
    """The facts of a course by run, each in order."""

    def __init__(self, order: Sequence[int], begins: Sequence[int]) -> None:
        self._order, self._begins = order, begins

    def of(self, run: int) -> Sequence[int]:
        return self._order[self._begins[run] : self._begins[run + 1]]


def _by_run(course: Course) -> _Grouped:
    order = array("i", sorted(range(len(course.run)), key=course.run.__getitem__))
    begins = array("i", bytes(4 * (len(course.runs) + 1)))
    for run in course.run:
        begins[run + 1] += 1
    for run in range(len(course.runs)):
        begins[run + 1] += begins[run]
    return _Grouped(order, begins)


def _aligned(a: Course, b: Course) -> list[Pair]:
    """Pairs the runs with the same origin; the others by step, in order."""
    by_key = {run.key: number for number, run in enumerate(b.runs)}
    pairs = [Pair(number, by_key.pop(run.key, NONE)) for number, run in enumerate(a.runs)]
    left: dict[str, list[int]] = {}
    for number in sorted(by_key.values(), reverse=True):
        left.setdefault(b.runs[number].step, []).append(number)
    for place, (number, other) in enumerate(pairs):
        if other == NONE and (alike := left.get(a.runs[number].step)):
            pairs[place] = Pair(number, alike.pop())
    return pairs + [Pair(NONE, number) for numbers in left.values() for number in numbers]


def _ordered(pairs: list[Pair]) -> list[Pair]:
    in_b = {pair.b: pair.a for pair in pairs if pair.b != NONE}
    following, places = len(pairs), {}
    for number in sorted(in_b, reverse=True):
        following = in_b[number] if in_b[number] != NONE else following
        places[number] = (following, NONE, number)
    return sorted(pairs, key=lambda pair: (pair.a, 0, 0) if pair.a != NONE else places[pair.b])
