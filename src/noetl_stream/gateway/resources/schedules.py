"""``/api/v1/schedules``: what starts on time. A schedule is registered with ``POST /api/v1/playbooks``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from noetl_stream.gateway.http.bodies import RequestModel
from noetl_stream.gateway.http.parameters import Explained, Moment, Paged, ms_of
from noetl_stream.gateway.http.routes import Call, Routes
from noetl_stream.gateway.resources.playbooks import PathAt
from noetl_stream.model.aggregates import Overlap
from noetl_stream.ports.operations.schedules import (
    BackfilledDocument,
    OccurrenceDocument,
    OccurrencePage,
    OccurrenceStatus,
    RegisteredScheduleDocument,
    SchedulePage,
    Schedules,
    UpcomingOccurrencesDocument,
)
from noetl_stream.ports.operations.verbs import API, address_of

SCHEDULES: Final = f"{API}/schedules"
CONFLICT: Final = ("conflict",)

routes = Routes()


class ScheduleChange(Explained, PathAt):
    """A change of one."""


class SchedulesQuery(Paged):
    prefix: Annotated[str, Field(max_length=512, description="What the path begins with.")] = ""


class UpcomingQuery(PathAt):
    count: Annotated[int, Field(ge=1, le=1000, description="How many.")] = 10
    after: Annotated[Moment | None, Field(description="Those after this time; without it those to come.")] = None


class HistoryQuery(Paged, PathAt):
    status: Annotated[OccurrenceStatus | None, Field(description="Only of this status.")] = None


class BackfillRequest(RequestModel):
    """The occurrences from one time up to before another; `overlap` counts for them."""

    from_: Annotated[AwareDatetime, Field(alias="from", description="ISO 8601 with its zone.")]
    before: Annotated[AwareDatetime, Field(description="ISO 8601 with its zone.")]
    overlap: Overlap = "queue_all"


@routes("GET", SCHEDULES, "listSchedules", "viewer")
async def page(call: Call[SchedulesQuery, None]) -> SchedulePage:
    """List schedules by path, each with its next time."""
    given = call.parameters
    return await call.operations.schedules.page(given.prefix, given.limit, given.cursor)


@routes(*address_of(Schedules.get), "getSchedule", "viewer")
async def get(call: Call[PathAt, None]) -> RegisteredScheduleDocument:
    """Get a schedule: when it starts next, what runs and waits, whether it is paused and why."""
    return await call.operations.schedules.get(call.parameters.path)


@routes(*address_of(Schedules.upcoming), "listUpcoming", "viewer")
async def upcoming(call: Call[UpcomingQuery, None]) -> UpcomingOccurrencesDocument:
    """List when it is due next, paused or not."""
    given = call.parameters
    found = await call.operations.schedules.upcoming(given.path, given.count, ms_of(given.after))
    return UpcomingOccurrencesDocument(found)


@routes("GET", f"{SCHEDULES}/{{path}}/history", "listOccurrences", "viewer")
async def history(call: Call[HistoryQuery, None]) -> OccurrencePage:
    """List what became of its occurrences: started, or skipped with the reason."""
    given = call.parameters
    return await call.operations.schedules.history(given.path, given.limit, given.cursor, given.status)


@routes(*address_of(Schedules.pause), "pauseSchedule", "operator", refuses=CONFLICT)
async def pause(call: Call[ScheduleChange, None]) -> RegisteredScheduleDocument:
    """Pause it: it starts nothing until it is resumed."""
    given = call.parameters
    return await call.operations.schedules.pause(given.path, call.caller.principal, given.reason, call.ids)


@routes(*address_of(Schedules.resume), "resumeSchedule", "operator", refuses=CONFLICT)
async def resume(call: Call[ScheduleChange, None]) -> RegisteredScheduleDocument:
    """Resume it from now on."""
    given = call.parameters
    return await call.operations.schedules.resume(given.path, call.caller.principal, given.reason, call.ids)


@routes(*address_of(Schedules.trigger), "triggerSchedule", "operator", refuses=CONFLICT, adds_work=True)
async def trigger(call: Call[ScheduleChange, None]) -> OccurrenceDocument:
    """Let it be due now, once, also if it is paused."""
    given = call.parameters
    return await call.operations.schedules.trigger(given.path, call.caller.principal, given.reason, call.ids)


@routes(*address_of(Schedules.backfill), "backfillSchedule", "operator", refuses=CONFLICT, adds_work=True)
async def backfill(call: Call[ScheduleChange, BackfillRequest]) -> BackfilledDocument:
    """Let the occurrences of a range in the past be due now, in order."""
    given, body = call.parameters, call.body
    from_ms, before_ms = int(body.from_.timestamp() * 1000), int(body.before.timestamp() * 1000)
    return await call.operations.schedules.backfill(
        given.path,
        from_ms,
        before_ms,
        by=call.caller.principal,
        overlap=body.overlap,
        reason=given.reason,
        ids=call.ids,
    )


@routes(*address_of(Schedules.delete), "deleteSchedule", "author", refuses=CONFLICT)
async def delete(call: Call[ScheduleChange, None]) -> None:
    """Delete it, its history, and its document in all versions.

    What it has started goes on.
    """
    given = call.parameters
    await call.operations.schedules.delete(given.path, call.caller.principal, given.reason)
