"""Kills many process trees at the same time."""

from __future__ import annotations

import asyncio
import os
import sys

import psutil
import pytest

from noetl_stream.tools.child_process import TreeKiller
from noetl_stream.tools.children.linux import adopt_orphans

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process table is read as Linux shows it")

TREES = 20
ESCAPES = "setsid sh -c 'echo; sleep 1000' & sh -c 'echo; sleep 1000' & wait"
"""Two grandchildren, one of them in its own session; each reports when it runs."""


ORPHAN = "(setsid sh -c 'echo; sleep 1000' &); exec sleep 1000 >/dev/null"
"""A process in its own session whose parent has ended."""


class ProcessTable:
    """The process table; ``scans`` counts full scans. The first ``missed`` of them find nothing."""

    def __init__(self, patch: pytest.MonkeyPatch, *, missed: int = 0) -> None:
        self.scans = 0
        real = psutil.Process.children

        def children(process: psutil.Process, *, recursive: bool) -> list[psutil.Process]:
            self.scans += 1
            found: list[psutil.Process] = real(process, recursive=recursive)
            return found if self.scans > missed else []

        patch.setattr(psutil.Process, "children", children)


async def test_trees_that_end_together_are_looked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ProcessTable(monkeypatch)
    reading, writing = os.pipe()
    trees = [
        await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", ESCAPES, stdout=writing, start_new_session=True, preexec_fn=adopt_orphans
        )
        for _ in range(TREES)
    ]
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        for _ in range(2 * TREES):
            await asyncio.to_thread(pipe.readline)
        killer = TreeKiller()
        await asyncio.gather(*(killer.kill(tree.pid) for tree in trees))
        assert table.scans <= 4
        assert await asyncio.to_thread(pipe.read) == b"", "all that held the pipe are gone"
    assert [await tree.wait() for tree in trees] == [-9] * TREES


async def test_a_process_that_one_scan_misses_is_found_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    table = ProcessTable(monkeypatch, missed=1)
    reading, writing = os.pipe()
    tree = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", ORPHAN, stdout=writing, start_new_session=True, preexec_fn=adopt_orphans
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        await asyncio.to_thread(pipe.readline)
        await TreeKiller().kill(tree.pid)
        assert table.scans >= 3
        assert await asyncio.to_thread(pipe.read) == b"", "all that held the pipe are gone"
    assert await tree.wait() == -9


async def test_a_kill_completes_after_its_caller_is_cancelled() -> None:
    tree = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True, preexec_fn=adopt_orphans)
    kill = asyncio.create_task(TreeKiller().kill(tree.pid))
    await asyncio.sleep(0)
    kill.cancel()
    assert await tree.wait() == -9
