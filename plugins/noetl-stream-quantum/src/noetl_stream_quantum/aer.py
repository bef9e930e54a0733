"""The backend ``aer``: a simulator in child processes of the worker. Its jobs end with the worker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from noetl_stream.settings.tools import ToolSettings
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.inputs import invalid_input, own_settings
from noetl_stream.tools.python.function import ChildFunction
from noetl_stream_quantum.program import Counts, JobState, Request
from noetl_stream_quantum.settings import QuantumSettings

MAX_JOBS: Final = 256
"""The maximum number of waiting and running jobs."""
MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""The maximum size of the counts kept for polls. Dropped counts are simulated again."""

_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
"""Prevents threads on import of the libraries, which the fork of a child would lose."""

Key = tuple[str, str]
"""A trust domain and a job id: runs of different domains do not meet."""


class AerBackend:
    """Simulates up to ``max_simulations`` programs at a time; others wait.

    A program with its seed determines its counts, so a job's id names its program: :meth:`poll` starts a job that this
    worker does not have, with the same counts.
    """

    def __init__(self, settings: ToolSettings) -> None:
        self._limits = own_settings(QuantumSettings, "quantum", settings)
        at_once = self._limits.max_simulations or os.cpu_count() or 1
        self._slots = asyncio.Semaphore(at_once)
        self._simulate = ChildFunction(
            "noetl_stream_quantum.simulation:simulate",
            settings.children,
            environment=_ONE_THREAD,
            max_children=at_once,
        )
        self._jobs: dict[Key, SimulatorJob] = {}

    async def run(self, request: Request) -> Counts:
        """See :class:`~noetl_stream_quantum.program.Backend`.

        Raises:
            ToolFailure: as of :func:`~noetl_stream_quantum.simulation.simulate` and
                :class:`~noetl_stream.tools.python.function.ChildFunction`; ``not_allowed`` (too many shots).
        """
        self._check(request)
        async with self._slots:
            return await self._counts(request)

    async def submit(self, request: Request) -> str:
        """Starts the job. Raises a retryable ``refused`` while too many jobs wait."""
        self._check(request)
        self._started(request)
        return _id_of(request)

    async def poll(self, job_id: str, request: Request) -> JobState:
        """Raises ``timeout`` for a job that ran longer than ``max_job_s``."""
        self._check(request, job_id)
        return self._started(request).state()

    async def cancel(self, job_id: str, request: Request) -> None:
        """Kills the simulation."""
        self._check(request, job_id)
        job = self._jobs.pop(_key_of(request), None)
        if job is not None:
            await job.cancel()

    async def close(self) -> None:
        """Kills all simulations."""
        await asyncio.gather(*(job.cancel() for job in self._jobs.values()))
        await self._simulate.close()

    def _check(self, request: Request, job_id: str | None = None) -> None:
        if request.auth is not None:
            raise invalid_input("auth: the backend aer needs none; remove it")
        if job_id is not None and job_id != _id_of(request):
            raise invalid_input("job: is not as `submit` returned it")
        if request.program.shots > self._limits.max_shots:
            most = f"NOETL_TOOL_QUANTUM, max_shots: {self._limits.max_shots}"
            message = f"shots: {request.program.shots} is more than the worker's operator allows ({most})"
            raise ToolFailure.of("not_allowed", message, code="max_shots")

    async def _counts(self, request: Request) -> Counts:
        limits = {"max_qubits": self._limits.max_qubits, "max_memory_mb": self._limits.max_memory_mb}
        found = await self._simulate(request.call, {"program": request.program.model_dump(), **limits})
        return Counts(**found)

    def _started(self, request: Request) -> SimulatorJob:
        """The job of the request, now the most recently used."""
        key = _key_of(request)
        job = self._jobs.pop(key, None)
        if job is None:
            self._make_room()
            job = SimulatorJob(lambda: self._counts(request), self._slots, self._limits.max_job_s)
        self._jobs[key] = job
        return job

    def _make_room(self) -> None:
        ended = [key for key, job in self._jobs.items() if job.has_ended]
        kept_bytes = sum(self._jobs[key].kept_bytes for key in ended)
        for key in ended:
            if len(self._jobs) < MAX_JOBS and kept_bytes <= MAX_KEPT_BYTES:
                return
            kept_bytes -= self._jobs.pop(key).kept_bytes
        if len(self._jobs) >= MAX_JOBS:
            message = f"{MAX_JOBS} jobs wait or run on this worker; submit again later"
            raise ToolFailure.of("refused", message, retryable=True, code="max_jobs")


class SimulatorJob:
    """A simulation in the background. It waits for one of ``slots``, then has ``max_s`` seconds."""

    def __init__(self, simulate: Callable[[], Awaitable[Counts]], slots: asyncio.Semaphore, max_s: float) -> None:
        self._slots = slots
        self._max_s = max_s
        self._is_running = False
        self._task = asyncio.get_running_loop().create_task(self._run(simulate))
        self._task.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may ever poll it

    @property
    def has_ended(self) -> bool:
        return self._task.done()

    @property
    def kept_bytes(self) -> int:
        """The size of the counts of an ended job."""
        failed = self._task.cancelled() or self._task.exception() is not None
        return 0 if failed else len(self._task.result())

    def state(self) -> JobState:
        """Raises the :class:`ToolFailure` of a job that failed."""
        if self._task.done():
            return JobState("done", msgspec.json.decode(self._task.result(), type=Counts))
        return JobState("running" if self._is_running else "queued")

    async def cancel(self) -> None:
        """Ends the simulation, and waits for its end."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self, simulate: Callable[[], Awaitable[Counts]]) -> bytes:
        async with self._slots:
            self._is_running = True
            try:
                async with asyncio.timeout(self._max_s):
                    return msgspec.json.encode(await simulate())
            except TimeoutError:
                message = f"the job took longer than {self._max_s:g} s (NOETL_TOOL_QUANTUM, max_job_s)"
                raise ToolFailure.of("timeout", message, code="max_job_s") from None


def _id_of(request: Request) -> str:
    return f"aer-{request.program.digest}"


def _key_of(request: Request) -> Key:
    return request.call.trust_domain, _id_of(request)
