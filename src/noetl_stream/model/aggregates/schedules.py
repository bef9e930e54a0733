"""Requests to schedules: see :mod:`noetl_stream.engine.aggregates.schedules`."""

from __future__ import annotations

from datetime import date
from typing import Any, ClassVar, Final, Literal

import msgspec

from noetl_stream.model.aggregates.fact_parts import (
    AggregateRequested,
    StarterDeleted,
    StarterPaused,
    StarterRegistered,
    StarterResumed,
    StarterTerms,
)

SCHEDULE: Final = "Schedule"

Overlap = Literal["skip", "queue_one", "queue_all", "cancel", "terminate", "allow"]
Missed = Literal["last", "all", "none"]


class Timetable(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The times at which a schedule is due. Exactly one of ``cron``, ``every_s`` and ``at_ms`` is set.

    Attributes:
        zone: The IANA name of the zone of its days and times.
        cron: Expressions of five fields, or of six with seconds first; any of them makes it due.
        every_s: Whole days are calendar days from the first of 1970, each at midnight. Anything else is elapsed time
            from the midnight that begins that day, so the distance of two occurrences never changes.
        at_ms: Instants, ascending.
        from_ms: The first instant that may be an occurrence.
        before_ms: The first instant that is too late; 0 for none.
        exclude: Days without an occurrence.
    """

    zone: str = "UTC"
    cron: tuple[str, ...] = ()
    every_s: int = 0
    at_ms: tuple[int, ...] = ()
    from_ms: int = 0
    before_ms: int = 0
    exclude: frozenset[date] = frozenset()


class ScheduleTerms(StarterTerms, frozen=True, kw_only=True, omit_defaults=True):
    """The terms of a schedule: its playbook, and its times. Durations are in seconds.

    Without ``missed_within_s`` no occurrence is too late to make up for. With ``pause_after_failures`` 0, failures
    never pause it. ``name`` is that of the document. ``calls`` is what the playbook calls for each file that it finds.
    """

    name: str = ""
    workload: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    key: Any = None
    timetable: Timetable = Timetable()
    jitter_s: int = 0
    overlap: Overlap = "skip"
    missed: Missed = "last"
    missed_within_s: int | None = None
    pause_after_failures: int = 0
    calls: str | None = None


class ScheduleRegistered(StarterRegistered, frozen=True, tag="schedule.registered"):
    of: ClassVar = SCHEDULE

    terms: ScheduleTerms = ScheduleTerms(playbook="")
    paused: bool = False


class SchedulePaused(StarterPaused, frozen=True, tag="schedule.paused"):
    of: ClassVar = SCHEDULE


class ScheduleResumed(StarterResumed, frozen=True, tag="schedule.resumed"):
    of: ClassVar = SCHEDULE


class ScheduleTriggered(AggregateRequested, frozen=True, tag="schedule.triggered"):
    """An occurrence is due now, independently of the timetable, even for a paused schedule."""

    of: ClassVar = SCHEDULE


class ScheduleBackfilled(AggregateRequested, frozen=True, tag="schedule.backfilled"):
    """The occurrences from one instant up to before another are due now, in order, with this ``overlap``."""

    of: ClassVar = SCHEDULE

    from_ms: int = 0
    before_ms: int = 0
    overlap: Overlap = "queue_all"


class ScheduleDeleted(StarterDeleted, frozen=True, tag="schedule.deleted"):
    of: ClassVar = SCHEDULE


ScheduleFact = (
    ScheduleRegistered | SchedulePaused | ScheduleResumed | ScheduleTriggered | ScheduleBackfilled | ScheduleDeleted
)
