"""The worker of each run of a command, for the envelopes of its reports (LANGUAGE §13 *Envelope*)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from noetl_stream.lru import LruCache
from noetl_stream.model.events import LoopIterationStarted, StepStarted, TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import Store, StoredEvent
from noetl_stream.storage.journal import EVENTS_AT_ONCE

LOOK_AHEAD: Final = 500
"""How many entries after a page are read for the name of a run that begins in it."""

RUNS_KEPT: Final = 10_000
"""How many runs are cached: the next page mostly has the same ones."""

_NAMING: Final = frozenset({"step.started", "loop.iteration.started", "task.processed"})
"""Events in which a run names its worker: one of its first is among them."""


class RunWorkers:
    """Reads the names of workers from journals. Only some events of a run name its worker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: LruCache[str, str] = LruCache(RUNS_KEPT)

    async def names(self, execution_id: str, rows: Sequence[StoredEvent]) -> dict[int, str]:
        """The workers that reported these entries, by position. A run that has not named its worker is missing: it has
        only claimed its command, or ended before it began.

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
    """The run that reported an entry, from the id of the report."""
    return row.report_id.rpartition(".")[0] if row.report_id is not None and row.number is not None else None


def _beginning(rows: Iterable[StoredEvent]) -> set[str]:
    """The runs whose first event is in these entries."""
    return {run for row in rows if row.number == 0 and (run := _run_of(row)) is not None}


def _learn(rows: Iterable[StoredEvent], wanted: set[str], known: dict[str, str]) -> None:
    """Adds to ``known`` the workers of the ``wanted`` runs that these entries name."""
    for row in rows:
        run = _run_of(row)
        if run is None or run not in wanted or run in known or row.name not in _NAMING:
            continue
        fact = codec.decode_fact(row.data)
        if isinstance(fact, StepStarted | LoopIterationStarted) and fact.worker:
            known[run] = fact.worker
        elif isinstance(fact, TaskProcessed) and fact.outcome.meta.worker:
            known[run] = fact.outcome.meta.worker
