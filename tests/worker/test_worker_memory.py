"""The memory that a worker keeps: of the parts of files, and of ended runs."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
from worker_stage import Stage

from noetl_stream.tools.children.linux import LIBC
from noetl_stream.worker.command.run import CommandRun

PARTS = """
import sys, threading
from pathlib import Path
from noetl_stream.tools.children.linux import return_large_buffers

if "return" in sys.argv:
    return_large_buffers()
kept, together = [], threading.Barrier(4)

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 2**20

def write_parts():
    for _ in range(4):
        part = b"x" * 2**22
        together.wait()
        kept.append(b"y" * 2_000)  # above it in the heap
        del part

part = b"x" * 2**22
del part  # which raises the bound of glibc
before = resident()
threads = [threading.Thread(target=write_parts) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
print(resident() - before)
"""


def kept_mib(*arguments: str) -> int:
    command = [sys.executable, "-c", PARTS, *arguments]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not hasattr(LIBC, "mallopt"), reason="another library of C")
def test_threads_keep_no_parts_of_files_that_they_have_sealed() -> None:
    assert kept_mib() >= 8, "what glibc does by itself is what this is for"
    assert kept_mib("return") < 4


def runs() -> list[CommandRun]:
    return [one for one in gc.get_objects() if isinstance(one, CommandRun)]


async def test_an_ended_run_is_freed_without_the_garbage_collector(stage: Stage) -> None:
    await stage.start()
    command = stage.command(stage.plan("- {step: start, tool: {kind: noop}}"))
    gc.collect()
    earlier = runs()  # that other tests have left
    gc.disable()
    try:
        await stage.issue(command)
        assert stage.reports, "it has ended"
        assert [one for one in runs() if one not in earlier] == []
    finally:
        gc.enable()
