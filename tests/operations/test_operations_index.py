"""The index of a journal agrees with the journal, however it is read, whoever has written it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path

import pytest

from noetl_stream.operations.executions.reading.step_runs import Statuses, summarize
from noetl_stream.operations.views.arrays import RUNNING
from noetl_stream.operations.views.index import ExecutionIndex
from noetl_stream.ports.stores.store import StoredEntry
from noetl_stream.storage.journal import events_of

HISTORIES = Path(__file__).parents[1] / "histories"


def journals(release: str) -> Mapping[str, list[StoredEntry]]:
    """The entries that a release has stored, by execution."""
    found: dict[str, list[StoredEntry]] = {}
    for line in (HISTORIES / release / "event.jsonl").read_text().splitlines():
        row = json.loads(line)
        data, decisions = json.dumps(row["data"]).encode(), row.get("decisions")
        given = {name: row.get(name) for name in StoredEntry.__struct_fields__}
        given |= {"data": data, "decisions": None if decisions is None else json.dumps(decisions).encode()}
        found.setdefault(row["execution_id"], []).append(StoredEntry(**given))
    return {one: sorted(entries, key=attrgetter("position")) for one, entries in found.items()}


@pytest.mark.parametrize("release", ["0.2.0", "0.3.0"])
def test_the_runs_of_each_step_are_those_of_the_journal(release: str) -> None:
    for execution_id, entries in journals(release).items():
        index = ExecutionIndex(execution_id)
        index.take(entries)
        events = list(events_of(execution_id, entries))
        assert index.position == events[-1].position
        statuses = Statuses("completed" if index.has_ended else "running")
        counts = index.counts_at(index.position, statuses)
        for summary in summarize(events, statuses):
            assert counts[summary.step].total() == summary.runs
            assert counts[summary.step][summary.status], summary
        assert {event.name for event in events if event.name == "execution.finished"} == (
            {"execution.finished"} if index.has_ended else set()
        )


@pytest.mark.parametrize("release", ["0.2.0", "0.3.0"])
def test_an_index_read_entry_by_entry_is_the_same(release: str) -> None:
    for execution_id, entries in journals(release).items():
        whole, parts = ExecutionIndex(execution_id), ExecutionIndex(execution_id)
        whole.take(entries)
        for entry in entries:
            parts.take([entry])
        assert whole.position == parts.position and whole.size == parts.size
        assert whole.rows.keys() == parts.rows.keys()
        for key, spans in whole.rows.items():
            assert [getattr(spans, name) for name in spans.__slots__] == [
                getattr(parts.rows[key], name) for name in spans.__slots__
            ], key


@pytest.mark.parametrize("release", ["0.2.0", "0.3.0"])
def test_nothing_goes_on_after_the_end_and_nothing_ends_before_it_began(release: str) -> None:
    for execution_id, entries in journals(release).items():
        index = ExecutionIndex(execution_id)
        index.take(entries)
        for key, spans in index.rows.items():
            assert all(not end or end >= begin for begin, end in zip(spans.begin, spans.end, strict=True)), key
            assert not index.has_ended or RUNNING not in spans.status, key
