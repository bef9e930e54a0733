"""Schedules and triggers, directly on NATS and Postgres."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar, cast
from urllib.parse import quote

import msgspec

from noetl_stream.errors import Conflict, Forbidden, NoetlError, NotFound, Unreachable, UsageError
from noetl_stream.model import aggregates
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.ids import derive, uuid7
from noetl_stream.model.json import codec
from noetl_stream.model.messages import WebhookQuestion
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.operations.executions.submit import (
    RequestRefused,
    Requests,
    Unanswered,
    ask_aggregate,
    patience,
    reading_accepted,
)
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.operations.playbooks import entry_of
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.starters import (
    BackfilledDocument,
    DeliveredDocument,
    EventStatus,
    OccurrenceDocument,
    OccurrencePage,
    PauseDocument,
    RegisteredScheduleDocument,
    SchedulePage,
    TimetableDocument,
    TriggerEventDocument,
    TriggerEventPage,
    TriggerFaultsDocument,
    TriggerPage,
    TriggerStateDocument,
    TriggerStreamDocument,
    UpcomingDocument,
)
from noetl_stream.ports.operations.verbs import API, DocumentPage, document_from
from noetl_stream.ports.stores.aggregates import AggregateRow, HistoryRow
from noetl_stream.ports.stores.catalog import PLAYBOOK, Address, Catalog, CatalogEntry, KindTaken, find_entry
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.protocol import subjects

if TYPE_CHECKING:
    from noetl_stream.engine.aggregates.schedules import ScheduleState
    from noetl_stream.engine.aggregates.triggers import TriggerState
    from noetl_stream.playbook.compile.compiler import CheckResult
    from noetl_stream.playbook.schedule.schedule_document import ScheduleDocument
    from noetl_stream.playbook.trigger.trigger_document import TriggerDocument
    from noetl_stream.schedule.recurrence import Recurrence
    from noetl_stream.trigger.signatures import WebhookDelivery

LOOKED_FOR_EVERY_S: Final = 0.005
"""The first interval of checks; it doubles each time."""

_ERRORS: Final[Mapping[str, type[NoetlError]]] = {
    "unknown_aggregate": NotFound,
    "forbidden": Forbidden,
    "other_kind": Conflict,
    "paused": Conflict,
    "under_way": Conflict,
    "older_servers": Conflict,
}
"""Errors by :data:`~noetl_stream.model.status.RejectionCode`; any other code is a UsageError."""

State = TypeVar("State")
Entry = TypeVar("Entry")
StatePage = TypeVar("StatePage", bound=DocumentPage[Any])
EntryPage = TypeVar("EntryPage", bound=DocumentPage[Any])


class StarterPorts(NamedTuple):
    requests: Requests
    bus: Bus
    store: Store
    catalog: Catalog
    clock: Clock


class DirectStarters(ABC, Generic[State, StatePage, Entry, EntryPage]):
    """Base of the operations of a kind; each method is described at its port, of schedules or of triggers.

    Args:
        unanswered: Called whenever no server has answered a request, before it is published again.
    """

    kind: ClassVar[str]
    pages: type[StatePage]
    entry_pages: type[EntryPage]
    pauses: type[aggregates.SchedulePaused | aggregates.TriggerPaused]
    resumes: type[aggregates.ScheduleResumed | aggregates.TriggerResumed]
    deletes: type[aggregates.ScheduleDeleted | aggregates.TriggerDeleted]

    def __init__(self, ports: StarterPorts, checking: PlaybookChecker, unanswered: Unanswered | None = None) -> None:
        self._requests, self._bus, self._store, self._catalog, self._clock = ports
        self._checking = checking
        self._unanswered = unanswered

    @abstractmethod
    async def register(self, entry: CatalogEntry, document: Any, by: str) -> None:
        """Makes the starter at the path of ``entry`` follow its document.

        Raises: as :meth:`RegisteredStarters.begin`.
        """

    @staticmethod
    @abstractmethod
    def document(row: AggregateRow) -> State:
        """A starter for people."""

    @staticmethod
    @abstractmethod
    def entry(row: HistoryRow) -> Entry:
        """An entry of its history for people."""

    async def page(self, prefix: str, limit: int, cursor: str | None, scope: Sequence[str] = ()) -> StatePage:
        size, after = page_size(limit), read_cursor(cursor, str)
        found = await self._store.list_aggregates(self.kind, prefix, size + 1, after, scope)
        rows, following = page_of(found, size, lambda row: row.key)
        return self.pages([self.document(row) for row in rows], following)

    async def get(self, path: str) -> State:
        return self.document(await self._row(path))

    async def pause(self, path: str, by: str, reason: str = "", ids: RequestIds | None = None) -> State:
        await self._ask(self.pauses(self._request_id(ids), path, by, reason))
        with self._reading_accepted(path):
            return await self.get(path)

    async def resume(self, path: str, by: str, reason: str = "", ids: RequestIds | None = None) -> State:
        await self._ask(self.resumes(self._request_id(ids), path, by, reason))
        with self._reading_accepted(path):
            return await self.get(path)

    async def history(self, path: str, limit: int, cursor: str | None, status: Any = None) -> EntryPage:
        row = await self._row(path)
        size, before = page_size(limit), read_cursor(cursor, int)
        found = await self._store.aggregate_history(row.id, size + 1, before, () if status is None else (status,))
        rows, following = page_of(found, size, lambda entry: entry.number)
        return self.entry_pages([self.entry(one) for one in rows], following)

    async def delete(self, path: str, by: str, reason: str = "") -> None:
        try:
            await self._ask(self.deletes(self._request_id(), path, by, reason))
        except NotFound:
            # An interrupted registration or deletion has left the document without a starter.
            entry = await self._catalog.resolve(path, None)
            if entry is None or entry.kind != self.kind:
                raise
        await self._catalog.delete(path, None)

    async def _ask(self, fact: aggregates.RequestedFact) -> dict[str, Any]:
        waiting = self._unanswered or patience(self._clock, f"{self.kind.lower()} {fact.key}")
        try:
            return await ask_aggregate(self._requests, self._bus, self._clock, "starter", fact, waiting)
        except RequestRefused as refused:
            raise _ERRORS.get(refused.code, UsageError)(refused.message) from None

    def _reading_accepted(self, path: str) -> AbstractContextManager[None]:
        return reading_accepted(f"a change of {self.kind.lower()} {path}")

    async def _row(self, path: str) -> AggregateRow:
        id, noun = aggregates.aggregate_id("starter", path), self.kind.lower()
        row = (await self._store.aggregates([id])).get(id)
        if row is None or row.kind != self.kind:
            hint = f"`noetl-stream {noun} list` shows those that are"
            raise NotFound(f"no {noun} is registered at {path}", hint=hint)
        return row

    async def _history_row(self, path: str, number: int) -> HistoryRow:
        """An entry of its history."""
        found = await self._store.aggregate_history(aggregates.aggregate_id("starter", path), 1, number + 1)
        if not found or found[0].number != number:
            raise NotFound(f"{self.kind.lower()} {path} has no entry {number} in its history, or no longer")
        return found[0]

    async def _until_begun(self, execution_id: str, within_s: float) -> None:
        """Waits until an execution can be read, since it begins with the next tick of its partition."""
        until_s, pause_s = self._clock.monotonic_s() + within_s, LOOKED_FOR_EVERY_S
        while await self._store.execution(execution_id) is None and self._clock.monotonic_s() < until_s:
            await self._clock.sleep(pause_s)
            pause_s *= 2

    async def _register_playbook(self, text: str, path: str, by: str) -> None:
        """Registers the playbook that the text of a starter compiles to.

        Raises:
            Conflict: something else is registered at its path.
        """
        entry = entry_of(
            text, await self._checking.plan(text, path), registered_ms=self._clock.now_ms(), registered_by=by
        )
        try:
            await self._catalog.register(entry, text)
        except KindTaken as error:
            raise Conflict(error.message, hint=error.hint) from None

    def _request_id(self, ids: RequestIds | None = None) -> str:
        return uuid7(self._clock.now_ms(), self._clock.random_bytes(10)) if ids is None else ids.request_id


AnyStarters = DirectStarters[Any, Any, Any, Any]


class RegisteredStarters:
    """Args: each called when there is one to begin."""

    def __init__(self, schedules: Callable[[], AnyStarters], triggers: Callable[[], AnyStarters]) -> None:
        self._schedules = schedules
        self._triggers = triggers

    async def begin(self, entry: CatalogEntry, checked: CheckResult, by: str) -> None:
        """Makes servers start executions by the registered ``entry``, if it is a schedule or a trigger.

        Raises:
            UsageError: its playbook, or that version of it, is not registered.
            Forbidden: ``by`` may not start it.
            Conflict: a server of an older version runs.
        """
        if checked.schedule is not None:
            await self._schedules().register(entry, checked.schedule, by)
        elif checked.trigger is not None:
            await self._triggers().register(entry, checked.trigger, by)


MOST_UPCOMING: Final = 1000

OCCURRENCE_BEGUN_S: Final = 5.0
"""The wait for the execution of a requested occurrence to begin, so that it can be read."""


class DirectSchedules(DirectStarters[RegisteredScheduleDocument, SchedulePage, OccurrenceDocument, OccurrencePage]):
    """:class:`~noetl_stream.ports.operations.starters.Schedules`, where each method is described."""

    kind = aggregates.SCHEDULE
    pages, entry_pages = SchedulePage, OccurrencePage
    pauses, resumes, deletes = aggregates.SchedulePaused, aggregates.ScheduleResumed, aggregates.ScheduleDeleted

    async def register(self, entry: CatalogEntry, document: ScheduleDocument, by: str) -> None:
        if document.arrivals_text is not None:
            called = Address(document.call.path, document.call.version)
            await find_entry(self._catalog, called, PLAYBOOK)  # a look that calls nothing would move the marker
            await self._register_playbook(document.arrivals_text, document.terms.playbook, by)
        fact = aggregates.ScheduleRegistered(
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
        from noetl_stream.engine.aggregates.schedules import ScheduleKind

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
        from noetl_stream.schedule.recurrence import Recurrence

        state = _state_of(await self._row(path))
        if not 1 <= count <= MOST_UPCOMING:
            raise UsageError(f"`count` is from 1 to {MOST_UPCOMING}")
        after_ms = self._clock.now_ms() if after_ms is None else after_ms
        terms = state.terms
        return list(
            islice(upcoming_of(Recurrence.from_timetable(terms.timetable), state.path, terms.jitter_s, after_ms), count)
        )

    async def run_now(self, path: str, by: str, reason: str = "", ids: RequestIds | None = None) -> OccurrenceDocument:
        answer = await self._ask(aggregates.ScheduleTriggered(self._request_id(ids), path, by, reason))
        with self._reading_accepted(path):
            found = await self._history_row(path, answer["number"])
        if found.status == "started":
            await self._until_begun(str(found.execution_id), OCCURRENCE_BEGUN_S)
        return self.entry(found)

    async def backfill(
        self,
        path: str,
        from_ms: int,
        before_ms: int,
        by: str,
        overlap: aggregates.Overlap = "queue_all",
        reason: str = "",
        ids: RequestIds | None = None,
    ) -> BackfilledDocument:
        from noetl_stream.schedule.recurrence import END_MS

        if not 0 <= from_ms < before_ms <= END_MS:
            raise UsageError("the range of a backfill ends before it begins", hint="give an earlier `from`")
        fact = aggregates.ScheduleBackfilled(
            self._request_id(ids), path, by, reason, from_ms=from_ms, before_ms=before_ms, overlap=overlap
        )
        answer = await self._ask(fact)
        return BackfilledDocument(path, answer["occurrences"])


def upcoming_of(recurrence: Recurrence, path: str, jitter_s: int, after_ms: int) -> Iterator[UpcomingDocument]:
    """The occurrences of a schedule at ``path`` after an instant."""
    from noetl_stream.schedule.recurrence import jitter_of
    from noetl_stream.zones import iso_in, offset_s, zone_named

    zone = zone_named(recurrence.zone)
    before_s = offset_s(after_ms, zone)
    for at_ms in recurrence.occurrences(after_ms):
        now_s = offset_s(at_ms, zone)
        ahead_s, before_s = now_s - before_s, now_s
        note = f"clocks set {'forward' if ahead_s > 0 else 'back'} by {abs(ahead_s) // 60} min" if ahead_s else ""
        yield UpcomingDocument(iso_in(at_ms, zone), iso(at_ms), iso(at_ms + jitter_of(path, at_ms, jitter_s)), note)


def _state_of(row: AggregateRow) -> ScheduleState:
    from noetl_stream.engine.aggregates.schedules import ScheduleState  # most commands start faster without it

    return codec.decode_as(ScheduleState, row.state)


VERIFIED_WITHIN_S: Final = 5.0

DELIVERY_BEGUN_S: Final = 2.0
"""The wait of a delivery for its execution to begin: senders of webhooks do not wait long."""

WEBHOOK: Final = "webhook"
"""The sender of a webhook's delivery: only the server knows the real one."""


