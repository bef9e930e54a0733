"""What python and shell tasks write is passed on while they run, and nothing of it is lost when they are stopped."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from noetl_stream.settings.children import ChildSettings
from noetl_stream.tools.child_process import CapturedOutput
from noetl_stream.tools.contract import Tool, ToolFailure
from noetl_stream.tools.python.output import MAX_OUTPUT_BYTES, MAX_WRITTEN_BYTES
from noetl_stream.tools.python.tool import PythonTool
from noetl_stream.tools.shell import ShellTool
from noetl_stream.worker.worker_limits import MAX_TASK_LOG_BYTES

WRITES_AND_WAITS = {
    "python": {"code": "import time\nprint('first', flush=True)\nprint('half', end='', flush=True)\ntime.sleep(1000)"},
    "shell": {"command": "echo first; printf half; sleep 1000"},
}
WRITES_AND_DIES = {
    "python": {"code": "import os, signal\nprint('last words', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"},
    "shell": {"command": "echo last words; kill -9 $$"},
}


class Written:
    """What was passed on, by stream."""

    def __init__(self) -> None:
        self.data = {"stdout": b"", "stderr": b""}
        self.grown = asyncio.Event()

    def __call__(self, stream: str, data: bytes) -> None:
        self.data[stream] += data
        self.grown.set()

    async def until(self, condition: Callable[[dict[str, bytes]], bool]) -> None:
        while not condition(self.data):
            self.grown.clear()
            await self.grown.wait()


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[dict[str, Tool]]:
    settings = ChildSettings(user="worker", paths=(str(tmp_path),))
    made: dict[str, Tool] = {"python": PythonTool(settings, max_children=1), "shell": ShellTool(settings)}
    yield made
    for tool in made.values():
        await tool.close()


@pytest.mark.parametrize("kind", WRITES_AND_WAITS)
async def test_output_is_passed_on_before_the_task_ends(tools: dict[str, Tool], make_call: Any, kind: str) -> None:
    written = Written()
    running = asyncio.create_task(tools[kind].run(replace(make_call(WRITES_AND_WAITS[kind]), write=written)))
    await written.until(lambda data: data["stdout"] == b"first\nhalf")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("kind", WRITES_AND_DIES)
async def test_the_last_words_of_a_killed_task_are_passed_on(tools: dict[str, Tool], make_call: Any, kind: str) -> None:
    written = Written()
    with pytest.raises(ToolFailure):
        await tools[kind].run(replace(make_call(WRITES_AND_DIES[kind]), write=written))
    assert written.data["stdout"] == b"last words\n"


async def test_output_written_before_reading_ends_is_read() -> None:
    heard: list[bytes] = []
    reading_end, writing_end = os.pipe()
    output = CapturedOutput(reading_end, 10, heard.append)
    os.write(writing_end, b"x" * 60_000)  # nothing is read before the loop turns
    output.close()
    os.close(writing_end)
    assert b"".join(heard) == b"x" * 60_000


async def test_shell_tells_its_streams_apart_and_python_has_one(tools: dict[str, Tool], make_call: Any) -> None:
    of_shell, of_python = Written(), Written()
    await tools["shell"].run(replace(make_call({"command": "echo out; echo err >&2"}), write=of_shell))
    code = "import sys, os\nprint('one')\nsys.stderr.write('two\\n')\nos.system('echo three')"
    await tools["python"].run(replace(make_call({"code": code}), write=of_python))
    assert of_shell.data == {"stdout": b"out\n", "stderr": b"err\n"}
    assert of_python.data == {"stdout": b"one\ntwo\nthree\n", "stderr": b""}


async def test_a_run_hears_nothing_of_the_next_one(tools: dict[str, Tool], make_call: Any) -> None:
    first, second = Written(), Written()
    await tools["python"].run(replace(make_call({"code": "print('first')"}), write=first))
    await tools["python"].run(replace(make_call({"code": "print('second')"}), write=second))
    assert (first.data["stdout"], second.data["stdout"]) == (b"first\n", b"second\n")


async def test_code_that_writes_without_end_is_cut_off_in_its_process(tools: dict[str, Tool], make_call: Any) -> None:
    heard = 0

    def count(stream: str, data: bytes) -> None:
        nonlocal heard
        heard += len(data)

    code = f"for _ in range(40):\n    print('x' * {MAX_WRITTEN_BYTES // 20})"
    done = await tools["python"].run(replace(make_call({"code": code}), write=count))
    assert heard == MAX_WRITTEN_BYTES
    assert len(done.output) == MAX_OUTPUT_BYTES


def test_a_process_may_write_as_much_as_a_log_keeps() -> None:
    assert MAX_WRITTEN_BYTES >= MAX_TASK_LOG_BYTES
