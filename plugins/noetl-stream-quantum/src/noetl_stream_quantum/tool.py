"""``kind: quantum``: runs a circuit and returns its counts, or submits it as a job that later tasks poll."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from importlib.metadata import entry_points
from typing import Any, Final, Literal

from pydantic import Field

from noetl_stream.playbook.kinds.spec import KindSpec
from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolCall, ToolFailure, ToolResult
from noetl_stream.tools.inputs import Auth, Inputs, Knobs, auth_field, invalid_input, own_settings, validated
from noetl_stream_quantum.program import Angles, Backend, Circuit, Counts, Job, Method, Program, Request, Seed, Shots
from noetl_stream_quantum.settings import QuantumSettings

BACKENDS: Final = "noetl_stream_quantum.backends"
DEFAULT_BACKEND: Final = "aer"
DEFAULT_SHOTS: Final = 1024


class QuantumInputs(Inputs):
    """Inputs of ``quantum``: ``circuit`` with ``run`` and ``submit``, ``job`` with ``poll`` and ``cancel``."""

    action: Literal["run", "submit", "poll", "cancel"] = Field(
        default="run", description="`run` waits for the counts; `submit` returns a job for `poll` and `cancel`."
    )
    circuit: Circuit | None = Field(default=None, description="The program, in OpenQASM 3.")
    parameters: Angles | None = Field(default=None, description="Values of the program's `input` variables, by name.")
    shots: Shots = Field(default=DEFAULT_SHOTS, description="How often the program is run.")
    seed: Seed | None = Field(
        default=None, description="The same seed gives the same counts. Default: one that derives from the task run."
    )
    memory: bool = Field(default=False, description="Whether to return the outcome of each shot too, in order.")
    backend: str | None = Field(
        default=None, min_length=1, description=f"Where to run it. Default: `{DEFAULT_BACKEND}`, a simulator."
    )
    job: Job | None = Field(default=None, description="The result of `submit`.")
    auth: Auth | None = auth_field(None, "The credential of the backend, if it needs one.")


class QuantumKnobs(Knobs):
    """Knobs of ``quantum``."""

    method: Method = Field(default="automatic", description="How a simulator computes.")


_OF_A_PROGRAM: Final = ("parameters", "shots", "seed", "memory", "backend")


def _combination_error(given: Collection[str]) -> str | None:
    if ("circuit" in given) == ("job" in given):
        return "`quantum` needs either `circuit` (to run or submit) or `job` (to poll or cancel)"
    unused = [name for name in _OF_A_PROGRAM if "job" in given and name in given]
    return f"`{unused[0]}` goes with `circuit`; `job` has its own" if unused else None


class QuantumTool:
    """Passes tasks to backends, each made for the first task that names it."""

    spec = KindSpec(kind="quantum", inputs=QuantumInputs, knobs=QuantumKnobs, combination_error=_combination_error)
    settings = QuantumSettings

    def __init__(self, settings: ToolSettings | None = None) -> None:
        self._settings = settings or ToolSettings()
        self._backends: dict[str, Backend] = {}

    @classmethod
    def configured(cls, settings: ToolSettings) -> QuantumTool:
        """The tool with the operator's settings.

        Raises:
            UsageError: ``NOETL_TOOL_QUANTUM`` is invalid.
        """
        own_settings(QuantumSettings, cls.spec.kind, settings)
        return cls(settings)

    async def run(self, call: ToolCall) -> ToolResult:
        """Returns the counts (``run``; ``poll`` of a job that is done), the state of the job, or the job (``submit``).

        Raises:
            ToolFailure: ``invalid_input``, ``not_found`` (the backend), or what the backend raises.
        """
        inputs, knobs = validated(QuantumInputs, call.inputs), validated(QuantumKnobs, call.knobs)
        problem = _combination_error(inputs.model_fields_set) or _action_error(inputs)
        if problem is not None:
            raise invalid_input(problem)
        if inputs.job is not None:
            return await self._follow(inputs.job, inputs, call)
        name = inputs.backend or DEFAULT_BACKEND
        backend, request = self._backend(name), Request(call, _program(inputs, knobs, call), inputs.auth)
        if inputs.action == "run":
            return ToolResult(_shown(name, request.program, await backend.run(request)))
        job = Job(job_id=await backend.submit(request), backend=name, program=request.program)
        return ToolResult(job.model_dump())

    async def close(self) -> None:
        """Closes the backends."""
        for backend in self._backends.values():
            await backend.close()

    async def _follow(self, job: Job, inputs: QuantumInputs, call: ToolCall) -> ToolResult:
        backend, request = self._backend(job.backend), Request(call, job.program, inputs.auth)
        if inputs.action == "cancel":
            await backend.cancel(job.job_id, request)
            return ToolResult({"job_id": job.job_id, "backend": job.backend, "status": "cancelled"})
        state = await backend.poll(job.job_id, request)
        if state.counts is not None:
            return ToolResult({"job_id": job.job_id, **_shown(job.backend, job.program, state.counts)})
        return ToolResult({"job_id": job.job_id, "backend": job.backend, "status": state.status})

    def _backend(self, name: str) -> Backend:
        if name not in self._backends:
            found = entry_points(group=BACKENDS)
            if name not in found.names:
                message = f"there is no backend {name!r} on this worker; it has {', '.join(sorted(found.names))}"
                raise ToolFailure.of("not_found", message, code="backend")
            self._backends[name] = found[name].load()(self._settings)
        return self._backends[name]


def _action_error(inputs: QuantumInputs) -> str | None:
    needed = "circuit" if inputs.action in ("run", "submit") else "job"
    return f"action: {inputs.action} needs `{needed}`" if getattr(inputs, needed) is None else None


def _program(inputs: QuantumInputs, knobs: QuantumKnobs, call: ToolCall) -> Program:
    assert inputs.circuit is not None
    return Program(
        circuit=inputs.circuit,
        parameters=inputs.parameters or {},
        shots=inputs.shots,
        seed=_seed_of(call) if inputs.seed is None else inputs.seed,
        memory=inputs.memory,
        method=knobs.method,
    )


def _seed_of(call: ToolCall) -> int:
    """A seed that redeliveries of the task share."""
    return int.from_bytes(hashlib.sha256(call.idempotency_key.encode()).digest()[:4], "big")


def _shown(backend: str, program: Program, found: Counts) -> dict[str, Any]:
    result = {
        "backend": backend,
        "status": "done",
        "counts": dict(found.counts),
        "shots": program.shots,
        "seed": program.seed,
        "qubits": found.qubits,
    }
    return result if found.memory is None else {**result, "memory": found.memory}
