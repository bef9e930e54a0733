"""``/api/v1/schedules``: what starts on time. A schedule is registered with ``POST /api/v1/playbooks``."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import AwareDatetime, Field

from noetl_stream.gateway.http.bodies import RequestModel
from noetl_stream.gateway.http.parameters import Explained
from noetl_stream.gateway.http.routes import Call, Routes
from noetl_stream.gateway.http.verbs import route_of, routes_of
from noetl_stream.gateway.resources.playbooks import PathAt
from noetl_stream.model.aggregates import Overlap
from noetl_stream.ports.operations.schedules import BackfilledDocument, Schedules
from noetl_stream.ports.operations.verbs import address_of

routes = Routes()


class ScheduleChange(Explained, PathAt):
    """A change of one."""


class BackfillRequest(RequestModel):
    """The occurrences from one time up to before another; `overlap` counts for them."""

    from_: Annotated[AwareDatetime, Field(alias="from", description="ISO 8601 with its zone.")]
    before: Annotated[AwareDatetime, Field(description="ISO 8601 with its zone.")]
    overlap: Overlap = "queue_all"


BEFORE: Final = (
    *(Schedules.page, Schedules.get, Schedules.upcoming, Schedules.history),
    *(Schedules.pause, Schedules.resume, Schedules.run_now),
)
routes += (route_of("schedules", one) for one in BEFORE)


@routes(*address_of(Schedules.backfill), "backfillSchedule", "operator", refuses=("conflict",), adds_work=True)
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


routes += routes_of("schedules", routes)
