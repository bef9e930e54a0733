"""Schedules, directly on NATS and Postgres."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from noetl_stream.engine.aggregates.schedules import ScheduleKind, ScheduleState
from noetl_stream.errors import Conflict, NoetlError, NotFound, UsageError
from noetl_stream.model.aggregates import (
    SCHEDULE,
    Overlap,
    RequestedFact,
    ScheduleBackfilled,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleRegistered,
    ScheduleResumed,
    ScheduleTriggered,
    aggregate_id,
)
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.ids import uuid7
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.submit import RequestRefused, Requests, Unanswered, ask_aggregate, patience
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.operations.recording import OnRecord, unrecorded
from noetl_stream.playbook.schedule.schedule_document import ScheduleDocument
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.schedules import (
    BackfillDocument,
    BackfilledDocument,
    OccurrenceDocument,
    OccurrencePage,
    OccurrenceStatus,
    PauseDocument,
    RegisteredScheduleDocument,
    SchedulePage,
    TimetableDocument,
    UpcomingDocument,
)
from noetl_stream.ports.stores.aggregates import AggregateRow, HistoryRow
from noetl_stream.ports.stores.catalog import Catalog, CatalogEntry
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.schedule.recurrence import END_MS, Recurrence, jitter_of
from noetl_stream.schedule.zones import iso_in, offset_s, zone_named

MOST_UPCOMING: Final = 1000

BEGUN_S: Final = 5.0
"""How long a trigger waits for its execution to begin, so that it can be looked at."""
BEGUN_POLL_S: Final = 0.05

_ERRORS: Final[Mapping[str, type[NoetlError]]] = {
    "unknown_aggregate": NotFound,
    "other_kind": Conflict,
    "paused": Conflict,
    "under_way": Conflict,
    "forbidden": Conflict,
    "older_servers": Conflict,
}
"""By :data:`~noetl_stream.model.status.RejectionCode`; any other code is a UsageError."""


class SchedulePorts(NamedTuple):
    requests: Requests
    bus: Bus
    store: Store
    catalog: Catalog
    clock: Clock


class DirectSchedules:
    """:class:`~noetl_stream.ports.operations.schedules.Schedules`, where each method is described.

    Args:
        unanswered: Called whenever no server has answered a request, before it is published again.
        recorded: Records each change in the audit.
    """

    def __init__(
        self,
        ports: SchedulePorts,
        unanswered: Unanswered | None = None,
        recorded: OnRecord = unrecorded,
    ) -> None:
        self._requests, self._bus, self._store, self._catalog, self._clock = ports
        self._unanswered = unanswered
        self._recorded = recorded

    async def register(self, entry: CatalogEntry, document: ScheduleDocument, by: str) -> None:
        """Makes the schedule at the path of ``entry`` what its document says.

        Raises:
            UsageError: the playbook or its version is not registered.
            Conflict: ``by`` may not start it, or a server of an older version runs.
        """
        fact = ScheduleRegistered(
            self._new_id(),
            entry.path,
            by,
            terms=document.terms,
            revision=entry.revision,
            digest=entry.digest,
            paused=document.paused,
        )
        await self._ask(fact)

    async def page(self, prefix: str, limit: int, cursor: str | None) -> SchedulePage:
        size, after = page_size(limit), read_cursor(cursor, str)
        found = await self._store.list_aggregates(SCHEDULE, prefix, size + 1, after)
        rows, following = page_of(found, size, lambda row: row.key)
        return SchedulePage([schedule_document(row) for row in rows], following)

    async def get(self, path: str) -> RegisteredScheduleDocument:
        return schedule_document(await self._row(path))

    async def upcoming(self, path: str, count: int = 10, after_ms: int | None = None) -> list[UpcomingDocument]:
        state = _state_of(await self._row(path))
        if not 1 <= count <= MOST_UPCOMING:
            raise UsageError(f"`count` is from 1 to {MOST_UPCOMING}")
        after_ms = self._clock.now_ms() if after_ms is None else after_ms
        terms = state.terms
        return list(islice(upcoming_of(Recurrence.of(terms.timetable), state.path, terms.jitter_s, after_ms), count))

    async def history(
        self, path: str, limit: int, cursor: str | None, status: OccurrenceStatus | None = None
    ) -> OccurrencePage:
        row = await self._row(path)
        size, before = page_size(limit), read_cursor(cursor, int)
        found = await self._store.aggregate_history(row.id, size + 1, before, () if status is None else (status,))
        rows, following = page_of(found, size, lambda entry: entry.number)
        return OccurrencePage([occurrence_document(one) for one in rows], following)

    async def pause(
        self, path: str, by: str, reason: str = "", ids: RequestIds | None = None
    ) -> RegisteredScheduleDocument:
        async with self._recorded("pauseSchedule", path, by, reason):
            await self._ask(SchedulePaused(self._request_id(ids), path, by, reason))
        return await self.get(path)

    async def resume(
        self, path: str, by: str, reason: str = "", ids: RequestIds | None = None
    ) -> RegisteredScheduleDocument:
        async with self._recorded("resumeSchedule", path, by, reason):
            await self._ask(ScheduleResumed(self._request_id(ids), path, by, reason))
        return await self.get(path)

    async def trigger(self, path: str, by: str, reason: str = "", ids: RequestIds | None = None) -> OccurrenceDocument:
        async with self._recorded("triggerSchedule", path, by, reason):
            answer = await self._ask(ScheduleTriggered(self._request_id(ids), path, by, reason))
        number = answer["number"]
        found = await self._store.aggregate_history(aggregate_id("starter", path), 1, number + 1)
        if not found or found[0].number != number:
            raise NotFound(f"occurrence {number} of schedule {path} is not in its history any more")
        if found[0].status == "started":  # its execution begins with the next tick of its partition
            await self._until_begun(str(found[0].execution_id))
        return occurrence_document(found[0])

    async def backfill(
        self,
        path: str,
        from_ms: int,
        before_ms: int,
        by: str,
        overlap: Overlap = "queue_all",
        reason: str = "",
        ids: RequestIds | None = None,
    ) -> BackfilledDocument:
        if not 0 <= from_ms < before_ms <= END_MS:
            raise UsageError("the range of a backfill ends before it begins", hint="give an earlier `from`")
        fact = ScheduleBackfilled(
            self._request_id(ids), path, by, reason, from_ms=from_ms, before_ms=before_ms, overlap=overlap
        )
        async with self._recorded("backfillSchedule", path, by, reason):
            answer = await self._ask(fact)
        return BackfilledDocument(path, answer["occurrences"])

    async def delete(self, path: str, by: str, reason: str = "") -> None:
        async with self._recorded("deleteSchedule", path, by, reason):
            await self._ask(ScheduleDeleted(self._new_id(), path, by, reason))
            await self._catalog.delete(path, None)

    async def _until_begun(self, execution_id: str) -> None:
        until_s = self._clock.monotonic_s() + BEGUN_S
        while await self._store.execution(execution_id) is None and self._clock.monotonic_s() < until_s:
            await self._clock.sleep(BEGUN_POLL_S)

    async def _row(self, path: str) -> AggregateRow:
        id = aggregate_id("starter", path)
        row = (await self._store.aggregates([id])).get(id)
        if row is None or row.kind != SCHEDULE:
            raise NotFound(f"no schedule is registered at {path}", hint="`schedule list` shows those that are")
        return row

    async def _ask(self, fact: RequestedFact) -> dict[str, Any]:
        waiting = self._unanswered or patience(self._clock, f"schedule {fact.key}")
        try:
            return await ask_aggregate(self._requests, self._bus, self._clock, "starter", fact, waiting)
        except RequestRefused as error:
            raise _ERRORS.get(error.code, UsageError)(error.message) from None

    def _request_id(self, ids: RequestIds | None) -> str:
        return self._new_id() if ids is None else ids.request_id

    def _new_id(self) -> str:
        return uuid7(self._clock.now_ms(), self._clock.random_bytes(10))


def upcoming_of(recurrence: Recurrence, path: str, jitter_s: int, after_ms: int) -> Iterator[UpcomingDocument]:
    """The occurrences of a schedule at ``path`` after an instant."""
    zone = zone_named(recurrence.zone)
    before_s = offset_s(after_ms, zone)
    for at_ms in recurrence.occurrences(after_ms):
        now_s = offset_s(at_ms, zone)
        ahead_s, before_s = now_s - before_s, now_s
        note = f"clocks set {'forward' if ahead_s > 0 else 'back'} by {abs(ahead_s) // 60} min" if ahead_s else ""
        yield UpcomingDocument(iso_in(at_ms, zone), iso(at_ms), iso(at_ms + jitter_of(path, at_ms, jitter_s)), note)


def schedule_document(row: AggregateRow) -> RegisteredScheduleDocument:
    """A schedule as people see it."""
    state = _state_of(row)
    terms, backfill = state.terms, state.backfill
    table = terms.timetable
    timetable = TimetableDocument(table.zone, list(table.cron), table.every_s or None, list(map(iso, table.at_ms)))
    return RegisteredScheduleDocument(
        path=state.path,
        playbook=terms.playbook,
        version=terms.version,
        revision=state.revision,
        digest=state.digest,
        registered_by=state.by,
        registered=iso(state.registered_ms),
        timetable=timetable,
        jitter_s=terms.jitter_s,
        overlap=terms.overlap,
        missed=terms.missed,
        missed_within_s=terms.missed_within_s,
        pause_after_failures=terms.pause_after_failures or None,
        next=iso_or_none(ScheduleKind().timers(state).get("next")),
        paused=PauseDocument(state.paused, iso(state.paused_ms)) if state.paused else None,
        failures=state.failures,
        running=[one.execution_id for one in state.running],
        waiting=len(state.waiting),
        backfill=None
        if backfill is None
        else BackfillDocument(iso(backfill.next_ms), iso(backfill.before_ms), backfill.overlap, backfill.left),
        occurrences=state.number,
    )


def occurrence_document(row: HistoryRow) -> OccurrenceDocument:
    """An entry of a schedule's history as people see it."""
    body: dict[str, Any] = codec.decode_json(row.body)
    status: Any = row.status
    return OccurrenceDocument(
        number=row.number,
        status=status,
        scheduled=iso(body["scheduled_ms"]),
        due=iso(body["due_ms"]),
        cause=body["cause"],
        execution_id=row.execution_id,
        started=iso_or_none(body.get("started_ms")),
        ended=iso_or_none(body.get("ended_ms")),
        reason=body.get("reason", ""),
    )


def _state_of(row: AggregateRow) -> ScheduleState:
    return codec.decode_as(ScheduleState, row.state)
