"""All verbs over one connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl

from noetl_stream.adapters.gateway_client.connection import GatewayConnection, GatewayRequest
from noetl_stream.adapters.gateway_client.executions import GatewayExecutions
from noetl_stream.adapters.gateway_client.feed import GatewayFeed
from noetl_stream.adapters.gateway_client.selections import GatewaySelections
from noetl_stream.adapters.gateway_client.verbs import GatewayVerbs, reason_headers
from noetl_stream.errors import OutcomeUnknown
from noetl_stream.model.aggregates import Overlap
from noetl_stream.model.envelope import iso, iso_or_none
from noetl_stream.model.events import Path
from noetl_stream.ports.operations import OperationParts, Operations
from noetl_stream.ports.operations.access import Access, NewApiTokenDocument, NewToken
from noetl_stream.ports.operations.cluster import Cluster
from noetl_stream.ports.operations.credentials import CredentialStore
from noetl_stream.ports.operations.diagnosis import Diagnosis
from noetl_stream.ports.operations.events import EventFilter, EventPage
from noetl_stream.ports.operations.executions import Executions, RequestIds
from noetl_stream.ports.operations.playbooks import (
    CheckedDocument,
    PlaybookDiffDocument,
    PlaybookPage,
    Playbooks,
    RegisteredDocument,
)
from noetl_stream.ports.operations.schedules import (
    BackfilledDocument,
    OccurrencePage,
    OccurrenceStatus,
    SchedulePage,
    Schedules,
    UpcomingDocument,
    UpcomingOccurrencesDocument,
)
from noetl_stream.ports.operations.statistics import PlaybookStatisticsDocument
from noetl_stream.ports.operations.timelines import (
    IterationRange,
    IterationSummariesDocument,
    LoopStripDocument,
    TimelineDocument,
    TimeRange,
)
from noetl_stream.ports.operations.triggers import DeliveredDocument, Triggers
from noetl_stream.ports.operations.views import Views
from noetl_stream.trigger.signatures import WebhookDelivery

Answer = TypeVar("Answer")

YAML: Final = "application/yaml"


def gateway_operations(connection: GatewayConnection) -> Operations:
    return OperationParts(
        executions=cast(Executions, GatewayExecutions(connection)),
        feed=GatewayFeed(connection),
        playbooks=cast(Playbooks, GatewayPlaybooks(connection)),
        credentials=cast(CredentialStore, GatewayCredentials(connection)),
        cluster=cast(Cluster, GatewayCluster(connection)),
        access=cast(Access, GatewayAccess(connection)),
        diagnosis=cast(Diagnosis, GatewayDiagnosis(connection)),
        views=cast(Views, GatewayViews(connection)),
        selections=GatewaySelections(connection),
        schedules=cast(Schedules, GatewaySchedules(connection)),
        triggers=cast(Triggers, GatewayTriggers(connection)),
    )


class GatewaySchedules(GatewayVerbs, port=Schedules):
    """:class:`~noetl_stream.ports.operations.schedules.Schedules`."""

    async def page(self, prefix: str, limit: int, cursor: str | None) -> SchedulePage:
        query = [("prefix", prefix)]
        return await self._connection.page(SchedulePage, "schedules", limit=limit, cursor=cursor, query=query)

    async def upcoming(self, path: str, count: int = 10, after_ms: int | None = None) -> list[UpcomingDocument]:
        query = _given({"count": count, "after": iso_or_none(after_ms)})
        at = ("schedules", path, "upcoming")
        return (await self._connection.get(UpcomingOccurrencesDocument, *at, query=query)).items

    async def history(
        self, path: str, limit: int, cursor: str | None, status: OccurrenceStatus | None = None
    ) -> OccurrencePage:
        query, at = _given({"status": status}), ("schedules", path, "history")
        return await self._connection.page(OccurrencePage, *at, limit=limit, cursor=cursor, query=query)

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
        body = {"from": iso(from_ms), "before": iso(before_ms), "overlap": overlap}
        key, headers = ids.request_id if ids is not None else None, reason_headers(reason)
        at = ("schedules", path, "backfill")
        return await self._connection.post(BackfilledDocument, *at, body=body, key=key, headers=headers)


class GatewayViews(GatewayVerbs, port=Views):
    """:class:`~noetl_stream.ports.operations.views.Views`."""

    async def timeline(self, execution_id: str, wanted: TimeRange, so_far: bool = False) -> TimelineDocument:
        times = {"since": iso_or_none(wanted.since_ms), "until": iso_or_none(wanted.until_ms)}
        query = _given({**times, "width": wanted.width, "step": wanted.step, "so_far": so_far})
        return await self._connection.get(TimelineDocument, "executions", execution_id, "timeline", query=query)

    async def strip(
        self, execution_id: str, step_run_id: str, chosen: IterationRange, buckets: int
    ) -> LoopStripDocument:
        query = _given({"first": chosen.first, "end": chosen.end, "within": _place(chosen.within), "buckets": buckets})
        at = ("executions", execution_id, "steps", step_run_id, "strip")
        return await self._connection.get(LoopStripDocument, *at, query=query)

    async def iterations(
        self, execution_id: str, step_run_id: str, chosen: IterationRange, limit: int
    ) -> IterationSummariesDocument:
        query = _given({**chosen._asdict(), "within": _place(chosen.within), "limit": limit})
        at = ("executions", execution_id, "steps", step_run_id, "iterations", "summaries")
        return await self._connection.get(IterationSummariesDocument, *at, query=query)

    async def events(self, execution_id: str, chosen: EventFilter, limit: int) -> EventPage:
        one: dict[str, Any] = {"after": chosen.after, "before": chosen.before, "step": chosen.step, "task": chosen.task}
        query = _given({**one, "iteration": _place(chosen.iteration), "text": chosen.text, "limit": limit})
        query += [("name", name) for name in chosen.names] + [("field", field) for field in chosen.fields]
        return await self._connection.get(EventPage, "executions", execution_id, "events", query=query)


def _given(query: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in query.items() if value is not None]


def _place(path: Path | None) -> str | None:
    return ".".join(map(str, path)) if path else None


class GatewayCluster(GatewayVerbs, port=Cluster):
    """:class:`~noetl_stream.ports.operations.cluster.Cluster`."""


class GatewayDiagnosis(GatewayVerbs, port=Diagnosis):
    """:class:`~noetl_stream.ports.operations.diagnosis.Diagnosis`."""


class GatewayCredentials(GatewayVerbs, port=CredentialStore):
    """:class:`~noetl_stream.ports.operations.credentials.CredentialStore`."""


class GatewayPlaybooks(GatewayVerbs, port=Playbooks):
    """:class:`~noetl_stream.ports.operations.playbooks.Playbooks`."""

    async def check(
        self, source: bytes, name: str, paths: Sequence[str] = (), *, graph: bool = False
    ) -> CheckedDocument:
        given = "true" if graph else None
        return await self._send(CheckedDocument, source, name, "playbooks", "check", graph=given)

    async def register(self, source: bytes, name: str, by: str) -> RegisteredDocument:
        return await self._send(RegisteredDocument, source, name, "playbooks")

    async def page(
        self, prefix: str, labels: Mapping[str, str], limit: int, cursor: str | None, *, words: str = ""
    ) -> PlaybookPage:
        named = [("label", f"{name}={value}") for name, value in labels.items()]
        query = [("prefix", prefix), *named, *([("words", words)] if words else [])]
        return await self._connection.page(PlaybookPage, "playbooks", limit=limit, cursor=cursor, query=query)

    async def diff_text(self, path: str, before: str | None, source: bytes, name: str) -> PlaybookDiffDocument:
        return await self._send(PlaybookDiffDocument, source, name, "playbooks", path, "diff", before=before)

    async def statistics(self, path: str, since_ms: int | None = None) -> PlaybookStatisticsDocument:
        query = _given({"since": iso_or_none(since_ms)})
        return await self._connection.get(PlaybookStatisticsDocument, "playbooks", path, "statistics", query=query)

    async def _send(self, kind: type[Answer], source: bytes, name: str, *parts: str, **query: str | None) -> Answer:
        key, given = self._connection.new_key(), _given({"name": name, **query})
        return await self._connection.ask(GatewayRequest("POST", parts, given, source, YAML, key=key), kind)


class GatewayTriggers(GatewayVerbs, port=Triggers):
    """:class:`~noetl_stream.ports.operations.triggers.Triggers`."""

    async def deliver(self, path: str, delivery: WebhookDelivery, ids: RequestIds) -> DeliveredDocument:
        """Not repeated: only its sender knows whether it may be."""
        media = delivery.headers.get("content-type", "application/octet-stream")
        headers = {name: text for name, text in delivery.headers.items() if name != "content-type"}
        asked = GatewayRequest(
            "POST", ("hooks", path), parse_qsl(delivery.query), delivery.body, media, headers=headers
        )
        return await self._connection.ask(asked, DeliveredDocument)


class GatewayAccess(GatewayVerbs, port=Access):
    """:class:`~noetl_stream.ports.operations.access.Access`."""

    async def create_token(self, new: NewToken, by: str, seed: bytes = b"") -> NewApiTokenDocument:
        """Raises, beside the port's: OutcomeUnknown: it was created, and its secret was lost with the connection."""
        expires = None if new.expires_ms is None else iso(new.expires_ms)
        body = {"name": new.name, "role": new.role, "paths": list(new.paths), "expires": expires}
        made = await self._connection.post(NewApiTokenDocument, "tokens", body=body)
        if not made.secret:
            hint = f"revoke it, and create another: `noetl-stream token revoke {made.id}`"
            raise OutcomeUnknown(f"token {new.name} was created, but its secret was lost on the way", hint=hint)
        return made
