"""A pool of processes that evaluate templates: started on demand, reused, killed when they exceed their limits."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import Final

from noetl_stream.adapters.evaluation.child import HEADER_BYTES
from noetl_stream.concurrency import Capacity, end_tasks, spare_of
from noetl_stream.engine.choices import answer_json
from noetl_stream.errors import EvaluationEnded, Unreachable

MAX_PROCESSES: Final = 2
MAX_S: Final = 60.0
"""The time that one set of questions may take before its process is killed."""

_PROGRAM: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    "from noetl_stream.adapters.evaluation.child import main; main()"
)


class EvaluationPool:
    """Runs up to ``max_processes`` processes, and a spare one for namespaces without, for a set of questions each."""

    def __init__(self, max_processes: int = MAX_PROCESSES, max_s: float = MAX_S) -> None:
        self._capacity: Final = Capacity(max_processes, spare_of(max_processes))
        self._max_s: Final = max_s
        self._idle: Final[list[Process]] = []
        self._working: Final[set[asyncio.Task[bytes]]] = set()

    async def evaluate(self, questions: bytes, namespace: str = "") -> bytes:
        task = asyncio.create_task(self._evaluate(questions, namespace))
        self._working.add(task)
        try:
            return await task
        finally:
            self._working.discard(task)

    async def close(self) -> None:
        await end_tasks(self._working)
        while self._idle:
            await _kill(self._idle.pop())

    async def _evaluate(self, questions: bytes, namespace: str) -> bytes:
        async with self._capacity.place(namespace=namespace):
            process = self._idle_process() or await _start()
            try:
                async with asyncio.timeout(self._max_s):
                    answers = await exchange(process, questions)
            except TimeoutError:
                await _kill(process)
                raise EvaluationEnded(f"the templates of one decision took more than {self._max_s:g} s") from None
            except (OSError, asyncio.IncompleteReadError):
                await _kill(process)
                raise EvaluationEnded("the templates of one decision took too much memory or time") from None
            except BaseException:
                await _kill(process)
                raise
            self._idle.append(process)
            return answers

    def _idle_process(self) -> Process | None:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
        return None


class MemoryEvaluator:
    """Evaluates templates in this process, and counts the sets of questions."""

    def __init__(self) -> None:
        self.answered = 0

    async def evaluate(self, questions: bytes, namespace: str = "") -> bytes:
        await asyncio.sleep(0)
        self.answered += 1
        return answer_json(questions)

    async def close(self) -> None:
        """Does nothing: the evaluator holds nothing."""


async def exchange(process: Process, questions: bytes) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(len(questions).to_bytes(HEADER_BYTES, "big"))
    process.stdin.write(questions)
    await process.stdin.drain()
    size = await process.stdout.readexactly(HEADER_BYTES)
    return await process.stdout.readexactly(int.from_bytes(size, "big"))


async def _start() -> Process:
    # The import path of this process, without the current folder; -I ignores every other source of paths.
    path = json.dumps([entry for entry in sys.path if entry])
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-c", _PROGRAM, path),
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise Unreachable(f"cannot start a process for templates: {error}") from error


async def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