class DirectTriggers(DirectStarters[TriggerStateDocument, TriggerPage, TriggerEventDocument, TriggerEventPage]):
    """:class:`~noetl_stream.ports.operations.starters.Triggers`, where each method is described."""

    kind = aggregates.TRIGGER
    pages, entry_pages = TriggerPage, TriggerEventPage
    pauses, resumes, deletes = aggregates.TriggerPaused, aggregates.TriggerResumed, aggregates.TriggerDeleted

    async def register(self, entry: CatalogEntry, document: TriggerDocument, by: str) -> None:
        if document.notification is not None:
            from noetl_stream.playbook.trigger.notification import notify_playbook

            text = notify_playbook(document.terms.playbook, document.name, document.notification)
            await self._register_playbook(text, document.terms.playbook, by)
        fact = aggregates.TriggerRegistered(
            self._request_id(), entry.path, by, terms=document.terms, revision=entry.revision, digest=entry.digest
        )
        await self._ask(fact)

    @staticmethod
    def document(row: AggregateRow) -> TriggerStateDocument:
        from noetl_stream.engine.aggregates.triggers import TriggerState  # most commands start faster without it

        state: TriggerState = codec.decode_as(TriggerState, row.state)
        terms: aggregates.TriggerTerms = state.terms
        on = msgspec.to_builtins(terms.webhook or terms.watched) if terms.nats is None else _on(terms.nats)
        return document_from(
            TriggerStateDocument,
            terms,
            state,
            on={terms.source: on},
            address=webhook_address(state.path) if terms.webhook is not None else None,
            registered_by=state.by,
            paused=state.paused or None,
            events=state.number,
            waiting=len(state.waiting),
            rate=None if terms.rate is None else msgspec.structs.asdict(terms.rate),
            faults=document_from(TriggerFaultsDocument, state.faults) if state.faults.count else None,
            stream=_stream(state) if terms.nats is not None else None,
        )

    @staticmethod
    def entry(row: HistoryRow, *, whole: bool = False) -> TriggerEventDocument:
        body = codec.decode_json(row.body)
        return TriggerEventDocument(
            number=row.number,
            at=iso(row.at_ms),
            status=cast(EventStatus, row.status),
            execution_id=row.execution_id,
            reason=body.get("reason"),
            key=body.get("key"),
            resent=body.get("resent"),
            depth=body.get("depth"),
            fault=body.get("fault", False),
            event=body["event"] if whole else None,
        )

    async def event(self, path: str, number: int) -> TriggerEventDocument:
        await self._row(path)
        return self.entry(await self._history_row(path, number), whole=True)

    async def resend(
        self, path: str, number: int, by: str, reason: str = "", ids: RequestIds | None = None
    ) -> TriggerEventDocument:
        before = await self.event(path, number)
        fact = aggregates.EventReceived(
            self._request_id(ids), path, by, reason, event=before.event or {}, resent=number
        )
        answer = await self._ask(fact)
        with self._reading_accepted(path):
            return await self.event(path, answer["number"])

    async def deliver(self, path: str, delivery: WebhookDelivery, ids: RequestIds) -> DeliveredDocument:
        question = WebhookQuestion(path, delivery.method, dict(delivery.headers), delivery.query, delivery.body)
        reply = await self._bus.ask(subjects.ASK_WEBHOOK, codec.encode(question), VERIFIED_WITHIN_S)
        if reply is None or reply == b"null":
            raise Unreachable("no server can verify the delivery now", hint="send it again")
        found = codec.decode_webhook_answer(reply)
        if not found.is_verified:
            raise NotFound("no webhook takes this delivery")
        if found.challenge is not None:
            return DeliveredDocument(challenge=found.challenge)
        request_id = derive(path, "delivery", found.identity) if found.identity else ids.request_id
        answer = await self._ask(aggregates.EventReceived(request_id, path, WEBHOOK, event=found.event))
        execution_id = answer["execution_id"] if answer["status"] != "ignored" else None
        if execution_id is not None:
            await self._until_begun(execution_id, DELIVERY_BEGUN_S)
        return DeliveredDocument(number=answer["number"], status=answer["status"], execution_id=execution_id)


def webhook_address(path: str) -> str:
    """The address on a gateway to which events for a webhook are sent."""
    return f"{API}/hooks/{quote(path)}"


def _on(nats: aggregates.StreamFilter) -> dict[str, str]:
    from_ = "new" if nats.from_ms is None else iso(nats.from_ms) if nats.from_ms else "all"
    return {"stream": nats.stream, "subject": nats.subject, "from": from_, "format": nats.format}


def _stream(state: TriggerState) -> TriggerStreamDocument:
    reading = state.reading
    return document_from(
        TriggerStreamDocument,
        reading,
        consumer=state.consumer,
        sequence=reading.place.sequence if reading.place is not None else None,
        running=len(reading.running),
        trouble=reading.trouble or None,
        since=iso(reading.trouble_ms) if reading.trouble else None,
    )
