"""Triggers, directly on NATS and Postgres."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

import msgspec

from noetl_stream.errors import Conflict, Forbidden, NoetlError, NotFound, Unreachable, UsageError
from noetl_stream.model.aggregates import (
    TRIGGER,
    EventReceived,
    RequestedFact,
    StreamFilter,
    TriggerDeleted,
    TriggerPaused,
    TriggerRegistered,
    TriggerResumed,
    TriggerTerms,
    aggregate_id,
)
from noetl_stream.model.envelope import iso
from noetl_stream.model.ids import derive, uuid7
from noetl_stream.model.json import codec
from noetl_stream.model.messages import WebhookQuestion
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.operations.executions.submit import RequestRefused, Requests, ask_aggregate
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.operations.playbooks import entry_of
from noetl_stream.operations.recording import OnRecord, unrecorded
from noetl_stream.playbook.trigger.notification import notify_playbook
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.triggers import (
    DeliveredDocument,
    EventStatus,
    TriggerEventDocument,
    TriggerEventPage,
    TriggerFaultsDocument,
    TriggerPage,
    TriggerStateDocument,
    TriggerStreamDocument,
)
from noetl_stream.ports.operations.verbs import API
from noetl_stream.ports.stores.aggregates import AggregateRow, HistoryRow
from noetl_stream.ports.stores.catalog import Catalog, CatalogEntry, KindTaken
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.bus import Bus
from noetl_stream.protocol import subjects
from noetl_stream.trigger.signatures import WebhookDelivery

if TYPE_CHECKING:
    from noetl_stream.engine.aggregates.triggers import TriggerState
    from noetl_stream.playbook.trigger.notification import Notification
    from noetl_stream.playbook.trigger.trigger_document import TriggerDocument

PATIENCE_S: Final = 30.0
"""How long a request may stay unanswered before it fails."""

VERIFIED_WITHIN_S: Final = 5.0
THERE_WITHIN_S: Final = 2.0
LOOKED_FOR_EVERY_S: Final = 0.005
"""At first, and half as often each time."""

WEBHOOK: Final = "webhook"
"""The sender of what a webhook received: only the server knows the real one."""

_ERRORS: Final[dict[str, type[NoetlError]]] = {
    "unknown_aggregate": NotFound,
    "forbidden": Forbidden,
    "other_kind": Conflict,
    "older_servers": Conflict,
    "under_way": Conflict,
}
"""By :data:`~noetl_stream.model.status.RejectionCode`; any other code is a UsageError."""


class TriggerPorts(msgspec.Struct, frozen=True):
    requests: Requests
    bus: Bus
    store: Store
    catalog: Catalog
    clock: Clock


class DirectTriggers:
    """:class:`~noetl_stream.ports.operations.triggers.Triggers`, where each method is described.

    Args:
        unanswered: Called whenever no server has answered a request. Without it, an unanswered request fails after
            :data:`PATIENCE_S`; it is stored then, and the next server takes it.
        recorded: Records each change in the audit.
    """

    def __init__(
        self,
        ports: TriggerPorts,
        checking: PlaybookChecker,
        unanswered: Callable[[], Awaitable[None]] | None = None,
        recorded: OnRecord = unrecorded,
    ) -> None:
        self._ports = ports
        self._store = ports.store
        self._checking = checking
        self._unanswered = unanswered
        self._recorded = recorded

    async def register(self, entry: CatalogEntry, document: TriggerDocument, by: str) -> None:
        """Makes the trigger at the path of ``entry`` what its document says.

        Raises:
            UsageError: the playbook or its version is not registered.
            Forbidden: ``by`` may not start it.
            Conflict: a server of an older version runs.
        """
        if document.notification is not None:
            await self._register_notifying(document, document.notification, by)
        fact = TriggerRegistered(
            self._new_id(), entry.path, by, terms=document.terms, revision=entry.revision, digest=entry.digest
        )
        await self._ask(fact)

    async def _register_notifying(self, document: TriggerDocument, sent: Notification, by: str) -> None:
        """Registers the playbook that sends what the trigger says."""
        text = notify_playbook(document.terms.playbook, document.name, sent)
        plan = await self._checking.plan(text, document.terms.playbook)
        entry = entry_of(text, plan, registered_ms=self._ports.clock.now_ms(), registered_by=by)
        try:
            await self._ports.catalog.register(entry, text)
        except KindTaken as error:
            raise Conflict(error.message, hint=error.hint) from None

    async def page(self, prefix: str, limit: int, cursor: str | None) -> TriggerPage:
        size, after = page_size(limit), read_cursor(cursor, str)
        found = await self._store.list_aggregates(TRIGGER, prefix, size + 1, after)
        rows, following = page_of(found, size, lambda row: row.key)
        return TriggerPage([_document(row) for row in rows], following)

    async def get(self, path: str) -> TriggerStateDocument:
        return _document(await self._row(path))

    async def pause(self, path: str, by: str, reason: str = "") -> TriggerStateDocument:
        async with self._recorded("pauseTrigger", path, by, reason):
            await self._ask(TriggerPaused(self._new_id(), path, by, reason))
        return await self.get(path)

    async def resume(self, path: str, by: str, reason: str = "") -> TriggerStateDocument:
        async with self._recorded("resumeTrigger", path, by, reason):
            await self._ask(TriggerResumed(self._new_id(), path, by, reason))
        return await self.get(path)

    async def history(self, path: str, status: EventStatus | None, limit: int, cursor: str | None) -> TriggerEventPage:
        row, size = await self._row(path), page_size(limit)
        statuses = [] if status is None else [status]
        found = await self._store.aggregate_history(row.id, size + 1, read_cursor(cursor, int), statuses)
        rows, following = page_of(found, size, lambda one: one.number)
        return TriggerEventPage([_event(one) for one in rows], following)

    async def event(self, path: str, number: int) -> TriggerEventDocument:
        row = await self._row(path)
        found = await self._store.aggregate_history(row.id, 1, number + 1)
        if not found or found[0].number != number:
            raise NotFound(f"trigger {path} has no event {number}, or no longer")
        return _event(found[0], whole=True)

    async def resend(self, path: str, number: int, by: str, reason: str = "") -> TriggerEventDocument:
        before = await self.event(path, number)
        async with self._recorded("resendTriggerEvent", path, by, reason):
            fact = EventReceived(self._new_id(), path, by, reason, event=before.event or {}, resent=number)
            answer = await self._ask(fact)
        return await self.event(path, answer["number"])

    async def delete(self, path: str, by: str, reason: str = "") -> None:
        async with self._recorded("deleteTrigger", path, by, reason):
            await self._row(path)
            await self._ask(TriggerDeleted(self._new_id(), path, by, reason))
            await self._ports.catalog.delete(path, None)

    async def deliver(self, path: str, delivery: WebhookDelivery, ids: RequestIds) -> DeliveredDocument:
        question = WebhookQuestion(path, delivery.method, dict(delivery.headers), delivery.query, delivery.body)
        reply = await self._ports.bus.ask(subjects.ASK_WEBHOOK, codec.encode(question), VERIFIED_WITHIN_S)
        if reply is None or reply == b"null":
            raise Unreachable("no server can verify the delivery now", hint="send it again")
        found = codec.decode_webhook_answer(reply)
        if not found.is_verified:
            raise NotFound("no webhook takes this delivery")
        if found.challenge is not None:
            return DeliveredDocument(challenge=found.challenge)
        request_id = derive(path, "delivery", found.identity) if found.identity else ids.request_id
        answer = await self._ask(EventReceived(request_id, path, WEBHOOK, event=found.event))
        execution_id = answer["execution_id"] if answer["status"] != "ignored" else None
        if execution_id is not None:
            await self._until_there(execution_id)
        return DeliveredDocument(number=answer["number"], status=answer["status"], execution_id=execution_id)

    async def _until_there(self, execution_id: str) -> None:
        """Waits until an execution that was started is there to be asked for: its partition has to hear of it first."""
        clock = self._ports.clock
        until_s, pause_s = clock.monotonic_s() + THERE_WITHIN_S, LOOKED_FOR_EVERY_S
        while await self._store.execution(execution_id) is None and clock.monotonic_s() < until_s:
            await clock.sleep(pause_s)
            pause_s *= 2

    async def _ask(self, fact: RequestedFact) -> dict[str, Any]:
        ports = self._ports
        try:
            return await ask_aggregate(ports.requests, ports.bus, ports.clock, "starter", fact, self._patience())
        except RequestRefused as refused:
            raise _ERRORS.get(refused.code, UsageError)(refused.message) from None

    async def _row(self, path: str) -> AggregateRow:
        id = aggregate_id("starter", path)
        row = (await self._store.aggregates({id})).get(id)
        if row is None or row.kind != TRIGGER:
            raise NotFound(f"there is no trigger at {path}", hint="`noetl-stream trigger list` shows those there are")
        return row

    def _new_id(self) -> str:
        return uuid7(self._ports.clock.now_ms(), self._ports.clock.random_bytes(10))

    def _patience(self) -> Callable[[], Awaitable[None]]:
        if self._unanswered is not None:
            return self._unanswered
        clock = self._ports.clock
        until_s = clock.monotonic_s() + PATIENCE_S

        async def wait_on() -> None:
            if clock.monotonic_s() >= until_s:
                text = f"no server answered within {PATIENCE_S:g} s"
                raise Unreachable(text, hint="start a server: it will process this request")

        return wait_on


def webhook_address(path: str) -> str:
    """Where events for a webhook are sent, on a gateway."""
    return f"{API}/hooks/{quote(path)}"


def _document(row: AggregateRow) -> TriggerStateDocument:
    from noetl_stream.engine.aggregates.triggers import TriggerState  # most commands start faster without it

    state: TriggerState = codec.decode_as(TriggerState, row.state)
    terms: TriggerTerms = state.terms
    return TriggerStateDocument(
        path=state.path,
        source=terms.source,
        on={
            terms.source: msgspec.to_builtins(terms.webhook or terms.execution)
            if terms.nats is None
            else _on(terms.nats)
        },
        address=webhook_address(state.path) if terms.webhook is not None else None,
        playbook=terms.playbook,
        version=terms.version,
        when=terms.when,
        workload=dict(terms.workload),
        key=terms.key,
        revision=state.revision,
        digest=state.digest,
        registered=iso(state.registered_ms),
        registered_by=state.by,
        paused=state.paused or None,
        events=state.number,
        faults=_faults(state),
        stream=_stream(state) if terms.nats is not None else None,
    )


def _faults(state: TriggerState) -> TriggerFaultsDocument | None:
    found = state.faults
    if not found.count:
        return None
    return TriggerFaultsDocument(count=found.count, number=found.number, at=iso(found.at_ms), reason=found.reason)


def _on(nats: StreamFilter) -> dict[str, str]:
    from_ = "new" if nats.from_ms is None else iso(nats.from_ms) if nats.from_ms else "all"
    return {"stream": nats.stream, "subject": nats.subject, "from": from_, "format": nats.format}


def _stream(state: TriggerState) -> TriggerStreamDocument:
    reading = state.reading
    return TriggerStreamDocument(
        consumer=state.consumer,
        sequence=reading.place.sequence if reading.place is not None else None,
        pending=reading.pending,
        running=len(reading.running),
        trouble=reading.trouble or None,
        since=iso(reading.trouble_ms) if reading.trouble else None,
    )


def _event(row: HistoryRow, *, whole: bool = False) -> TriggerEventDocument:
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
