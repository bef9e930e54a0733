"""Kills many process trees at the same time."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from noetl_stream.tools import process_tree
from noetl_stream.tools.process_tree import TreeKiller, adopt_orphans

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the process table is read as Linux shows it")

TREES = 20
ESCAPES = "setsid sh -c 'echo; sleep 1000' & sh -c 'echo; sleep 1000' & wait"
"""Two grandchildren, one of them in its own session; each reports when it runs."""


class CountedFolder:
    """The process table; ``looks`` counts full scans."""

    def __init__(self) -> None:
        self.looks = 0

    def iterdir(self) -> list[Path]:
        self.looks += 1
        return list(Path("/proc").iterdir())


async def test_trees_that_end_together_are_looked_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CountedFolder()
    monkeypatch.setattr(process_tree, "_PROCESSES", folder)
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
        assert folder.looks <= 4
        assert await asyncio.to_thread(pipe.read) == b"", "all that held the pipe are gone"
    assert [await tree.wait() for tree in trees] == [-9] * TREES


async def test_a_kill_completes_after_its_caller_is_cancelled() -> None:
    tree = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True, preexec_fn=adopt_orphans)
    kill = asyncio.create_task(TreeKiller().kill(tree.pid))
    await asyncio.sleep(0)
    kill.cancel()
    assert await tree.wait() == -9
