"""The common part of schedules and triggers, directly on NATS and Postgres."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from noetl_stream.errors import Conflict, Forbidden, NoetlError, NotFound, UsageError
from noetl_stream.model.aggregates import (
    RequestedFact,
    ScheduleDeleted,
    SchedulePaused,
    ScheduleResumed,
    TriggerDeleted,
    TriggerPaused,
    TriggerResumed,
    aggregate_id,
)
from noetl_stream.model.ids import uuid7
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.operations.executions.submit import RequestRefused, Requests, Unanswered, ask_aggregate, patience
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.operations.playbooks import entry_of
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.documents import DocumentPage
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.stores.aggregates import AggregateRow, HistoryRow
from noetl_stream.ports.stores.catalog import Catalog, CatalogEntry, KindTaken
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.bus import Bus

if TYPE_CHECKING:
    from noetl_stream.playbook.compile.compiler import CheckResult

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
    pauses: type[SchedulePaused | TriggerPaused]
    resumes: type[ScheduleResumed | TriggerResumed]
    deletes: type[ScheduleDeleted | TriggerDeleted]

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
        return await self.get(path)

    async def resume(self, path: str, by: str, reason: str = "", ids: RequestIds | None = None) -> State:
        await self._ask(self.resumes(self._request_id(ids), path, by, reason))
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

    async def _ask(self, fact: RequestedFact) -> dict[str, Any]:
        waiting = self._unanswered or patience(self._clock, f"{self.kind.lower()} {fact.key}")
        try:
            return await ask_aggregate(self._requests, self._bus, self._clock, "starter", fact, waiting)
        except RequestRefused as refused:
            raise _ERRORS.get(refused.code, UsageError)(refused.message) from None

    async def _row(self, path: str) -> AggregateRow:
        id, noun = aggregate_id("starter", path), self.kind.lower()
        row = (await self._store.aggregates([id])).get(id)
        if row is None or row.kind != self.kind:
            hint = f"`noetl-stream {noun} list` shows those that are"
            raise NotFound(f"no {noun} is registered at {path}", hint=hint)
        return row

    async def _history_row(self, path: str, number: int) -> HistoryRow:
        """An entry of its history."""
        found = await self._store.aggregate_history(aggregate_id("starter", path), 1, number + 1)
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
