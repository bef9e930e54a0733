"""Timelines and strips from an index. The size of an answer is bounded, for journals of any size."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from noetl_stream.errors import NotFound, UsageError
from noetl_stream.model.envelope import iso
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.operations.views.arrays import STATUSES, LoopLevel, RowKey, Spans
from noetl_stream.operations.views.index import ExecutionIndex
from noetl_stream.ports.operations.reading import timelines as documents
from noetl_stream.ports.operations.reading.graphs import RunCountsDocument

SPANS_OF_ROW: Final = 100
"""The number of spans in the range above which a row is shown as activity."""

SPANS_SHOWN: Final = 1_500
"""The most spans of an answer; further rows are shown as activity."""

COLUMNS_SHOWN: Final = 30_000
"""The most columns of all rows together: with many rows, each gets fewer than asked for."""

LEAST_WIDTH: Final = 50

IDLE_SHARE: Final = 0.06
"""The part of the range that an idle time takes at least."""


_Times = tuple["array[int]", "array[int]", "array[int]"]
"""Begins, ends and statuses."""


class _Range(NamedTuple):
    since_ms: int
    until_ms: int
    width: int


def timeline(index: ExecutionIndex, wanted: documents.TimeRange) -> documents.TimelineDocument:
    """
    Raises:
        UsageError: the range is empty.
    """
    since_ms = index.begun_ms if wanted.since_ms is None else wanted.since_ms
    until_ms = index.at_ms + 1 if wanted.until_ms is None else wanted.until_ms
    if since_ms >= until_ms:
        raise UsageError("the range of the timeline is empty", hint="`until` is later than `since`")
    keys = sorted((key for key in _keys(index) if _is_wanted(key, wanted)), key=lambda key: _order(index, key))
    counted = [(key, count) for key in keys if (count := _count(index, key, since_ms, until_ms))]
    shown = counted[wanted.first : wanted.first + wanted.limit]
    width = min(wanted.width, documents.MAX_WIDTH, max(LEAST_WIDTH, COLUMNS_SHOWN // max(1, len(shown))))
    range_ = _Range(since_ms, until_ms, width)
    rows: list[documents.TimelineRowDocument] = []
    left = SPANS_SHOWN
    for key, count in shown:
        rows.append(_row(index, key, count, range_, left))
        left -= len(rows[-1].spans or ())
    return documents.TimelineDocument(
        execution_id=index.execution_id,
        position=index.position,
        begun=iso(index.begun_ms),
        last=iso(index.at_ms),
        since=iso(since_ms),
        until=iso(until_ms),
        width=width,
        runs=_activity([_times(index.rows[key]) for key, _ in counted if key.kind == "step"], range_),
        idle=_idle(index, range_),
        first=wanted.first,
        rows=rows,
        more=len(counted) - len(rows),
        left_out=index.left_out,
    )


def _is_wanted(key: RowKey, wanted: documents.TimeRange) -> bool:
    if wanted.step not in (None, key.step):
        return False
    return key.kind == "step" or not key.step or wanted.folded == (key.step in wanted.toggled)


def _idle(index: ExecutionIndex, range_: _Range) -> list[documents.IdleDocument]:
    since_ms, until_ms, _ = range_
    found = index.busy.idle(since_ms, until_ms, round((until_ms - since_ms) * IDLE_SHARE))
    return [
        documents.IdleDocument(begin - since_ms, None if end is None else end - begin)
        for begin, end in found
        if end is not None or not index.has_ended
    ]


def _keys(index: ExecutionIndex) -> Iterator[RowKey]:
    yield from index.rows
    yield from {RowKey("iterations", index.step_of(run)) for run, levels in index.levels.items() if () in levels}


def _order(index: ExecutionIndex, key: RowKey) -> tuple[int, int, str]:
    """The order of rows: by the step's first run; runs, then iterations, then the rest."""
    kinds = {"step": 0, "iterations": 1}
    return index.step_numbers.get(key.step, -1 if not key.step else len(index.steps)), kinds.get(key.kind, 2), key.task


def _is_inside(begin: int, end: int, since_ms: int, until_ms: int) -> bool:
    """Whether a span from ``begin`` to ``end`` is in the range; 0 for one that has not begun, or not ended."""
    return bool(begin) and begin < until_ms and (not end or end >= since_ms)


def _parts(index: ExecutionIndex, key: RowKey) -> list[_Times]:
    """The begins, ends and statuses of the parts of a row."""
    if key.kind != "iterations":
        return [_times(index.rows[key])]
    levels = [levels[()] for run, levels in index.levels.items() if () in levels and index.step_of(run) == key.step]
    return [_times(level) for level in levels]


def _times(spans: Spans | LoopLevel) -> _Times:
    return spans.begin, spans.end, spans.status


def _count(index: ExecutionIndex, key: RowKey, since_ms: int, until_ms: int) -> int:
    return sum(
        _is_inside(begin, end, since_ms, until_ms)
        for begins, ends, _ in _parts(index, key)
        for begin, end in zip(begins, ends, strict=True)
    )


