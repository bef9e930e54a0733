"""The requests of tasks to backends, and the answers of backends."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple, Protocol

from pydantic import Field

from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolCall
from noetl_stream.tools.inputs import Auth, Inputs

MAX_CIRCUIT_CHARACTERS: Final = 1_000_000
MAX_SHOTS: Final = 10_000_000

Circuit = Annotated[str, Field(min_length=1, max_length=MAX_CIRCUIT_CHARACTERS)]
Shots = Annotated[int, Field(ge=1, le=MAX_SHOTS)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Angles = dict[str, Annotated[float, Field(allow_inf_nan=False)]]
Method = Literal["automatic", "statevector", "density_matrix", "stabilizer", "matrix_product_state"]


class Program(Inputs):
    """A circuit with everything that its counts depend on."""

    circuit: Circuit
    parameters: Angles
    shots: Shots
    seed: Seed
    memory: bool
    method: Method

    @property
    def digest(self) -> str:
        """The name of the program, in 24 characters."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:24]


class Job(Inputs):
    """What ``action: submit`` returns, and what ``poll`` and ``cancel`` take.

    It holds the program, so that a backend whose jobs do not survive their worker can run it again.
    """

    job_id: str = Field(min_length=1, max_length=200)
    backend: str
    status: Literal["queued"] = "queued"
    program: Program


class Request(NamedTuple):
    """A program in a task. ``auth`` is the input of that name, for :func:`noetl_stream.tools.inputs.credential_of`."""

    call: ToolCall
    program: Program
    auth: Auth | None


class Counts(NamedTuple):
    """The number of measurements of each outcome, by its bits; ``memory`` has the outcome of each shot, on request."""

    counts: Mapping[str, int]
    qubits: int
    memory: list[str] | None = None


class JobState(NamedTuple):
    """The state of a job, with its ``counts`` once it is done."""

    status: Literal["queued", "running", "done", "cancelled"]
    counts: Counts | None = None


class Backend(Protocol):
    """Runs circuits. The entry point in ``noetl_stream_quantum.backends`` names its class; a worker has one instance.

    Every method raises :class:`~noetl_stream.tools.contract.ToolFailure`; :meth:`poll` also for a failed job.
    """

    def __init__(self, settings: ToolSettings) -> None: ...

    async def run(self, request: Request) -> Counts:
        """Runs the program; cancelling the call ends the work."""
        ...

    async def submit(self, request: Request) -> str:
        """The id of the job, the same for the same ``call.idempotency_key``."""
        ...

    async def poll(self, job_id: str, request: Request) -> JobState:
        """The present state of the job."""
        ...

    async def cancel(self, job_id: str, request: Request) -> None:
        """Ends the job, if it still runs."""
        ...

    async def close(self) -> None:
        """Releases the resources of the backend."""
        ...
