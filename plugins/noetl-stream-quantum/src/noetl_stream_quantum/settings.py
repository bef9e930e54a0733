"""The operator's settings of the simulator: ``NOETL_TOOL_QUANTUM``."""

from __future__ import annotations

from pydantic import Field

from noetl_stream.tools.inputs import OwnSettings


class QuantumSettings(OwnSettings):
    """Limits of the backend ``aer``."""

    max_qubits: int = Field(default=24, ge=1, le=1000)
    max_shots: int = Field(default=100_000, ge=1)
    max_memory_mb: int = Field(default=1024, ge=1)
    max_simulations: int | None = Field(default=None, ge=1)
    """At the same time. ``None``: the number of processors."""
    max_job_s: float = Field(default=600, gt=0)
    """How long a submitted job may run; for ``run``, the timeout of the task counts."""
