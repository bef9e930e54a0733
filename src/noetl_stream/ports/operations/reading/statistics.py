"""Statistics of a playbook: how its executions ended, how long they and their steps took."""

from __future__ import annotations

from noetl_stream.model.envelope import Time
from noetl_stream.ports.operations.documents import Document


class DurationsDocument(Document, frozen=True):
    """Percentiles of durations, in seconds: each is one that was measured (the nearest rank)."""

    count: int
    p50: float
    p90: float
    p99: float
    longest: float


class StepStatisticsDocument(Document, frozen=True):
    """The runs of a step that ended ``done`` or ``failed``. ``failure_rate``: from 0 to 1. ``duration`` is from the
    claim of the token to the end, waits included.
    """

    step: str
    done: int
    failed: int
    failure_rate: float
    duration: DurationsDocument


class StatisticsBucketDocument(Document, frozen=True):
    """Executions that started from ``start`` on and before the next bucket, by status."""

    start: Time
    statuses: dict[str, int]
    duration: DurationsDocument | None


class PlaybookStatisticsDocument(Document, frozen=True):
    """Statistics of the executions of a path, all versions, that started from ``since`` on.

    Attributes:
        until: When it was asked.
        executions: How many are counted: the newest.
        is_sample: Whether there may be older ones, which are not counted.
        statuses: Executions by status.
        failure_rate: Failed ones among those that completed or failed, from 0 to 1; null if there are none.
        duration: Of those that completed; null if there are none.
        buckets: The same over time, in stretches of one length.
        sampled_executions: How many journals, of the newest that have ended, were read for ``steps``.
        steps: In the order in which they first ran in the newest of them.
    """

    path: str
    since: Time
    until: Time
    executions: int
    is_sample: bool
    statuses: dict[str, int]
    failure_rate: float | None
    duration: DurationsDocument | None
    buckets: list[StatisticsBucketDocument]
    sampled_executions: int
    steps: list[StepStatisticsDocument]
