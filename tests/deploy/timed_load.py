"""Clients that note how long requests and executions take, and bounds for these while a system is changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from statistics import median

from contention import Contention, Span
from rolling_load import ENDED, PATIENCE_S, Load

from noetl_stream.adapters.gateway_client.executions import MAX_WAIT_S
from noetl_stream.ports.operations.executions import Start

MORE = 30
"""So many executions end after each change."""


class TimedLoad(Load):
    """
    Attributes:
        requests: Of those that started an execution, from the first attempt until it was accepted.
        executions: From accepted until the client knows the end.
    """

    def __init__(self, url: str, token: str, source: str) -> None:
        super().__init__(url, token, source)
        self.requests: list[Span] = []
        self.executions: list[Span] = []
        self._under_way: set[object] = set()

    async def settle(self) -> None:
        """Waits until all that is under way has ended; more is begun meanwhile."""
        waiting = set(self._under_way)
        async with asyncio.timeout(PATIENCE_S):
            while waiting & self._under_way:
                self._progress.clear()
                await self._progress.wait()

    async def _start_and_wait(self) -> None:
        while not self._finishing:
            this, began_s = object(), time.monotonic()
            self._under_way.add(this)
            found = await self._executions.start(Start(playbook=self._source, workload={}, ctx={}), "")
            accepted_s = time.monotonic()
            self.requests.append(Span(began_s, accepted_s))
            while found.status not in ENDED:
                found = await self._executions.wait(found.execution_id, MAX_WAIT_S)
            self.executions.append(Span(accepted_s, time.monotonic()))
            self.ended[found.execution_id] = found.status
            self._under_way.remove(this)
            self._progress.set()


class Away:
    """When a store could not be used, because it had no leader. Nobody can end before."""

    def __init__(self) -> None:
        self.span = Span(0.0, 0.0)

    @contextmanager
    def measured(self) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self.span = Span(began_s, time.monotonic())


class Table:
    """Prints what was seen, a row for each change, the first of which changes nothing.

    A bound holds for a machine that has a core for every process that computes; here it is multiplied by how much
    longer work took while the request or execution lasted. Executions have what they take without a change besides.

    Attributes:
        late: What took too long, by change.
    """

    def __init__(self, load: TimedLoad, contention: Contention) -> None:
        self._load = load
        self._contention = contention
        self._work_s: float | None = None
        self.late: list[str] = []
        print("\n| change | executions | took | store away | slowest request | slowest execution | contention |")
        print("| --- | --- | --- | --- | --- | --- | --- |")

    @asynccontextmanager
    async def change(
        self, what: str, *, within_s: float = 1.0, executions_within_s: float | None = None
    ) -> AsyncIterator[Away]:
        """Everything that the change may have touched belongs to it: it ends when that has ended.

        Args:
            within_s: The bound of requests, and of executions if these have none of their own, besides the time in
                which a store is away.
        """
        self._load.requests.clear()
        self._load.executions.clear()
        began_s, away = time.monotonic(), Away()
        yield away
        took_s = time.monotonic() - began_s
        await self._load.more(MORE)
        await self._load.settle()
        requests, executions = list(self._load.requests), list(self._load.executions)
        times = self._contention.during(Span(began_s, time.monotonic()))
        if self._work_s is None:
            self._work_s = median(span.took_s for span in executions) / times
        seen = (took_s, away.span.took_s, longest_s(requests), longest_s(executions))
        shown = " | ".join(f"{seconds:.1f} s" for seconds in seen)
        print(f"| {what} | {len(executions)} | {shown} | {times:.1f} x |", flush=True)
        bound_s = (within_s if executions_within_s is None else executions_within_s) + self._work_s
        for kind, spans, limit_s in (("request", requests, within_s), ("execution", executions, bound_s)):
            for span in spans:
                took_s = span.took_s - span.shared_s(away.span)
                if took_s > limit_s * (times := self._contention.during(span)):
                    self.late.append(f"{what}: {kind} of {took_s:.2f} s, {limit_s:.2f} s x {times:.1f} allowed")


def longest_s(spans: Sequence[Span]) -> float:
    return max(span.took_s for span in spans)