def _row(index: ExecutionIndex, key: RowKey, count: int, range_: _Range, left: int) -> documents.TimelineRowDocument:
    if key.kind == "iterations" or count > min(SPANS_OF_ROW, left):
        return documents.TimelineRowDocument(
            key.kind, key.step, key.task, count, None, _activity(_parts(index, key), range_)
        )
    spans = index.rows[key]
    shown = [
        _span(index, spans, place, range_)
        for place, (begin, end) in enumerate(zip(spans.begin, spans.end, strict=True))
        if _is_inside(begin, end, range_.since_ms, range_.until_ms)
    ]
    return documents.TimelineRowDocument(key.kind, key.step, key.task, count, shown, None)


def _span(index: ExecutionIndex, spans: Spans, place: int, range_: _Range) -> documents.SpanDocument:
    begin, end, run = spans.begin[place], spans.end[place], spans.run[place]
    return documents.SpanDocument(
        offset_ms=begin - range_.since_ms,
        ms=end - begin if end else None,
        status=STATUSES[spans.status[place]],
        position=spans.position[place],
        step_run_id=index.runs.ids[run] if run >= 0 else None,
    )


def _activity(parts: Iterable[_Times], range_: _Range) -> list[documents.ActivityDocument]:
    """The number of running parts in each column, by status: begins and ends are counted, and added up."""
    since_ms, until_ms, width = range_
    changes = [[0] * (width + 1) for _ in STATUSES]
    span_ms, last = until_ms - since_ms, width - 1
    for begins, ends, statuses in parts:
        for begin, end, status in zip(begins, ends, statuses, strict=True):
            if not _is_inside(begin, end, since_ms, until_ms):
                continue
            of_status = changes[status]
            of_status[(begin - since_ms) * width // span_ms if begin > since_ms else 0] += 1
            if end and end < until_ms:
                of_status[min(last, (end - since_ms) * width // span_ms) + 1] -= 1
    found = [(STATUSES[status], _added_up(of_status)) for status, of_status in enumerate(changes)]
    return [documents.ActivityDocument(status, columns) for status, columns in found if columns]


def _added_up(changes: Sequence[int]) -> list[list[int]]:
    """``[column, columns, count]`` wherever the count is not 0."""
    found: list[list[int]] = []
    count = 0
    for column, change in enumerate(changes[:-1]):
        if change or not column:
            count += change
            if count:
                found.append([column, 1, count])
        elif count:
            found[-1][1] += 1
    return found


def _level(index: ExecutionIndex, step_run_id: str, within: Sequence[int]) -> LoopLevel:
    run = index.by_id.get(step_run_id)
    if run is None:
        raise NotFound(f"execution {index.execution_id} has no step run {step_run_id}")
    level = index.levels.get(run, {}).get(tuple(within))
    if level is None:
        inside = f" inside iteration {'.'.join(map(str, within))}" if within else ""
        hint = "of loops inside loops the first 2,000 are kept" if within else None
        raise NotFound(f"step run {step_run_id} has no loop{inside}", hint=hint)
    return level


def strip(
    index: ExecutionIndex, step_run_id: str, chosen: documents.IterationRange, buckets: int
) -> documents.LoopStripDocument:
    """
    Raises:
        NotFound: it has no such loop.
    """
    level = _level(index, step_run_id, chosen.within)
    first = min(chosen.first, level.count)
    end = level.count if chosen.end is None else max(first, min(chosen.end, level.count))
    buckets = max(1, min(buckets, documents.MAX_BUCKETS))
    size = max(1, -(-(end - first) // buckets))
    columns = [level.counts(at, min(at + size, end)) for at in range(first, end, size)]
    strips = [[column[status] for column in columns] for status in range(len(STATUSES))]
    return documents.LoopStripDocument(
        execution_id=index.execution_id,
        step_run_id=step_run_id,
        position=index.position,
        within=list(chosen.within),
        count=level.count,
        totals=RunCountsDocument(*level.counts(0, level.count)),
        first=first,
        end=end,
        size=size,
        strips=[
            documents.StripCountsDocument(STATUSES[status], counts)
            for status, counts in enumerate(strips)
            if any(counts)
        ],
    )


def iterations(
    index: ExecutionIndex, step_run_id: str, chosen: documents.IterationRange, limit: int
) -> documents.IterationSummariesDocument:
    """
    Raises:
        NotFound: it has no such loop.
    """
    level = _level(index, step_run_id, chosen.within)
    end = level.count if chosen.end is None else min(chosen.end, level.count)
    found: list[documents.IterationSummaryDocument] = []
    for place in range(chosen.first, end):
        status = STATUSES[level.status_of(place)]
        if place >= len(level.begin) and chosen.status not in (None, status):
            break  # none of those that have not begun
        if chosen.status in (None, status):
            if len(found) == limit:
                return documents.IterationSummariesDocument(found, place)
            found.append(_iteration(level, place, [*chosen.within, place], status))
    return documents.IterationSummariesDocument(found, None)


def _iteration(
    level: LoopLevel, place: int, path: list[int], status: documents.SpanStatus
) -> documents.IterationSummaryDocument:
    known = place < len(level.begin)
    begin, end = (level.begin[place], level.end[place]) if known else (0, 0)
    error = level.errors.get(place)
    return documents.IterationSummaryDocument(
        path=path,
        status=status,
        started=iso(begin) if begin else None,
        duration_s=round((end - begin) / 1000, 3) if end else None,
        attempts=level.attempts[place] if known else 0,
        error=None if error is None else ErrorInfo(error.kind, error.message),
    )
