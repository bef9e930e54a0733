"""The comparison of two executions: both journals are read once, and the result is kept for the next pages."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from noetl_stream.engine.state import Execution
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.lru import LruCache
from noetl_stream.operations.diff.alignment import NONE, AlignedRow, Alignment
from noetl_stream.operations.diff.course import Course, CourseRun, differences, result_of
from noetl_stream.operations.diff.divergence import ComparedSide, Divergences, targets_of
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.operations.executions.reading.documents import listed_document
from noetl_stream.operations.executions.reading.known import known_plan, known_row
from noetl_stream.operations.executions.reading.states import state_at
from noetl_stream.operations.paging import cursor_of, read_cursor
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.operations.reading import diffs as documents
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.store import ExecutionRow, Store
from noetl_stream.storage.used_secrets import UsedSecrets

ENTRIES_AT_ONCE: Final = 200

KEPT_BYTES: Final = 32 * 1024 * 1024
"""The approximate memory of the kept comparisons of one process, without the one being made."""

RESULTS_SHOWN: Final = 200
"""The number of values that are shown of the results of all steps together."""


class ExecutionDiffs:
    """Makes one comparison at a time: a long one takes seconds, and tens of MB."""

    def __init__(self, store: Store, checking: PlaybookChecker, secrets: UsedSecrets) -> None:
        self._store = store
        self._checking = checking
        self._secrets = secrets
        self._kept: LruCache[tuple[str, str, int, int], Alignment] = LruCache(KEPT_BYTES, _size)
        self._making = asyncio.Lock()

    async def document(
        self, execution_id: str, other: str, rows: documents.RowChoice, limit: int, cursor: str | None
    ) -> documents.ExecutionDiffDocument:
        """The comparison, with a page of its rows: ``cursor`` also has the ends of the journals on the first page."""
        first, through = _read(cursor)
        a, b = [await known_row(self._store, one) for one in (execution_id, other)]
        plans = [await known_plan(self._store, self._checking, row) for row in (a, b)]
        through = through or (a.position, b.position)
        ends = (min(through[0], a.position), min(through[1], b.position))
        alignment = await self._alignment((a, b), plans, ends)
        courses = (alignment.a, alignment.b)
        sides = [
            ComparedSide(name, row, plan, course, await self._state(row, end))
            for name, row, plan, course, end in zip("AB", (a, b), plans, courses, ends, strict=True)
        ]
        return await self._compared(
            alignment, sides[0], sides[1], rows, (first, max(1, min(limit, documents.MAX_ROWS)))
        )

    async def _alignment(
        self, rows: tuple[ExecutionRow, ExecutionRow], plans: list[Plan | None], ends: tuple[int, int]
    ) -> Alignment:
        key = (rows[0].execution_id, rows[1].execution_id, *ends)
        async with self._making:
            found = self._kept.get(key)
            if found is None:
                courses = [
                    await self._course(row.execution_id, plan, end)
                    for row, plan, end in zip(rows, plans, ends, strict=True)
                ]
                found = await asyncio.to_thread(Alignment, *courses)
                self._kept.put(key, found)
        return found

    async def _course(self, execution_id: str, plan: Plan | None, end: int) -> Course:
        course = Course(execution_id, targets_of(plan))
        while course.position < end and not course.is_cut:
            read = (await self._store.journals({execution_id: course.position}, ENTRIES_AT_ONCE))[execution_id]
            entries = [entry for entry in read if entry.position <= end]
            if not entries:
                break
            await asyncio.to_thread(course.take, entries)  # results may be large
        return course

    async def _state(self, row: ExecutionRow, position: int) -> Execution:
        state = await state_at(self._store, row.execution_id, position)
        if state is None:
            raise NotFound(f"execution {row.execution_id} is being deleted")
        return state

    async def _compared(
        self, alignment: Alignment, a: ComparedSide, b: ComparedSide, rows: documents.RowChoice, page: tuple[int, int]
    ) -> documents.ExecutionDiffDocument:
        redactors = await self._secrets.redactors((a.row.execution_id, b.row.execution_id))
        found = Divergences(self._store, alignment, a, b, redactors.values())
        last = await asyncio.to_thread(_last_values, a, b)
        first, choice = alignment.first, alignment.first_choice
        numbers = alignment.different if rows == "different" else range(len(alignment.rows))
        begin, limit = page
        shown = [alignment.rows[number] for number in numbers[begin : begin + limit]]
        following = begin + limit
        return documents.ExecutionDiffDocument(
            a=_execution(a),
            b=_execution(b),
            first=None if first is None else await found.document(first, explained=True),
            first_choice=None if choice is None else await found.document(choice, explained=True),
            workload=last.workload,
            ctx=last.ctx,
            results=last.results,
            result=last.result,
            steps=_steps(alignment),
            rows=[await _row(alignment, found, row) for row in shown],
            row_count=len(numbers),
            next=cursor_of([following, a.state.position, b.state.position]) if following < len(numbers) else None,
        )


def _read(cursor: str | None) -> tuple[int, tuple[int, int] | None]:
    match read_cursor(cursor, list):
        case None:
            return 0, None
        case [int(first), int(end_a), int(end_b)] if first >= 0 and end_a > 0 and end_b > 0:
            return first, (end_a, end_b)
    raise UsageError(f"{cursor!r} is not a cursor of this list", hint="use `next` of the previous page unchanged")


def _size(alignment: Alignment) -> int:
    facts = len(alignment.a.run) + len(alignment.b.run)
    runs = len(alignment.a.runs) + len(alignment.b.runs)
    return 10_000 + 40 * facts + 500 * runs + 120 * len(alignment.rows)


def _execution(side: ComparedSide) -> documents.ComparedExecutionDocument:
    duration_s = listed_document(side.row).duration_s
    compared = side.course.position
    return document_from(documents.ComparedExecutionDocument, side.row, duration_s=duration_s, compared=compared)


class _LastValues(NamedTuple):
    workload: documents.ValueDifferencesDocument
    ctx: documents.ValueDifferencesDocument
    results: list[documents.StepDifferencesDocument]
    result: documents.ValueDifferencesDocument


def _last_values(a: ComparedSide, b: ComparedSide) -> _LastValues:
    likes = a.course.like, b.course.like
    return _LastValues(
        workload=differences(a.state.workload, b.state.workload, *likes),
        ctx=differences(a.state.ctx, b.state.ctx, *likes),
        results=list(_results(a, b)),
        result=differences(_result(a.state), _result(b.state), *likes),
    )


def _results(a: ComparedSide, b: ComparedSide) -> Iterator[documents.StepDifferencesDocument]:
    left = RESULTS_SHOWN
    results_a, results_b = _by_step(a.state), _by_step(b.state)
    for step in dict.fromkeys((*results_a, *results_b)):
        like_a, like_b, most = a.course.like, b.course.like, min(left, documents.VALUES_SHOWN)
        found = differences(results_a.get(step, {}), results_b.get(step, {}), like_a, like_b, most)
        left -= len(found.items)
        if found.items or found.left_out:
            yield documents.StepDifferencesDocument(step, found)


def _by_step(state: Execution) -> Mapping[str, Any]:
    return {step: {"result": result_of(value.outcome.result)} for step, value in state.steps.items()}


def _result(state: Execution) -> dict[str, Any]:
    outcome = state.outcome
    if outcome is None:
        return {}
    error = outcome.error
    failed = {} if error is None else {"error": {"kind": error.kind, "message": error.message}}
    return {"result": result_of(outcome.result), **failed}


class _Counted(msgspec.Struct):
    """The rows of a step by state, and the durations in A and B of the runs that have ended in both."""

    rows: Counter[documents.RowState] = msgspec.field(default_factory=Counter)
    a_s: float = 0.0
    b_s: float = 0.0


def _steps(alignment: Alignment) -> list[documents.ComparedStepDocument]:
    found: dict[str, _Counted] = {}
    for row in (one for one in alignment.rows if not one.is_iteration):
        a, b = alignment.runs_of(row.pair)
        counted = found.setdefault(alignment.step_of(row.pair), _Counted())
        counted.rows[alignment.state_of(row)] += 1
        if a and b and a.duration_s is not None and b.duration_s is not None:
            counted.a_s += a.duration_s
            counted.b_s += b.duration_s
    return [
        documents.ComparedStepDocument(
            step=step,
            same=one.rows["same"],
            different=one.rows["different"],
            only_a=one.rows["only_a"],
            only_b=one.rows["only_b"],
            duration_a_s=round(one.a_s, 3),
            duration_b_s=round(one.b_s, 3),
        )
        for step, one in found.items()
    ]


async def _row(alignment: Alignment, found: Divergences, row: AlignedRow) -> documents.DiffRowDocument:
    a, b = alignment.runs_of(row.pair)
    difference = None
    if row.a != NONE or row.b != NONE:
        difference = await found.document(row.difference, explained=False)
    return documents.DiffRowDocument(
        step=alignment.step_of(row.pair),
        iteration=difference.iteration if row.is_iteration and difference is not None else None,
        state=alignment.state_of(row),
        a=None if a is None else _run(a),
        b=None if b is None else _run(b),
        iterations=row.iterations,
        difference=difference,
    )


def _run(run: CourseRun) -> documents.ComparedRunDocument:
    return documents.ComparedRunDocument(run.step_run_id or None, run.status, run.position, run.duration_s)
