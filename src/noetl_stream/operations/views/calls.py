"""The executions that an execution has called, with their statuses."""

from __future__ import annotations

from typing import Final

from noetl_stream.model.events import ChildRequested
from noetl_stream.model.json import codec
from noetl_stream.operations.paging import page_of
from noetl_stream.ports.operations.reading.views import CallDocument, CallPage
from noetl_stream.ports.stores.store import Store

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
