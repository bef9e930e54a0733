"""The statuses people read of an execution, its step runs and its steps: one rule for all of them (LANGUAGE §9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from noetl_stream.model.status import ExecutionStatus, RunStatus

_ENDS: Final[tuple[RunStatus, ...]] = ("failed", "cancelled", "done", "reused")
"""What is said of a step by the ends of its runs: the first that one of them has."""

_GOES_ON: Final = ("token", "claimed", "queued", "running", "routing")
"""Places of tokens that wait for nothing but the engine or a worker."""


class Statuses(msgspec.Struct, frozen=True):
    """What the statuses of step runs and steps follow from.

    Attributes:
        execution: The status of the execution.
        runs: Those of its step runs that have not ended, as the state has them.
        places: By step, how many of its tokens are where.
        is_deciding: Whether nothing is in a worker or a queue and nothing waits: the engine is about to decide what
            becomes of each token.
    """

    execution: ExecutionStatus
    runs: Mapping[str, RunStatus] = {}
    places: Mapping[str, Mapping[str, int]] = {}
    is_deciding: bool = False

    def of_run(self, step_run_id: str) -> RunStatus:
        """The status of a step run that has not ended."""
        return self.runs.get(step_run_id) or self._going_on

    def of_step(self, step: str, runs: Mapping[RunStatus, int]) -> RunStatus | None:
        """The status of a step, by how many of its runs have which; ``None`` if nothing has happened to it."""
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
