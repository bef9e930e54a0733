"""Triggers, directly on NATS and Postgres."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

import msgspec

from noetl_stream.errors import NotFound, Unreachable
from noetl_stream.model.aggregates import (
    TRIGGER,
    EventReceived,
    StreamFilter,
    TriggerDeleted,
    TriggerPaused,
    TriggerRegistered,
    TriggerResumed,
    TriggerTerms,
)
from noetl_stream.model.envelope import iso
from noetl_stream.model.ids import derive
from noetl_stream.model.json import codec
from noetl_stream.model.messages import WebhookQuestion
from noetl_stream.operations.starters.base import DirectStarters
from noetl_stream.playbook.trigger.notification import notify_playbook
from noetl_stream.ports.operations.documents import document_from
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.starters.triggers import (
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
from noetl_stream.ports.stores.catalog import CatalogEntry
from noetl_stream.protocol import subjects
from noetl_stream.trigger.signatures import WebhookDelivery

if TYPE_CHECKING:
    from noetl_stream.engine.aggregates.triggers import TriggerState
    from noetl_stream.playbook.trigger.trigger_document import TriggerDocument

VERIFIED_WITHIN_S: Final = 5.0

BEGUN_S: Final = 2.0
"""The wait of a delivery for its execution to begin: senders of webhooks do not wait long."""

WEBHOOK: Final = "webhook"
"""The sender of a webhook's delivery: only the server knows the real one."""


class DirectTriggers(DirectStarters[TriggerStateDocument, TriggerPage, TriggerEventDocument, TriggerEventPage]):
    """:class:`~noetl_stream.ports.operations.starters.triggers.Triggers`, where each method is described."""

    kind = TRIGGER
    pages, entry_pages = TriggerPage, TriggerEventPage
    pauses, resumes, deletes = TriggerPaused, TriggerResumed, TriggerDeleted

    async def register(self, entry: CatalogEntry, document: TriggerDocument, by: str) -> None:
        if document.notification is not None:
            text = notify_playbook(document.terms.playbook, document.name, document.notification)
            await self._register_playbook(text, document.terms.playbook, by)
        fact = TriggerRegistered(
            self._request_id(), entry.path, by, terms=document.terms, revision=entry.revision, digest=entry.digest
        )
        await self._ask(fact)

    @staticmethod
    def document(row: AggregateRow) -> TriggerStateDocument:
        from noetl_stream.engine.aggregates.triggers import TriggerState  # most commands start faster without it

        state: TriggerState = codec.decode_as(TriggerState, row.state)
        terms: TriggerTerms = state.terms
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
        fact = EventReceived(self._request_id(ids), path, by, reason, event=before.event or {}, resent=number)
        answer = await self._ask(fact)
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
        answer = await self._ask(EventReceived(request_id, path, WEBHOOK, event=found.event))
        execution_id = answer["execution_id"] if answer["status"] != "ignored" else None
        if execution_id is not None:
            await self._until_begun(execution_id, BEGUN_S)
        return DeliveredDocument(number=answer["number"], status=answer["status"], execution_id=execution_id)


def webhook_address(path: str) -> str:
    """The address on a gateway to which events for a webhook are sent."""
    return f"{API}/hooks/{quote(path)}"


def _on(nats: StreamFilter) -> dict[str, str]:
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
