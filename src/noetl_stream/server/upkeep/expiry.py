"""Deletion of finished executions that the rules of retention do not keep (PROTOCOL §5 *Retention*).

Executions are deleted one by one, with their objects, and are archived before if there is an archive. In a month of
which no execution is kept, their journals are left, and the month is dropped as a whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec

from noetl_stream.errors import Conflict
from noetl_stream.model.ids import first_uuid7
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.retention import Archiver, Month, RetentionStore, StartedExecution
from noetl_stream.ports.stores.store import Store
from noetl_stream.settings.retention_periods import RetentionRule
from noetl_stream.storage.deletion import DeleteObjects, delete_execution, require_deletable

log = logging.getLogger(__name__)

MONTHS_AHEAD: Final = 2
PAGE: Final = 1_000
AT_ONCE: Final = 8
ARCHIVED_AT_ONCE: Final = 200

STARTING_MS: Final = 2 * 86_400_000
"""The time after the end of a month in which an execution with an earlier id may still be added to it."""


class RetentionPlan(msgspec.Struct, frozen=True, gc=False):
    """The number of executions that a rule does not keep, and the approximate bytes of their journals."""

    rule: RetentionRule
    executions: int
    journal_bytes: int


class Retention:
    """Applies the rules of retention. Several servers may do so at once."""

    def __init__(
        self,
        store: Store,
        retained: RetentionStore,
        delete_objects: DeleteObjects,
        clock: Clock,
        rules: Sequence[RetentionRule],
        archiver: Archiver | None = None,
    ) -> None:
        self._store = store
        self._retained = retained
        self._delete_objects = delete_objects
        self._clock = clock
        self._rules = rules
        self._archiver = archiver

    async def make_months(self) -> None:
        """Creates the partitions of the journal for the next months."""
        for name in await self._retained.make_months(MONTHS_AHEAD):
            log.info("made the table %s", name)

    async def plan(self) -> list[RetentionPlan]:
        """Returns what :meth:`delete_old` would delete now, by rule. Executions needed by others may stay."""
        executions: Counter[RetentionRule] = Counter()
        sizes: Counter[RetentionRule] = Counter()
        choice = await self._choice()
        if choice is not None:
            async for page in self._pages("", choice.started_before):
                for rule, ids in choice.deletable_by_rule(page).items():
                    executions[rule] += len(ids)
                    sizes[rule] += await self._retained.journal_bytes(ids)
        return [RetentionPlan(rule, executions[rule], sizes[rule]) for rule in self._rules]

    async def delete_old(self) -> int:
        """Deletes executions that the rules do not keep, and drops empty months; returns how many executions."""
        choice = await self._choice()
        deleted = await self._delete(choice) if choice is not None else 0
        for name in await self._retained.drop_empty_months():
            log.info("dropped the table %s: no execution is left of its month", name)
        return deleted

    async def _choice(self) -> _Choice | None:
        """Returns the executions to delete; ``None`` if the rules keep all for ever."""
        ages = [rule.keep_s for rule in self._rules if rule.keep_s is not None]
        if not ages:
            return None
        now_ms = self._clock.now_ms()
        choice = _Choice(self._rules, now_ms, first_uuid7(now_ms - int(min(ages) * 1000)))
        if any(rule.newest is not None for rule in self._rules):
            async for page in self._pages("", first_uuid7(now_ms)):
                choice.count(page)
        return choice

    async def _delete(self, choice: _Choice) -> int:
        past = first_uuid7(choice.now_ms - STARTING_MS)
        months = [month for month in await self._retained.months() if month.to_id <= past]
        whole = [month for month in months if await self._goes_whole(month, choice)]
        deleted = 0
        async for page in self._pages("", choice.started_before):
            old = [execution_id for ids in choice.deletable_by_rule(page).values() for execution_id in ids]
            for at in range(0, len(old), ARCHIVED_AT_ONCE):
                deleted += await self._delete_archived(old[at : at + ARCHIVED_AT_ONCE], whole)
        if deleted:
            log.info("deleted %d executions that were old enough", deleted)
        return deleted

    async def _goes_whole(self, month: Month, choice: _Choice) -> bool:
        async for page in self._pages(month.from_id, month.to_id):
            if not all(choice.rule_against(execution) for execution in page):
                return False
        return True

    async def _pages(self, after: str, before: str) -> AsyncIterator[list[StartedExecution]]:
        while page := await self._retained.started_between(after, before, PAGE):
            yield page
            after = page[-1].execution_id

    async def _delete_archived(self, old: Sequence[str], whole: Sequence[Month]) -> int:
        if self._archiver is not None:
            kept = await self._archiver.keep([one for one in old if await self._is_deletable(one)])
            old = [one for one in old if one in kept]
        deleted = 0
        for at in range(0, len(old), AT_ONCE):
            deleted += sum(await asyncio.gather(*(self._delete_one(one, whole) for one in old[at : at + AT_ONCE])))
        return deleted

    async def _is_deletable(self, execution_id: str) -> bool:
        """Returns whether no other execution needs this one; otherwise it waits for the next time."""
        try:
            await require_deletable(self._store, execution_id)
        except Conflict as error:
            log.debug("execution %s stays: %s", execution_id, error)
            return False
        return True

    async def _delete_one(self, execution_id: str, whole: Sequence[Month]) -> bool:
        keep_journal = any(month.from_id <= execution_id < month.to_id for month in whole)
        try:
            await delete_execution(self._store, self._delete_objects, execution_id, keep_journal=keep_journal)
        except Conflict as error:
            log.debug("execution %s stays: %s", execution_id, error)
            return False
        return True


class _Choice:
    """The executions that the rules do not keep at one moment.

    Attributes:
        started_before: The bound of ids below which all executions that are not kept lie.
    """

    def __init__(self, rules: Sequence[RetentionRule], now_ms: int, started_before: str) -> None:
        self.now_ms = now_ms
        self.started_before = started_before
        self._rules = rules
        self._newest = {rule: deque[str](maxlen=rule.newest) for rule in rules if rule.newest is not None}

    def count(self, page: Sequence[StartedExecution]) -> None:
        """Counts executions, oldest first, for rules that keep the newest."""
        for execution in page:
            rule = self._rule_for(execution)
            if rule is not None and rule in self._newest and execution.finished_ms is not None:
                self._newest[rule].append(execution.execution_id)

    def deletable_by_rule(self, page: Sequence[StartedExecution]) -> dict[RetentionRule, list[str]]:
        """Returns the executions of a page that are not kept, by the rule that drops them."""
        found: dict[RetentionRule, list[str]] = {}
        for execution in page:
            if (rule := self.rule_against(execution)) is not None:
                found.setdefault(rule, []).append(execution.execution_id)
        return found

    def rule_against(self, execution: StartedExecution) -> RetentionRule | None:
        """Returns the rule that drops the execution; ``None`` if it is kept."""
        rule = self._rule_for(execution)
        if rule is None or rule.keep_s is None or execution.finished_ms is None:
            return None
        if execution.finished_ms >= self.now_ms - rule.keep_s * 1000:
            return None
        newest = self._newest.get(rule)
        if newest is not None and (len(newest) != newest.maxlen or execution.execution_id >= newest[0]):
            return None
        return rule

    def _rule_for(self, execution: StartedExecution) -> RetentionRule | None:
        return next((rule for rule in self._rules if rule.is_for(execution.path, execution.status)), None)
