"""The fact that a step run has emitted an event of the playbook (LANGUAGE §7 *Emitted events*)."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from noetl_stream.model.events.fact_parts import Fact, Kind

Boundary = Literal["started", "completed", "failed"]
"""A moment of a step run at which its step may emit events."""

MAX_EMITTED_BYTES: Final = 256 * 1024
"""The most bytes of JSON that the ``data`` of one event has."""


class StepEmitted(Fact, frozen=True, tag="step.emitted"):
    """A run of ``step`` emits ``event`` with ``data``, at the boundary ``on``. Receivers do not know step runs."""

    kind: ClassVar = Kind("step", "success", bounded=True)

    step_run_id: str
    step: str
    event: str
    on: Boundary
    data: dict[str, Any] = {}
