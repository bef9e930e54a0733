"""Views of executions, directly on Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from noetl_stream.errors import NotFound
from noetl_stream.model.events import ChildRequested
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.operations.executions.reading.known import known_plan, known_row
from noetl_stream.operations.paging import page_of, page_size, read_cursor
from noetl_stream.operations.views.events import EventPages
from noetl_stream.ports.operations.reading.views import CallDocument, CallPage
from noetl_stream.ports.stores.store import Store
from noetl_stream.storage.used_secrets import UsedSecrets

if TYPE_CHECKING:
    from noetl_stream.operations.diff.executions import ExecutionDiffs
    from noetl_stream.operations.views.index import ExecutionIndex, ExecutionIndexes
    from noetl_stream.ports.operations.reading import timelines
    from noetl_stream.ports.operations.reading.diffs import ExecutionDiffDocument, RowChoice
    from noetl_stream.ports.operations.reading.events import EventFilter, EventPage
    from noetl_stream.ports.operations.reading.graphs import ExecutionGraphDocument
    from noetl_stream.ports.operations.reading.views import ExecutionStateDocument, KeyChangePage, LineagePage

_CALLED: Final = (ChildRequested.event_name(),)


async def call_page(store: Store, execution_id: str, limit: int, after: int) -> CallPage:
    """The executions that were called after this position, in order."""
    events = await store.events_named(execution_id, _CALLED, max(0, after), limit + 1)
    page, following = page_of(events, limit, lambda event: event.position)
    calls = [codec.decode_as(ChildRequested, event.data) for event in page]
    rows = await store.listed_executions({call.execution_id for call in calls})
    return CallPage(
        [
            CallDocument(
                execution_id=call.execution_id,
                path=call.call.path,
                status=row.status if (row := rows.get(call.execution_id)) is not None else None,
                step_run_id=call.step_run_id,
                iteration=list(call.path),
            )
            for call in calls
        ],
        following,
    )


Answer = TypeVar("Answer")

READ_FOR_COUNTS: Final = 2_000
"""The journal length above which a state counts the step runs only if the journal was read before."""


class DirectViews:
    """:class:`~noetl_stream.ports.operations.reading.views.Views`, where each method is described.

    Each verb imports its needs on its first call: lists of events need neither engine nor index.

    Args:
        secrets: Hides the values that an execution was given, before its events are searched and its values cut.
    """

    def __init__(
        self,
        store: Store,
        checking: PlaybookChecker,
        secrets: UsedSecrets,
        indexes: Callable[[], ExecutionIndexes] | None = None,
    ) -> None:
        self._store = store
        self._secrets = secrets
        self._pages = EventPages(store, secrets)
        self._checking = checking
        self._given_indexes = indexes
        self._diffs: ExecutionDiffs | None = None

    @cached_property
    def _indexes(self) -> ExecutionIndexes:
        from noetl_stream.operations.views.index import ExecutionIndexes

        return ExecutionIndexes(self._store) if self._given_indexes is None else self._given_indexes()

    async def state(self, execution_id: str, position: int | None) -> ExecutionStateDocument:
        from noetl_stream.operations.executions.reading.states import state_at
        from noetl_stream.operations.views.state import state_document, statuses_of

        row = await known_row(self._store, execution_id)
        wanted = row.position if position is None else position
        if not 1 <= wanted <= row.position:
            hint = f"its journal ends at {row.position}"
            raise NotFound(f"execution {execution_id} has no position {wanted}", hint=hint)
        state = await state_at(self._store, execution_id, wanted)
        if state is None:
            raise NotFound(f"execution {execution_id} is being deleted")
        index = await self._indexes.known(execution_id, wanted, READ_FOR_COUNTS)
        counts = None if index is None else index.counts_at(wanted, statuses_of(state))
        return state_document(state, await known_plan(self._store, self._checking, row), row.position, counts)

    async def graph(self, execution_id: str, so_far: bool = False) -> ExecutionGraphDocument:
        from noetl_stream.operations.executions.reading.states import state_at
        from noetl_stream.operations.views.state import execution_graph

        row = await known_row(self._store, execution_id)
        playbook = await self._store.playbook(row.digest)
        if playbook is None:
            raise NotFound(f"execution {execution_id} has no playbook yet")
        plan = await self._checking.plan(playbook.source, row.path)
        index = await self._index(execution_id, so_far)
        state = await state_at(self._store, execution_id, max(index.position, row.position))
        if state is None:
            raise NotFound(f"execution {execution_id} is being deleted")
        async with index.lock:
            return await execution_graph(self._store, index, state, plan)

    async def timeline(
        self, execution_id: str, wanted: timelines.TimeRange, so_far: bool = False
    ) -> timelines.TimelineDocument:
        from noetl_stream.operations.views.timeline import timeline

        return await self._answered(execution_id, lambda index: timeline(index, wanted), so_far)

    async def strip(
        self, execution_id: str, step_run_id: str, chosen: timelines.IterationRange, buckets: int
    ) -> timelines.LoopStripDocument:
        from noetl_stream.operations.views.timeline import strip

        return await self._answered(execution_id, lambda index: strip(index, step_run_id, chosen, buckets))

    async def iterations(
        self, execution_id: str, step_run_id: str, chosen: timelines.IterationRange, limit: int
    ) -> timelines.IterationSummariesDocument:
        from noetl_stream.operations.views.timeline import iterations

        size = page_size(limit)
        return await self._answered(execution_id, lambda index: iterations(index, step_run_id, chosen, size))

    async def _index(self, execution_id: str, so_far: bool) -> ExecutionIndex:
        return await (self._indexes.so_far if so_far else self._indexes.of)(execution_id)

    async def _answered(
        self, execution_id: str, answer: Callable[[ExecutionIndex], Answer], so_far: bool = False
    ) -> Answer:
        """An answer from the index, in another thread: that of a long journal takes a while."""
        await known_row(self._store, execution_id)
        index = await self._index(execution_id, so_far)
        async with index.lock:
            return await asyncio.to_thread(answer, index)

    async def changes(self, execution_id: str, key: str | None, limit: int, cursor: str | None) -> KeyChangePage:
        from noetl_stream.operations.views.changes import change_page

        await known_row(self._store, execution_id)
        index = await self._indexes.of(execution_id)
        after = max(0, read_cursor(cursor, int) or 0)
        return await change_page(self._store, index, key, page_size(limit), after)

    async def lineage(self, execution_id: str, limit: int, cursor: str | None) -> LineagePage:
        from noetl_stream.operations.views.changes import lineage_page

        await known_row(self._store, execution_id)
        index = await self._indexes.of(execution_id)
        return await lineage_page(self._store, index, page_size(limit), read_cursor(cursor, int) or 0)

    async def calls(self, execution_id: str, limit: int, cursor: str | None) -> CallPage:
        await known_row(self._store, execution_id)
        return await call_page(self._store, execution_id, page_size(limit), read_cursor(cursor, int) or 0)

    async def events(self, execution_id: str, chosen: EventFilter, limit: int) -> EventPage:
        row = await known_row(self._store, execution_id)
        index = await self._indexes.of(execution_id) if chosen.names_steps else None
        return await self._pages.page(row, chosen, page_size(limit), index)

    async def diff(
        self, execution_id: str, other: str, rows: RowChoice, limit: int, cursor: str | None
    ) -> ExecutionDiffDocument:
        if self._diffs is None:
            from noetl_stream.operations.diff.executions import ExecutionDiffs

            self._diffs = ExecutionDiffs(self._store, self._checking, self._secrets)
        return await self._diffs.document(execution_id, other, rows, limit, cursor)
