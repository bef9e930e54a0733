"""The changes of ``ctx``, key by key, with the values before and after; and the files and tables of an execution, with
the attempts that have read and written them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noetl_stream.engine.state import Execution
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import CtxPatched, TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.reading.states import AscendingStates
from noetl_stream.operations.executions.reading.step_runs import within_size
from noetl_stream.operations.paging import cursor_of
from noetl_stream.operations.views.index import ExecutionIndex
from noetl_stream.ports.operations.reading.views import DataUseDocument, KeyChangeDocument, KeyChangePage, LineagePage
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.store import Store, StoredEvent

MOST_REPLAYED: Final = 5_000
"""The approximate number of events replayed after a page's first change; a short page need not be the last."""

PAGE_BYTES: Final = 512 * 1024
"""The number of characters after which a page ends."""


async def change_page(store: Store, index: ExecutionIndex, key: str | None, limit: int, after: int) -> KeyChangePage:
    """The changes of a key, or of all, by position.

    Args:
        after: A number of :class:`~noetl_stream.operations.views.arrays.Changes`, the first of the page.
    """
    changes = index.changes
    numbers = range(after, len(changes.position))
    states = AscendingStates(store, index.execution_id, MOST_REPLAYED)
    found: list[KeyChangeDocument] = []
    size = 0
    before: Mapping[str, Any] = {}
    event: StoredEvent | None = None
    for number in numbers:
        name = changes.keys[changes.key[number]]
        if key not in (None, name):
            continue
        if len(found) == limit or size > PAGE_BYTES:
            return KeyChangePage(found, cursor_of(number))
        position = changes.position[number]
        if states.position != position:
            if not await states.reach(position - 1):
                if number != after and found:
                    return KeyChangePage(found, cursor_of(number))
                states = AscendingStates(store, index.execution_id, position)
                await states.reach(position - 1)
            before = {} if states.state is None else states.state.ctx
            event = await states.step()
        state = states.state
        if event is not None and state is not None and state.ctx_version == position:
            found.append(_change(index, changes.run[number], name, before, event, state))
            size += len(codec.encode(found[-1]))
    return KeyChangePage(found, None)


def _change(
    index: ExecutionIndex, run: int, key: str, before: Mapping[str, Any], event: StoredEvent, state: Execution
) -> KeyChangeDocument:
    fact = codec.decode_fact(event.data)
    patch = fact if isinstance(fact, CtxPatched) else None
    task = fact if isinstance(fact, TaskProcessed) else None
    return KeyChangeDocument(
        key=key,
        position=event.position,
        at=iso(event.at_ms),
        event=event.name,
        principal=patch.principal if patch else "",
        reason=patch.reason if patch else "",
        correlation_id=patch.correlation_id if patch else "",
        step=index.step_of(run) if run >= 0 else None,
        step_run_id=index.runs.ids[run] if run >= 0 else None,
        task=task.task if task else None,
        iteration=list(task.path) if task and task.path else None,
        had=key in before,
        before=within_size(before.get(key)),
        has=key in state.ctx,
        after=within_size(state.ctx.get(key)),
    )


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
