"""An execution that no server can fold (PROTOCOL §5 *Poison*): it alone is set aside, and goes on once it is mended."""

from __future__ import annotations

from random import Random
from typing import Final

from noetl_stream.ports.stores.store import Tick
from noetl_testkit.entries import events_in
from noetl_testkit.simulation.work import JOBS

POISONS: Final = ("poison refused", "poison kills")
"""Kinds of poison: the store refuses a tick with such an event of the execution, or the server dies of it."""

EVENTS: Final = (
    "execution.requested", "step.scheduled", "step.started", "task.processed", "step.done", "step.failed",
    "next.evaluated", "timer.fired", "child.finished", "loop.iteration.done",
)  # fmt: skip


class Poison:
    """What is wrong with one execution.

    Attributes:
        kind: One of :data:`POISONS`.
        job: What it runs.
        event: The name of its events that cannot be committed; empty once mended.
        execution_id: Empty until it is submitted.
        strikes: How many ticks had such an event.
    """

    def __init__(self, seed: int, kind: str) -> None:
        random = Random(f"poison {seed}")
        self.kind = kind
        self.kills = kind == "poison kills"
        self.job = random.choice([job for job in JOBS if job.accepted and not job.asks and job.retried is None])
        self.event = random.choice(EVENTS)
        self.delay_s = random.uniform(0, 10)
        self.execution_id = ""
        self.strikes = 0

    def is_in(self, tick: Tick) -> bool:
        return (self.execution_id, self.event) in events_in(tick)
