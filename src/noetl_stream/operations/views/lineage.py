"""The files and tables of an execution, with the attempts that have read and written them."""

from __future__ import annotations

from noetl_stream.model.events import TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.operations.paging import cursor_of
from noetl_stream.operations.views.index import ExecutionIndex
from noetl_stream.ports.operations.reading.views import DataUseDocument, LineagePage
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.store import Store, StoredEvent


async def lineage_page(store: Store, index: ExecutionIndex, limit: int, after: int) -> LineagePage:
    """The attempts that have read or written files and tables, by position.

    Args:
        after: The number of attempts before the page.
    """
    first = max(0, after)
    uses = index.data_uses[first : first + limit]
    found = [await store.journal(index.execution_id, position - 1, 1) for position, _ in uses]
    page = [_use(index, run, events[0]) for (_, run), events in zip(uses, found, strict=True) if events]
    is_last = first + limit >= len(index.data_uses)
    return LineagePage(page, None if is_last else cursor_of(first + limit))


def _use(index: ExecutionIndex, run: int, event: StoredEvent) -> DataUseDocument:
    fact = codec.decode_as(TaskProcessed, event.data)
    run_id, iteration = index.runs.ids[run], list(fact.path)
    rows = (event, fact, fact.outcome)
    return document_from(DataUseDocument, *rows, step=index.step_of(run), step_run_id=run_id, iteration=iteration)
