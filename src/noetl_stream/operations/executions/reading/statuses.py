"""The statuses of an execution, its step runs and its steps for people: one rule for all of them (LANGUAGE §9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from noetl_stream.model.status import ExecutionStatus, RunStatus

_ENDS: Final[tuple[RunStatus, ...]] = ("failed", "cancelled", "done", "reused")
"""The statuses that the ends of runs give a step: the first that one of them has."""

_GOES_ON: Final = ("token", "claimed", "queued", "running", "routing")
"""Places of tokens that wait only for the engine or a worker."""


class Statuses(msgspec.Struct, frozen=True):
    """The basis of the statuses of step runs and steps.

    Attributes:
        execution: The status of the execution.
        runs: The statuses of its unfinished step runs, from the state.
        places: The number of its tokens at each place, by step.
        is_deciding: Whether the engine is about to decide about each token: nothing is in a worker or a queue, and
            nothing waits.
    """

    execution: ExecutionStatus
    runs: Mapping[str, RunStatus] = {}
    places: Mapping[str, Mapping[str, int]] = {}
    is_deciding: bool = False

    def of_run(self, step_run_id: str) -> RunStatus:
        return self.runs.get(step_run_id) or self._going_on

    def of_step(self, step: str, runs: Mapping[RunStatus, int]) -> RunStatus | None:
        """The status of a step, by the number of its runs with each; ``None`` if it never ran."""
        there = self.places.get(step, {})
        if runs.get("running"):
            return "running"
        if any(place in _GOES_ON for place in there):
            return self._going_on
        if there or runs.get("waiting"):
            return "running" if self.is_deciding else "waiting"
        return next((status for status in _ENDS if runs.get(status)), None)

    @property
    def _going_on(self) -> RunStatus:
        return "running" if self.execution in ("running", "compensating") else "waiting"
