"""Statistics of playbooks, from the rows of executions and, for steps, from the journals of some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final, NamedTuple

from noetl_stream.lru import LruCache
from noetl_stream.model.envelope import iso
from noetl_stream.operations.executions.reading.step_runs import StepTime, step_times
from noetl_stream.ports.operations import playbooks as documents
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.stores.tallies import RecentExecution


class StatisticsBounds(NamedTuple):
    """The bounds of what is read for one answer.

    Attributes:
        counted: The newest executions that are counted: a look-up in an index and some milliseconds of sorting.
        sampled: The most executions whose journals are read.
        events: The total of events at which reading journals ends: a fraction of a second when none is cached.
    """

    counted: int = 10_000
    sampled: int = 200
    events: int = 20_000


USUAL_BOUNDS: Final = StatisticsBounds()


KNOWN_RUNS: Final = 50_000
"""The kept step runs of ended executions, which never change: a repeated question reads little."""

BUCKETS: Final = 48


class PlaybookStatistics:
    """The statistics of the executions of a path."""

    def __init__(self, store: Store, bounds: StatisticsBounds = USUAL_BOUNDS) -> None:
        self._store, self._bounds = store, bounds
        self._known: LruCache[str, tuple[StepTime, ...]] = LruCache(KNOWN_RUNS, lambda runs: len(runs) + 1)

    async def of(self, path: str, since_ms: int, now_ms: int) -> documents.PlaybookStatisticsDocument:
        found = await self._store.recent_executions(path, since_ms, self._bounds.counted + 1)
        counted = found[: self._bounds.counted]
        sampled = _sampled(counted, self._bounds)
        statuses = Counter(str(one.status) for one in counted)
        return documents.PlaybookStatisticsDocument(
            path=path,
            since=iso(since_ms),
            until=iso(now_ms),
            executions=len(counted),
            is_sample=len(found) > len(counted),
            statuses=dict(statuses),
            failure_rate=_rate(statuses["failed"], statuses["completed"]),
            duration=_durations(counted),
            buckets=_buckets(counted, since_ms, now_ms),
            sampled_executions=len(sampled),
            steps=_steps([run for one in sampled for run in await self._runs(one.execution_id)]),
        )

    async def _runs(self, execution_id: str) -> tuple[StepTime, ...]:
        runs = self._known.get(execution_id)
        if runs is None:
            runs = tuple(await step_times(self._store, execution_id))
            self._known.put(execution_id, runs)
        return runs


def _sampled(executions: Iterable[RecentExecution], bounds: StatisticsBounds) -> list[RecentExecution]:
    """The newest ended executions, at least one, up to the bounds of executions and events."""
    chosen: list[RecentExecution] = []
    events = 0
    for one in executions:
        if one.finished_ms is not None:
            if len(chosen) == bounds.sampled or events >= bounds.events:
                break
            chosen.append(one)
            events += one.position
    return chosen


def _buckets(
    executions: Sequence[RecentExecution], since_ms: int, now_ms: int
) -> list[documents.StatisticsBucketDocument]:
    """The bars from the oldest execution on: nothing is drawn for the time before it."""
    if not executions:
        return []
    first_ms = max(since_ms, min(one.started_ms for one in executions))
    width_ms = max(1, ceil((now_ms + 1 - first_ms) / BUCKETS))
    within: dict[int, list[RecentExecution]] = {}
    for one in executions:
        within.setdefault(min((one.started_ms - first_ms) // width_ms, BUCKETS - 1), []).append(one)
    return [
        documents.StatisticsBucketDocument(
            start=iso(first_ms + number * width_ms),
            statuses=dict(Counter(str(one.status) for one in within.get(number, ()))),
            duration=_durations(within.get(number, ())),
        )
        for number in range(BUCKETS)
    ]


def _durations(executions: Iterable[RecentExecution]) -> documents.DurationsDocument | None:
    return durations(
        (one.finished_ms - one.started_ms) / 1000
        for one in executions
        if one.status == "completed" and one.finished_ms is not None
    )


def _steps(runs: Iterable[StepTime]) -> list[documents.StepStatisticsDocument]:
    by_step: dict[str, list[StepTime]] = {}
    for run in runs:
        by_step.setdefault(run.step, []).append(run)
    found = []
    for step, some in by_step.items():
        failed = sum(not run.is_done for run in some)
        times = durations(run.duration_s for run in some)
        assert times is not None  # there is at least one
        found.append(
            documents.StepStatisticsDocument(
                step=step, done=len(some) - failed, failed=failed, failure_rate=failed / len(some), duration=times
            )
        )
    return found


def durations(seconds: Iterable[float]) -> documents.DurationsDocument | None:
    """The percentiles of these durations; ``None`` without any."""
    ordered = sorted(seconds)
    if not ordered:
        return None
    p50, p90, p99 = (round(ordered[ceil(share * len(ordered)) - 1], 3) for share in (0.5, 0.9, 0.99))
    return documents.DurationsDocument(len(ordered), p50, p90, p99, round(ordered[-1], 3))


def _rate(failed: int, completed: int) -> float | None:
    return failed / (failed + completed) if failed + completed else None
