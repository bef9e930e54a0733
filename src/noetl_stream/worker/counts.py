"""Counters of a worker since its start: plain numbers, written by its runs and read by :mod:`status`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from noetl_stream.telemetry.measures import ByPath, Durations, Exemplar, long_durations


@dataclass(slots=True)
class WorkerCounts:
    """Counters of a worker since its start.

    Attributes:
        tasks: The durations of task attempts, by kind and outcome: ``ok`` or ``error``.
        retries: Attempts after the first, by kind.
        commands: The commands that have left the worker, by result: ``done``, ``returned``.
        waits: The times that commands waited in the queue, by the path of their playbook.
    """

    tasks: dict[tuple[str, ...], Durations] = field(default_factory=dict)
    retries: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    waits: ByPath[Durations] = field(default_factory=lambda: ByPath(long_durations))

    def count_attempt(self, kind: str, outcome: str, attempt: int, took_s: float) -> None:
        durations = self.tasks.get((kind, outcome))
        if durations is None:
            durations = self.tasks[kind, outcome] = Durations()
        durations.add(took_s)
        if attempt > 1:
            self.retries[kind] += 1

    def add_exemplar(self, kind: str, outcome: str, exemplar: Exemplar) -> None:
        """Shows the span of a counted attempt as an exemplar."""
        self.tasks[kind, outcome].show(exemplar)
