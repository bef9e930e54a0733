"""What a worker has done since it started: plain numbers, which its runs count and :mod:`status` reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from noetl_stream.telemetry.measures import Durations, Exemplar


@dataclass(slots=True)
class WorkerCounts:
    """
    Attributes:
        tasks: How long attempts of tasks took, by kind and outcome: ``ok`` or ``error``.
        retries: Attempts after the first, by kind.
        commands: Those that are no longer here, by what became of them: ``done``, ``returned``.
    """

    tasks: dict[tuple[str, ...], Durations] = field(default_factory=dict)
    retries: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)

    def task_ended(self, kind: str, outcome: str, attempt: int, took_s: float) -> None:
        """Counts an attempt of a task."""
        durations = self.tasks.get((kind, outcome))
        if durations is None:
            durations = self.tasks[kind, outcome] = Durations()
        durations.add(took_s)
        if attempt > 1:
            self.retries[kind] += 1

    def task_traced(self, kind: str, outcome: str, exemplar: Exemplar) -> None:
        """Shows the span of an attempt that was counted."""
        self.tasks[kind, outcome].show(exemplar)
