"""Reading executions, and counting them, on a replica of Postgres, which may be behind; everything else is left to the
primary.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from noetl_stream.errors import NotFound, NotReady, Unreachable
from noetl_stream.lru import LruCache
from noetl_stream.model.envelope import EventDocument
from noetl_stream.model.events import InterventionFact
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.executions import (
    AcceptedDocument,
    CtxDocument,
    ExecutionDocument,
    ExecutionFilter,
    ExecutionPage,
    Executions,
    IterationPage,
    RequestIds,
    RerunOptions,
    ResultDocument,
    Start,
    StepRunDocument,
    StepRunRange,
    StepRunResultDocument,
    StepRunsDocument,
    WhyDocument,
)
from noetl_stream.ports.operations.logs import LogFilter, LogPage
from noetl_stream.ports.operations.selections import (
    BulkDocument,
    BulkOrder,
    ExecutionGroupsDocument,
    ExecutionHistogramDocument,
    Selections,
)

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Verbs = TypeVar("Verbs")

READ_S: Final = 5.0
"""How long the replica may take; then the primary is asked too."""

AWAY_MS: Final = 10_000
"""How long a replica that did not answer is not asked again."""

ACTED_ON_MS: Final = 60_000
"""How long an execution is read from the primary after something was done with it here."""

ACTED_ON_KEPT: Final = 10_000


class ReplicaReader(Generic[Verbs]):
    """Asks verbs of a replica, and of the primary while the replica does not answer or does not know what is asked for.

    Args:
        replica: Gives the verbs over the replica, and connects to it if need be.
    """

    def __init__(self, primary: Verbs, replica: Callable[[], Awaitable[Verbs]], clock: Clock) -> None:
        self._primary = primary
        self._replica = replica
        self._clock = clock
        self._away_until_ms = 0

    async def read(self, ask: Callable[[Verbs], Awaitable[Answer]]) -> Answer:
        now_ms = self._clock.now_ms()
        if now_ms < self._away_until_ms:
            return await ask(self._primary)
        try:
            async with asyncio.timeout(READ_S):
                return await ask(await self._replica())
        except NotFound:
            pass
        except (Unreachable, NotReady, TimeoutError) as error:
            self._away_until_ms = now_ms + AWAY_MS
            log.warning("reading from the primary, since the replica does not answer: %s", error or "no answer in time")
        return await ask(self._primary)


class ReplicaSelections:
    """:class:`~noetl_stream.ports.operations.selections.Selections`, with counts from a replica."""

    def __init__(self, primary: Selections, replica: Callable[[], Awaitable[Selections]], clock: Clock) -> None:
        self._primary = primary
        self._reader = ReplicaReader(primary, replica, clock)

    async def act(self, wanted: BulkOrder, by: str, ids: RequestIds | None = None) -> BulkDocument:
        return await self._primary.act(wanted, by, ids)

    async def histogram(self, chosen: ExecutionFilter, bars: int) -> ExecutionHistogramDocument:
        return await self._reader.read(lambda of: of.histogram(chosen, bars))

    async def groups(self, chosen: ExecutionFilter, by: str) -> ExecutionGroupsDocument:
        return await self._reader.read(lambda of: of.groups(chosen, by))


class ReplicaExecutions:
    """:class:`~noetl_stream.ports.operations.executions.Executions`, with lists, documents, events, steps, ctx and
    ``why`` from a replica.

    The primary is read for executions just started, asked or waited for here, and for those unknown to the replica.

    Args:
        replica: Gives executions over the replica, and connects to it if need be.
    """

    def __init__(self, primary: Executions, replica: Callable[[], Awaitable[Executions]], clock: Clock) -> None:
        self._primary = primary
        self._reader = ReplicaReader(primary, replica, clock)
        self._clock = clock
        self._acted_on: LruCache[str, int] = LruCache(ACTED_ON_KEPT)

    async def page(self, chosen: ExecutionFilter, limit: int, cursor: str | None) -> ExecutionPage:
        return await self._read(lambda of: of.page(chosen, limit, cursor))

    async def get(self, execution_id: str) -> ExecutionDocument:
        return await self._read(lambda of: of.get(execution_id), execution_id)

    async def steps(self, execution_id: str) -> list[StepRunDocument]:
        return await self._read(lambda of: of.steps(execution_id), execution_id)

    async def runs(self, execution_id: str, wanted: StepRunRange) -> StepRunsDocument:
        return await self._read(lambda of: of.runs(execution_id, wanted), execution_id)

    async def iterations(self, execution_id: str, step_run_id: str, limit: int, cursor: str | None) -> IterationPage:
        return await self._read(lambda of: of.iterations(execution_id, step_run_id, limit, cursor), execution_id)

    async def events(self, execution_id: str, after: int, limit: int) -> list[EventDocument]:
        return await self._read(lambda of: of.events(execution_id, after, limit), execution_id)

    async def ctx(self, execution_id: str) -> CtxDocument:
        return await self._read(lambda of: of.ctx(execution_id), execution_id)

    async def why(self, execution_id: str) -> WhyDocument:
        return await self._read(lambda of: of.why(execution_id), execution_id)

    async def start(self, wanted: Start, by: str, ids: RequestIds | None = None) -> ExecutionDocument:
        return self._note(await self._primary.start(wanted, by, ids))

    async def wait(self, execution_id: str, timeout_s: float) -> ExecutionDocument:
        return self._note(await self._primary.wait(execution_id, timeout_s))

    async def result(self, execution_id: str) -> ResultDocument:
        return await self._primary.result(execution_id)

    async def run_result(self, execution_id: str, step_run_id: str) -> StepRunResultDocument:
        return await self._primary.run_result(execution_id, step_run_id)

    async def logs(self, execution_id: str, chosen: LogFilter, after: str, limit: int) -> LogPage:
        return await self._primary.logs(execution_id, chosen, after, limit)

    async def ask(self, execution_id: str, fact: InterventionFact) -> AcceptedDocument:
        answer = await self._primary.ask(execution_id, fact)
        self._acted_on.put(execution_id, self._clock.now_ms())
        return answer

    async def rerun(
        self, execution_id: str, wanted: RerunOptions, by: str, ids: RequestIds | None = None
    ) -> ExecutionDocument:
        return self._note(await self._primary.rerun(execution_id, wanted, by, ids))

    async def delete(self, execution_id: str, by: str) -> None:
        await self._primary.delete(execution_id, by)
        self._acted_on.put(execution_id, self._clock.now_ms())

    def _note(self, document: ExecutionDocument) -> ExecutionDocument:
        self._acted_on.put(document.execution_id, self._clock.now_ms())
        return document

    async def _read(self, read: Callable[[Executions], Awaitable[Answer]], execution_id: str = "") -> Answer:
        acted_ms = self._acted_on.get(execution_id)
        if acted_ms is not None and self._clock.now_ms() < acted_ms + ACTED_ON_MS:
            return await read(self._primary)
        return await self._reader.read(read)
