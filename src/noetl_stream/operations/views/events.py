"""Pages of chosen events, searched in the form that is shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from noetl_stream.concurrency import MANY_BYTES
from noetl_stream.model.envelope import EventDocument
from noetl_stream.model.ids import step_run_of
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.reading.documents import RunWorkers, event_documents, size_of
from noetl_stream.ports.operations.reading.events import EVENT_FIELDS, EventFilter, EventPage, ListedEventDocument
from noetl_stream.ports.stores.store import ExecutionRow, Store, StoredEvent
from noetl_stream.storage.journal import FIRST_READ, next_count
from noetl_stream.storage.used_secrets import UsedSecrets, hidden

if TYPE_CHECKING:  # most lists need no index
    from noetl_stream.operations.views.index import ExecutionIndex

SEARCHED: Final = 10_000
"""The events that are searched for one page. A page may be short, or empty, without being the last."""

PAGE_BYTES: Final = 1024 * 1024
"""The number of bytes after which a page ends."""


class EventPages:
    """
    Args:
        secrets: Hides the values that an execution was given: events are searched in the form that is shown.
    """

    def __init__(self, store: Store, secrets: UsedSecrets) -> None:
        self._store = store
        self._secrets = secrets
        self._workers = RunWorkers(store)

    async def page(self, row: ExecutionRow, chosen: EventFilter, limit: int, index: ExecutionIndex | None) -> EventPage:
        """
        Args:
            index: Needed for a filter by step, and to name steps.
        """
        if chosen.before is not None:
            chosen = replace(chosen, before=min(chosen.before, row.position + 1))
        backwards = chosen.before is not None and not chosen.after
        redactor = (await self._secrets.redactors((row.execution_id,))).get(row.execution_id)
        fields = tuple(chosen.fields) or EVENT_FIELDS
        found: list[ListedEventDocument] = []
        size = searched = 0
        async for piece in self._pieces(row.execution_id, chosen, limit, backwards):
            workers = await self._workers.names(row.execution_id, piece) if "actor" in fields else {}
            events = piece[::-1] if backwards else piece
            documents = await event_documents(row, events, workers)
            if redactor is not None:
                documents = await asyncio.to_thread(hidden, redactor, documents)
            passed = 0
            for event, stored in zip(documents, events, strict=True):
                passed += len(stored.data)
                if passed > MANY_BYTES:
                    passed = 0
                    await asyncio.sleep(0)  # a turn for other tasks: the searched or listed events are encoded
                if chosen.before is not None and event.position >= chosen.before:
                    return _page(found, backwards, None)
                searched += 1
                if _is_chosen(event, chosen, index):
                    listed = _listed(event, fields, index)
                    found.append(listed)
                    size += len(codec.encode(listed))
                if len(found) == limit or searched == SEARCHED or size > PAGE_BYTES:
                    return _page(found, backwards, event.position)
        return _page(found, backwards, None)

    async def _pieces(
        self, execution_id: str, chosen: EventFilter, limit: int, backwards: bool
    ) -> AsyncIterator[Sequence[StoredEvent]]:
        """The events that may be chosen, in pieces; each piece by position."""
        after, before, most = chosen.after, chosen.before or 0, FIRST_READ
        while backwards and before > 1:
            first = max(0, before - 1 - min(most, limit))
            piece = await self._store.journal(execution_id, first, before - 1 - first)
            if not piece:  # it was deleted meanwhile
                return
            yield piece
            most, before = next_count(len(piece), size_of(piece)), first + 1
        while not backwards:
            size = min(most, limit) if chosen == EventFilter(chosen.after, fields=chosen.fields) else most
            if chosen.names:
                piece = await self._store.events_named(execution_id, chosen.names, after, size)
            else:
                piece = await self._store.journal(execution_id, after, size)
            if piece:
                yield piece
            if len(piece) < size:
                return
            most, after = next_count(len(piece), size_of(piece)), piece[-1].position


def _page(found: list[ListedEventDocument], backwards: bool, last: int | None) -> EventPage:
    """
    Args:
        last: The event that was searched last, if more may follow.
    """
    if backwards:
        return EventPage(found[::-1], None, None if last is None or last <= 1 else last)
    return EventPage(found, last)


def _listed(event: EventDocument, fields: Collection[str], index: ExecutionIndex | None) -> ListedEventDocument:
    shown = {name: getattr(event, name) for name in fields if name != "step"}
    if index is not None and "step" in fields:
        shown["step"] = _step_of(event, index)
    return ListedEventDocument(**shown)


def _is_chosen(event: EventDocument, chosen: EventFilter, index: ExecutionIndex | None) -> bool:
    within = chosen.iteration
    return (
        (not chosen.names or event.name in chosen.names)
        and chosen.task in (None, event.task)
        and (within is None or tuple((event.iteration or ())[: len(within)]) == within)
        and (chosen.step is None or (index is not None and _step_of(event, index) == chosen.step))
        and (chosen.text is None or chosen.text.casefold() in codec.encode(event.data).decode().casefold())
    )


def _step_of(event: EventDocument, index: ExecutionIndex) -> str | None:
    token, token_id = event.data.get("token"), event.data.get("token_id")
    if isinstance(token, dict):
        return str(token["step"])
    if token_id in index.tokens:
        return index.tokens[token_id]
    named = event.step_run_id or (token_id and step_run_of(event.execution_id, token_id))
    run = index.by_id.get(named or "")
    return event.data.get("step") if run is None else index.step_of(run)
