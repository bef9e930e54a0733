"""Replay: rebuilds a state from its journal, by ``evolve`` alone (PROTOCOL §1 *Journal*)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.errors import NewerFormat
from noetl_stream.model.events import ExecutionStarted, Fact
from noetl_stream.model.ids import partition_of, run_of_report
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AGGREGATES_FORMAT


class JournalRow(Protocol):
    """The part of a stored event that replay reads."""

    @property
    def at_ms(self) -> int: ...
    @property
    def report_id(self) -> str | None: ...
    @property
    def number(self) -> int | None: ...
    @property
    def data(self) -> bytes: ...


class ReplayedEntry(JournalRow, Protocol):
    """The part of a stored entry that replay reads. An entry with a ``name`` has format 1."""

    @property
    def decisions(self) -> bytes | None: ...
    @property
    def name(self) -> str | None: ...


def replay(execution_id: str, journal: Iterable[JournalRow], state: Execution | None = None) -> Execution | None:
    """The state that these journal rows fold to; ``None`` without rows.

    Args:
        state: The state that the preceding rows fold to.

    Raises:
        NewerFormat: if the journal was written by a newer format.
    """
    for recorded in recorded_facts(execution_id, journal):
        state = evolve(state, recorded, execution_id)
    return state


def replay_entries(
    execution_id: str, journal: Iterable[ReplayedEntry], state: Execution | None = None
) -> Execution | None:
    """The state that these entries fold to, composite facts at once; ``None`` without entries.

    Args:
        state: The state that the preceding entries fold to.

    Raises:
        NewerFormat: if the journal was written by a newer format.
    """
    for entry in journal:
        if entry.name is not None:
            state = replay(execution_id, (entry,), state)
            continue
        number = entry.number or 0
        run = run_of_report(entry.report_id) if entry.report_id is not None else None
        for fact, _ in codec.decode_facts(entry.data):
            state = evolve(state, RecordedFact(fact, run, number, entry.at_ms), execution_id)
            number += fact.width
        for fact, _ in codec.decode_facts(entry.decisions) if entry.decisions is not None else ():
            _check_format(execution_id, fact)
            state = evolve(state, RecordedFact(fact, at_ms=entry.at_ms), execution_id)
    return state


def recorded_facts(execution_id: str, journal: Iterable[JournalRow]) -> Iterator[RecordedFact]:
    """The facts of these journal rows, in order.

    Raises:
        NewerFormat: if the journal was written by a newer format.
    """
    for row in journal:
        fact = codec.decode_fact(row.data)
        _check_format(execution_id, fact)
        if row.report_id is not None and row.number is not None:
            yield RecordedFact(fact, run_of_report(row.report_id), row.number, row.at_ms)
        else:
            yield RecordedFact(fact, at_ms=row.at_ms)


def _check_format(execution_id: str, fact: Fact) -> None:
    if isinstance(fact, ExecutionStarted) and fact.format > AGGREGATES_FORMAT:
        raise NewerFormat(partition_of(execution_id), f"execution {execution_id} was written by a newer version")
