"""Which worker had each run of a command: what it reports is shown with its name (LANGUAGE §13 *Envelope*)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from noetl_stream.client.executions.journals import EVENTS_AT_ONCE
from noetl_stream.lru import LruCache
from noetl_stream.model import codec
from noetl_stream.model.events import LoopIterationStarted, StepStarted, TaskProcessed
from noetl_stream.ports.store import Store, StoredEvent

LOOK_AHEAD: Final = 500
"""How many entries are read behind a page for the name of a run that begins in it."""

RUNS_KEPT: Final = 10_000
"""How many runs whose worker is known are kept: those that are read next are mostly among them."""

_NAMING: Final = frozenset({"step.started", "loop.iteration.started", "task.processed"})
"""Events in which a run names its worker: one of them is among its first."""


class RunWorkers:
    """Reads names from journals. A run names its worker in some of its events, and is known by them in all others."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: LruCache[str, str] = LruCache(RUNS_KEPT)

    async def names(self, execution_id: str, rows: Sequence[StoredEvent]) -> dict[int, str]:
        """The workers of those of these entries that workers reported, by position. A run that has not named its
        worker is missing: it has only asked whether it may begin, or ended before it did.

        Args:
            rows: Entries of one journal, by position.
        """
        runs = {row.position: run for row in rows if (run := _run_of(row)) is not None}
        known = {run: name for run in runs.values() if (name := self._kept.get(run)) is not None}
        _learn(rows, set(runs.values()) - known.keys(), known)
        if unknown := set(runs.values()) - known.keys():
            await self._look_back(execution_id, rows, unknown, known)
        if unknown := set(runs.values()) - known.keys():
            _learn(await self._store.journal(execution_id, rows[-1].position, LOOK_AHEAD), unknown, known)
        for run, name in known.items():
            self._kept.put(run, name)
        return {position: known[run] for position, run in runs.items() if run in known}

    async def _look_back(
        self, execution_id: str, rows: Sequence[StoredEvent], unknown: set[str], known: dict[str, str]
    ) -> None:
        """Reads backwards, up to where each of the ``unknown`` runs began."""
        sought = unknown - _beginning(rows)
        end = rows[0].position - 1
        while sought and end > 0:
            size = min(end, EVENTS_AT_ONCE)
            piece = await self._store.journal(execution_id, end - size, size)
            _learn(reversed(piece), sought, known)
            sought -= known.keys() | _beginning(piece)
            end -= size


def _run_of(row: StoredEvent) -> str | None:
    """The run that reported this entry, as the report's id has it."""
    return row.report_id.rpartition(".")[0] if row.report_id is not None and row.number is not None else None


def _beginning(rows: Iterable[StoredEvent]) -> set[str]:
    """The runs whose first event is among these."""
    return {run for row in rows if row.number == 0 and (run := _run_of(row)) is not None}


def _learn(rows: Iterable[StoredEvent], wanted: set[str], known: dict[str, str]) -> None:
    """Adds to ``known`` the workers that the ``wanted`` runs name in these entries."""
    for row in rows:
        run = _run_of(row)
        if run is None or run not in wanted or run in known or row.name not in _NAMING:
            continue
        fact = codec.decode_fact(row.data)
        if isinstance(fact, StepStarted | LoopIterationStarted) and fact.worker:
            known[run] = fact.worker
        elif isinstance(fact, TaskProcessed) and fact.outcome.meta.worker:
            known[run] = fact.outcome.meta.worker
