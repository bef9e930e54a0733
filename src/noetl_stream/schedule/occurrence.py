"""An occurrence of a schedule as the templates of its workload read it: the namespace ``schedule``. Pure."""

from __future__ import annotations

import msgspec

from noetl_stream.schedule.recurrence import Recurrence
from noetl_stream.zones import iso_in, zone_named


class DataInterval(msgspec.Struct, frozen=True):
    """The time between two occurrences, whose data an execution processes. The first one has no ``start``."""

    start: str | None
    end: str


class OccurrenceView(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence. Times are ISO 8601 in the zone of the schedule.

    Attributes:
        due: Its time in the timetable, without jitter; for one started by hand, the time of the request.
        previous: The previous occurrence; null for the first.
        interval: From the previous occurrence to this one; for one started by hand, between the last two.
        backfill: Whether a backfill made it.
    """

    path: str
    name: str
    timezone: str
    due: str
    previous: str | None
    interval: DataInterval
    backfill: bool


def occurrence_view(
    recurrence: Recurrence, at_ms: int, *, path: str, name: str, by_hand: bool = False, backfill: bool = False
) -> OccurrenceView:
    """The occurrence at ``at_ms``, which need not be in the timetable if it was started by hand."""
    zone = zone_named(recurrence.zone)

    def shown(ms: int | None) -> str | None:
        return None if ms is None else iso_in(ms, zone)

    previous = recurrence.last_before(at_ms)
    start, end = previous, at_ms
    if by_hand and previous is not None:
        start, end = recurrence.last_before(previous), previous
    return OccurrenceView(
        path=path,
        name=name,
        timezone=recurrence.zone,
        due=iso_in(at_ms, zone),
        previous=shown(previous),
        interval=DataInterval(shown(start), iso_in(end, zone)),
        backfill=backfill,
    )
