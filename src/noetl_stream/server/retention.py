"""Deletes finished executions that nobody wants kept any longer (PROTOCOL §5 *Retention*).

They go one by one, with their objects. Where all executions of a month go, their journals are left, and the month is
dropped as a whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

from noetl_stream.errors import Conflict
from noetl_stream.model.ids import first_uuid7
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.deletion import DeleteObjects, delete_execution
from noetl_stream.ports.retention import Month, RetentionStore, StartedExecution
from noetl_stream.ports.store import Store
from noetl_stream.settings.retention import RetentionRule, kept_s

log = logging.getLogger(__name__)

MONTHS_AHEAD: Final = 2
PAGE: Final = 1_000
AT_ONCE: Final = 8

STARTING_MS: Final = 2 * 86_400_000
"""An execution may still start in a month that ended no longer ago: its id was drawn before."""


class Retention:
    """Applies the rules of retention. Several at once do no harm."""

    def __init__(
        self,
        store: Store,
        retained: RetentionStore,
        delete_objects: DeleteObjects,
        clock: Clock,
        rules: Sequence[RetentionRule],
    ) -> None:
        self._store = store
        self._retained = retained
        self._delete_objects = delete_objects
        self._clock = clock
        self._rules = rules

    async def make_months(self) -> None:
        """Makes the partitions of the journal that will be needed next."""
        for name in await self._retained.make_months(MONTHS_AHEAD):
            log.info("made the table %s", name)

    async def delete_old(self) -> int:
        """Deletes what the rules do not keep, and drops the months that are empty then; returns how many executions."""
        ages = [rule.keep_s for rule in self._rules if rule.keep_s is not None]
        now_ms = self._clock.now_ms()
        deleted = await self._delete_before(now_ms, now_ms - int(min(ages) * 1000)) if ages else 0
        for name in await self._retained.drop_empty_months():
            log.info("dropped the table %s: no execution is left of its month", name)
        return deleted

    async def _delete_before(self, now_ms: int, started_ms: int) -> int:
        past = first_uuid7(now_ms - STARTING_MS)
        months = [month for month in await self._retained.months() if month.to_id <= past]
        whole = [month for month in months if await self._goes_whole(month, now_ms)]
        deleted = 0
        async for page in self._pages("", first_uuid7(started_ms)):
            old = [execution.execution_id for execution in page if self._is_old(execution, now_ms)]
            for at in range(0, len(old), AT_ONCE):
                gone = await asyncio.gather(*(self._delete(one, whole) for one in old[at : at + AT_ONCE]))
                deleted += sum(gone)
        if deleted:
            log.info("deleted %d executions that were old enough", deleted)
        return deleted

    async def _goes_whole(self, month: Month, now_ms: int) -> bool:
        async for page in self._pages(month.from_id, month.to_id):
            if not all(self._is_old(execution, now_ms) for execution in page):
                return False
        return True

    async def _pages(self, after: str, before: str) -> AsyncIterator[list[StartedExecution]]:
        while page := await self._retained.started_between(after, before, PAGE):
            yield page
            after = page[-1].execution_id

    def _is_old(self, execution: StartedExecution, now_ms: int) -> bool:
        if execution.finished_ms is None:
            return False
        keep_s = kept_s(self._rules, execution.path, execution.status)
        return keep_s is not None and execution.finished_ms < now_ms - keep_s * 1000

    async def _delete(self, execution_id: str, whole: Sequence[Month]) -> bool:
        """Whether it is deleted; one that others still need waits for the next time."""
        keep_journal = any(month.from_id <= execution_id < month.to_id for month in whole)
        try:
            await delete_execution(self._store, self._delete_objects, execution_id, keep_journal=keep_journal)
        except Conflict as error:
            log.debug("execution %s stays: %s", execution_id, error)
            return False
        return True
