"""Counts what a server has done since it started: plain numbers, which its tasks count and :mod:`status` reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from noetl_stream.model.status import ENDED
from noetl_stream.ports.stores.store import Tick
from noetl_stream.telemetry.measures import Durations


def _zero(*labels: str) -> Counter[str]:
    return Counter(dict.fromkeys(labels, 0))


@dataclass(slots=True)
class ServerCounts:
    """Counters of a server since its start.

    Attributes:
        inputs: Inputs folded, by origin: ``events``, ``inbox``, ``own`` (timers, results, evaluations).
        turns: Turns of the loop that committed something.
        commits: Transactions.
        rows: Rows written, by table.
        dead_letters: Dead letters, by source.
        occurrences: Entries of histories of schedules and triggers, by status.
        trigger_faults: Events with which a trigger could not do what it says.
        started: Executions that started.
        ended: Executions that ended, by status.
        quarantined: Executions that were quarantined.
        issued: Commands published.
        reissued: Commands published again.
        reconciled: Commands published again because the queue had lost them.
        taken_over, lost, released: Partitions taken over, lost and released.
    """

    inputs: Counter[str] = field(default_factory=lambda: _zero("events", "inbox", "own"))
    turns: Durations = field(default_factory=Durations)
    commits: Durations = field(default_factory=Durations)
    rows: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=lambda: _zero("events", "inbox", "command"))
    occurrences: Counter[str] = field(default_factory=Counter)
    trigger_faults: int = 0
    started: int = 0
    ended: Counter[str] = field(default_factory=lambda: _zero(*ENDED))
    quarantined: int = 0
    issued: int = 0
    reissued: int = 0
    reconciled: int = 0
    taken_over: int = 0
    lost: int = 0
    released: int = 0

    def count_commit(self, tick: Tick, took_s: float) -> None:
        """Counts a committed transaction, with its rows by table."""
        self.commits.add(took_s)
        for table, rows in (
            ("event", tick.entries),
            ("execution", tick.executions),
            ("request", tick.requests),
            ("timer", tick.timers),
            ("inbox", tick.inbox),
            ("feed", tick.feed),
            ("snapshot", tick.snapshots),
            ("dead_letter", tick.dead_letters),
            ("stale_report", tick.stale_reports),
            ("aggregate", tick.aggregates),
            ("aggregate_history", tick.history),
            ("limit_slot", tick.limit_slots),
        ):
            if rows:
                self.rows[table] += len(rows)
        for letter in tick.dead_letters:
            self.dead_letters[letter.source] += 1
        for entry in tick.history:
            self.occurrences[entry.status] += 1
