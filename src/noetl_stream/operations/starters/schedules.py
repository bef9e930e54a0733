"""Schedules, directly on NATS and Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from noetl_stream.engine.aggregates.schedules import ScheduleKind, ScheduleState
from noetl_stream.errors import UsageError
from noetl_stream.model.aggregates import (
    SCHEDULE,
    Overlap,
    ScheduleBackfilled,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleRegistered,
    ScheduleResumed,
    ScheduleTriggered,
)
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.json import codec
from noetl_stream.operations.starters.base import DirectStarters
from noetl_stream.playbook.schedule.schedule_document import ScheduleDocument
from noetl_stream.ports.operations.documents import document_from
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.starters.schedules import (
    BackfilledDocument,
    OccurrenceDocument,
    OccurrencePage,
    PauseDocument,
    RegisteredScheduleDocument,
    SchedulePage,
    TimetableDocument,
    UpcomingDocument,
)
from noetl_stream.ports.stores.aggregates import AggregateRow, HistoryRow
from noetl_stream.ports.stores.catalog import PLAYBOOK, Address, CatalogEntry, find_entry
from noetl_stream.schedule.recurrence import END_MS, Recurrence, jitter_of
from noetl_stream.zones import iso_in, offset_s, zone_named

MOST_UPCOMING: Final = 1000

BEGUN_S: Final = 5.0
"""The wait for the execution of a requested occurrence to begin, so that it can be read."""


class DirectSchedules(DirectStarters[RegisteredScheduleDocument, SchedulePage, OccurrenceDocument, OccurrencePage]):
    """:class:`~noetl_stream.ports.operations.starters.schedules.Schedules`, where each method is described."""

    kind = SCHEDULE
    pages, entry_pages = SchedulePage, OccurrencePage
    pauses, resumes, deletes = SchedulePaused, ScheduleResumed, ScheduleDeleted

    async def register(self, entry: CatalogEntry, document: ScheduleDocument, by: str) -> None:
        if document.arrivals_text is not None:
            called = Address(document.call.path, document.call.version)
            await find_entry(self._catalog, called, PLAYBOOK)  # a look that calls nothing would move the marker
            await self._register_playbook(document.arrivals_text, document.terms.playbook, by)
        fact = ScheduleRegistered(
            self._request_id(),
            entry.path,
            by,
            terms=document.terms,
            revision=entry.revision,
            digest=entry.digest,
            paused=document.paused,
        )
        await self._ask(fact)

    @staticmethod
    def document(row: AggregateRow) -> RegisteredScheduleDocument:
        state = _state_of(row)
        terms, table = state.terms, state.terms.timetable
        timetable = TimetableDocument(table.zone, list(table.cron), table.every_s or None, list(map(iso, table.at_ms)))
        return document_from(
            RegisteredScheduleDocument,
            terms,
            state,
            registered_by=state.by,
            timetable=timetable,
            pause_after_failures=terms.pause_after_failures or None,
            next=iso_or_none(ScheduleKind().timers(state).get("next")),
            paused=PauseDocument(state.paused, iso(state.paused_ms)) if state.paused else None,
            running=[one.execution_id for one in state.running],
            waiting=len(state.waiting),
            occurrences=state.number,
        )

    @staticmethod
    def entry(row: HistoryRow) -> OccurrenceDocument:
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

    async def upcoming(self, path: str, count: int = 10, after_ms: int | None = None) -> list[UpcomingDocument]:
        state = _state_of(await self._row(path))
        if not 1 <= count <= MOST_UPCOMING:
            raise UsageError(f"`count` is from 1 to {MOST_UPCOMING}")
        after_ms = self._clock.now_ms() if after_ms is None else after_ms
        terms = state.terms
        return list(
            islice(upcoming_of(Recurrence.from_timetable(terms.timetable), state.path, terms.jitter_s, after_ms), count)
        )

    async def run_now(self, path: str, by: str, reason: str = "", ids: RequestIds | None = None) -> OccurrenceDocument:
        answer = await self._ask(ScheduleTriggered(self._request_id(ids), path, by, reason))
        found = await self._history_row(path, answer["number"])
        if found.status == "started":
            await self._until_begun(str(found.execution_id), BEGUN_S)
        return self.entry(found)

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
        answer = await self._ask(fact)
        return BackfilledDocument(path, answer["occurrences"])


def upcoming_of(recurrence: Recurrence, path: str, jitter_s: int, after_ms: int) -> Iterator[UpcomingDocument]:
    """The occurrences of a schedule at ``path`` after an instant."""
    zone = zone_named(recurrence.zone)
    before_s = offset_s(after_ms, zone)
    for at_ms in recurrence.occurrences(after_ms):
        now_s = offset_s(at_ms, zone)
        ahead_s, before_s = now_s - before_s, now_s
        note = f"clocks set {'forward' if ahead_s > 0 else 'back'} by {abs(ahead_s) // 60} min" if ahead_s else ""
        yield UpcomingDocument(iso_in(at_ms, zone), iso(at_ms), iso(at_ms + jitter_of(path, at_ms, jitter_s)), note)


def _state_of(row: AggregateRow) -> ScheduleState:
    return codec.decode_as(ScheduleState, row.state)
