"""The archiving of ended executions in the form that operations show: hidden values stay hidden."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from noetl_stream.errors import NotFound
from noetl_stream.ports.operations.executions import ExecutionDocument, Executions, ListedExecutionDocument
from noetl_stream.ports.operations.verbs import document_from
from noetl_stream.ports.stores.retention import ArchiveBatch, ArchiveFiles

EVENTS_AT_ONCE: Final = 1_000


class ExecutionArchiver:
    """:class:`~noetl_stream.ports.stores.retention.Archiver`; the port documents the method.

    Args:
        month_of: The month of an execution, by its id: a batch is of one.
    """

    def __init__(self, executions: Executions, files: ArchiveFiles, month_of: Callable[[str], str]) -> None:
        self._executions = executions
        self._files = files
        self._month_of = month_of

    async def keep(self, execution_ids: Sequence[str]) -> set[str]:
        by_month = defaultdict(list)
        for execution_id in execution_ids:
            by_month[self._month_of(execution_id)].append(execution_id)
        kept: set[str] = set()
        for ids in by_month.values():
            kept |= await self._keep(ids)
        return kept

    async def _keep(self, execution_ids: Sequence[str]) -> set[str]:
        held = await asyncio.to_thread(self._files.positions, execution_ids)
        batch, kept = self._files.begin(), set()
        try:
            for execution_id in execution_ids:
                try:
                    document = await self._executions.get(execution_id)
                    if held.get(execution_id) != document.position:
                        await self._add(batch, document)
                except NotFound:  # deleted meanwhile
                    continue
                kept.add(execution_id)
            await asyncio.to_thread(batch.finish)
        except BaseException:
            batch.abandon()
            raise
        return kept

    async def _add(self, batch: ArchiveBatch, document: ExecutionDocument) -> None:
        execution_id, after = document.execution_id, 0
        result = await self._executions.result(execution_id)
        while events := await self._executions.events(execution_id, after, EVENTS_AT_ONCE):
            batch.add_events(events)
            after = events[-1].position
        batch.add(document_from(ListedExecutionDocument, document), document, result)
