"""The facts of stored entries, composite ones as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from noetl_stream.model import events
from noetl_stream.model.ids import run_of_report
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import StoredEntry


class Recorded(NamedTuple):
    """A fact with where and when it was recorded."""

    fact: events.Fact
    position: int
    at_ms: int
    step_run_id: str | None
    command_id: str


def facts_of(entry: StoredEntry) -> Iterator[Recorded]:
    command_id = run_of_report(entry.report_id).command_id if entry.report_id and entry.number is not None else ""
    position = entry.position
    if entry.name is not None:
        yield Recorded(codec.decode_fact(entry.data), position, entry.at_ms, entry.step_run_id, command_id)
        return
    for fact, _ in codec.decode_facts(entry.data):
        yield Recorded(fact, position, entry.at_ms, entry.step_run_id, command_id)
        position += fact.width
    for fact, _ in codec.decode_facts(entry.decisions) if entry.decisions is not None else ():
        yield Recorded(fact, position, entry.at_ms, None, "")
        position += fact.width
