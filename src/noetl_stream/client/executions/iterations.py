"""The iterations of a loop, page by page, from the journal (LANGUAGE §6)."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Final

from noetl_stream.client.cursors import cursor_of
from noetl_stream.client.executions.journals import pieces
from noetl_stream.client.executions.step_runs import shown_result
from noetl_stream.model import codec
from noetl_stream.model.envelope import iso_or_none
from noetl_stream.model.events import LoopIterationDone, LoopIterationFailed, LoopIterationStarted, Path, TaskProcessed
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.model.status import RunStatus
from noetl_stream.ports.operations.executions import IterationDocument, IterationPage
from noetl_stream.ports.store import Store

PAGES_KEPT: Final = 4
"""Of the iterations seen so far, those of so many pages are kept: journals do not have them in order."""

_READ: Final = frozenset({"loop.iteration.started", "task.processed", "loop.iteration.done", "loop.iteration.failed"})


@dataclass(slots=True)
class _Iteration:
    path: Path
    started_ms: int | None = None
    ended_ms: int | None = None
    status: RunStatus = "running"
    worker: str = ""
    attempts: int = 0
    last: TaskProcessed | None = None
    error: ErrorInfo | None = None

    def take(self, fact: Any, at_ms: int) -> None:
        if isinstance(fact, LoopIterationStarted):
            self.started_ms = self.started_ms if self.started_ms is not None else at_ms
            self.worker = fact.worker
        elif isinstance(fact, TaskProcessed):
            self.attempts += 1
            self.last = fact
        elif isinstance(fact, LoopIterationDone):
            self.ended_ms, self.status = at_ms, "done"
        elif isinstance(fact, LoopIterationFailed):
            self.ended_ms, self.status, self.error = at_ms, "failed", fact.error

    def document(self) -> IterationDocument:
        return IterationDocument(
            path=list(self.path),
            status=self.status,
            started=iso_or_none(self.started_ms),
            finished=iso_or_none(self.ended_ms),
            worker=self.worker,
            attempts=self.attempts,
            result=None if self.last is None else shown_result(self.last.outcome.result),
            error=self.error,
        )


async def iterations_page(
    store: Store, execution_id: str, step_run_id: str, limit: int, after: list[int] | None
) -> IterationPage:
    """Those whose path is above ``after``, by path; one that has not begun is missing."""
    found: dict[Path, _Iteration] = {}
    first = tuple(after or ())
    ceiling: Path | None = None
    async for piece in pieces(store, execution_id):
        for row in piece:
            if row.name not in _READ:
                continue
            fact: Any = codec.decode_fact(row.data)
            path: Path = fact.path
            if (row.step_run_id or getattr(fact, "step_run_id", "")) != step_run_id or not path or path <= first:
                continue
            if ceiling is None or path <= ceiling:
                found.setdefault(path, _Iteration(path)).take(fact, row.at_ms)
        if len(found) > PAGES_KEPT * (limit + 1):
            kept = nsmallest(limit + 1, found)
            found, ceiling = {path: found[path] for path in kept}, kept[-1]
    page = nsmallest(limit + 1, found)
    items = [found[path].document() for path in page[:limit]]
    return IterationPage(items, cursor_of(list(page[limit - 1])) if len(page) > limit else None)
