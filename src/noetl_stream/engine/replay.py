"""Replay: a state from its journal, by ``evolve`` alone (PROTOCOL §1 *Journal*)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.state import Execution, RecordedFact
from noetl_stream.errors import NotReady
from noetl_stream.model import codec
from noetl_stream.model.events import ExecutionStarted
from noetl_stream.model.ids import run_of_report
from noetl_stream.model.messages import FORMAT


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


def replay(execution_id: str, journal: Iterable[JournalRow], state: Execution | None = None) -> Execution | None:
    """The state that these rows fold to; ``None`` without rows.

    Args:
        state: The state that the preceding rows fold to.

    Raises:
        NotReady: if the journal was written by a newer format.
    """
    for recorded in recorded_facts(execution_id, journal):
        state = evolve(state, recorded, execution_id)
    return state


def recorded_facts(execution_id: str, journal: Iterable[JournalRow]) -> Iterator[RecordedFact]:
    """The facts of these rows, in order.

    Raises:
        NotReady: if the journal was written by a newer format.
    """
    for row in journal:
        fact = codec.decode_fact(row.data)
        if isinstance(fact, ExecutionStarted) and fact.format > FORMAT:
            raise NotReady(f"execution {execution_id} was written by a newer version", hint="upgrade this process")
        if row.report_id is not None and row.number is not None:
            yield RecordedFact(fact, run_of_report(row.report_id), row.number, row.at_ms)
        else:
            yield RecordedFact(fact, at_ms=row.at_ms)
