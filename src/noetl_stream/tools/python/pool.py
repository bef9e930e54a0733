"""The worker's pool of child processes for ``kind: python``, each for one trust domain during its life."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from noetl_stream.concurrency import Capacity, spare_of
from noetl_stream.tools.children.launcher import Launcher
from noetl_stream.tools.children.messages import ANSWER_S
from noetl_stream.tools.contract import ToolFailure, WorkerUnfit
from noetl_stream.tools.python.shared import SharedProcess
from noetl_stream.tools.python.template import Child, Imports, NotBegun, PythonAnswer, PythonJob

_TRIES: Final = 2
"""The number of successive children that may fail before they can take a job."""
MAX_WHY_CHARS: Final = 500


class ChildPool:
    """Runs up to ``max_children`` children, and spare ones for namespaces without one, each with a job or a shared
    process; other jobs wait for their turn.

    Attributes:
        capacity: The running and waiting jobs.
        started: The number of started children.
        killed: The number of job processes that died or were killed.
    """

    def __init__(self, launcher: Launcher, *, max_children: int, answer_s: float = ANSWER_S) -> None:
        self._launcher = launcher
        self._max_children = max_children
        self.capacity = Capacity(max_children, spare_of(max_children))
        self._answer_s = answer_s
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._ending: set[asyncio.Task[int]] = set()
        self._shared: dict[SharedProcess, str] = {}
        self.started = self.killed = 0

    def __len__(self) -> int:
        return len(self._idle) + len(self._busy)

    @property
    def folders(self) -> set[str]:
        """The folders that living children import from."""
        return {folder for child in (*self._idle, *self._busy) for folder in child.imports.folders.values()}

    async def run(self, job: PythonJob) -> PythonAnswer:
        """Runs one job in a child. Cancelling it kills its process and everything it started.

        Raises:
            ChildDied: The process ended before it answered.
            WorkerUnfit: No process could be started.
        """
        if job.shares and job.domain is not None:
            return await self._run_shared(job, job.domain)
        for _ in range(_TRIES):
            async with self._child(job) as child:
                try:
                    return await child.run(job)
                except NotBegun:
                    self.killed += 1
                except BaseException:
                    self.killed += 1
                    raise
        raise WorkerUnfit(f"the process that should run it died {_TRIES} times before it had begun")

    async def self_test(self) -> None:
        """Starts a child until it could take a job, and ends it.

        Raises:
            WorkerUnfit: It could not.
        """
        child = await Child.start(self._launcher, None, self._answer_s)
        try:
            if not await child.is_ready():
                raise WorkerUnfit("the process that forks those of jobs ended or stopped answering")
        finally:
            self._end(child)

    async def close(self) -> None:
        """Kills every child and waits for them to end."""
        for shared in self._shared:
            shared.end()
        while self._shared:
            await asyncio.wait([shared.life for shared in self._shared])
            await asyncio.sleep(0)
        for child in (*self._idle, *self._busy):
            self._end(child)
        self._idle.clear()
        while self._ending:
            await asyncio.wait(self._ending)
        await self._launcher.close()

    async def _run_shared(self, job: PythonJob, domain: str) -> PythonAnswer:
        for _ in range(_TRIES):
            fitting = (
                shared for shared, its_domain in self._shared.items() if its_domain == domain and shared.takes_jobs
            )
            shared = next(fitting, None) or self._share(job, domain)
            with contextlib.suppress(NotBegun):
                return await shared.run(job)
        raise WorkerUnfit(f"the process that runs share died {_TRIES} times before this one had begun")

    def _share(self, job: PythonJob, domain: str) -> SharedProcess:
        shared = SharedProcess(self._child(job._replace(queued=contextlib.nullcontext)), self.capacity)
        self._shared[shared] = domain
        shared.life.add_done_callback(lambda _: self._forget(shared))
        return shared

    def _forget(self, shared: SharedProcess) -> None:
        del self._shared[shared]
        self.killed += shared.has_failed

    @contextlib.asynccontextmanager
    async def _child(self, job: PythonJob) -> AsyncIterator[Child]:
        """Yields a child that is ready for the job, and holds a place."""
        if self.capacity.is_full(job.namespace) and (resting := next((one for one in self._shared if one.rests), None)):
            resting.end()
        async with self.capacity.place(job.queued, job.namespace):
            child = await self._ready_child(job.domain, job.imports)
            try:
                yield child
            finally:
                self._leave(child)

    async def _ready_child(self, domain: str | None, imports: Imports) -> Child:
        self._launcher.check()
        why = ""
        for _ in range(_TRIES):
            child = self._idle_child(domain) or await self._start(domain, imports)
            self._busy.add(child)
            is_ready = False
            try:
                is_ready = child.has_next or await child.is_ready()
                if is_ready:
                    return child
                child.kill()
                why = "exit code {}: {}".format(*await child.last_exit())
            finally:
                if not is_ready:
                    self._leave(child)
        ended = f"the process that forks those of jobs ended or stopped answering {_TRIES} times"
        message = f"{ended}, the last with {why.strip()[-MAX_WHY_CHARS:]}"
        if imports.environment is not None:  # whose interpreter runs code of its packages
            raise ToolFailure.of("environment", f"no task can run in its environment: {message}")
        raise WorkerUnfit(message)

    def _leave(self, child: Child) -> None:
        self._busy.discard(child)
        if child.is_running or child.has_ended or child.domain is None:
            self._end(child)
        else:
            self._idle.append(child)

    def _idle_child(self, domain: str | None) -> Child | None:
        """Returns an idle child of the domain, preferably one whose next process is ready."""
        for ended in [child for child in self._idle if child.has_ended]:
            self._idle.remove(ended)
            self._end(ended)
        idle = [child for child in self._idle if child.domain == domain]
        found = next((child for child in reversed(idle) if child.has_next), idle[-1] if idle else None)
        if found is not None:
            self._idle.remove(found)
        return found

    async def _start(self, domain: str | None, imports: Imports) -> Child:
        if self._idle and len(self) >= self._max_children:
            self._end(self._idle.pop(0))  # the one that was unused for longest
        child = await Child.start(self._launcher, domain, self._answer_s, imports)
        self.started += 1
        return child

    def _end(self, child: Child) -> None:
        child.kill()
        task = asyncio.get_running_loop().create_task(child.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
