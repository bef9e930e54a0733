"""What the processes of a child use together is bounded where the worker can make control groups."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from noetl_stream.settings.children import ChildSettings
from noetl_stream.testing.calls import tool_call
from noetl_stream.tools.cgroups import Cgroups, delegated_folder, own_cgroups, remove_orphans
from noetl_stream.tools.children.measures import confinement_of
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.python.tool import PythonTool
from noetl_stream.tools.shell import ShellTool

MEMORY_BYTES = 192 * 1024**2
SETTINGS = ChildSettings(memory_bytes=MEMORY_BYTES, processes=24)

needs_cgroups = pytest.mark.skipif(
    not own_cgroups().folders or confinement_of(SETTINGS).level != "full",
    reason=f"the kernel gives this process no control groups: {own_cgroups().why_not}",
)

FILL = """
import os
for folder in ("/tmp", "/dev/shm"):
    with open(f"{folder}/filled", "wb") as file:
        file.write(bytes(80 * 1024**2))
    assert os.path.getsize(f"{folder}/filled") == 80 * 1024**2
kept = bytearray(80 * 1024**2)
"""
"""Each part is within its own bound."""

FORK = """
import os, signal
started = []
try:
    while len(started) < 48:
        started.append(os.fork())
        if not started[-1]:
            signal.pause()
except BlockingIOError:
    pass
return len(started)
"""

GROUPS = "return [line.split(':', 2)[2].strip() for line in open('/proc/self/cgroup') if '/noetl-' in line]"


async def outcome(tool: PythonTool | ShellTool, inputs: dict[str, Any]) -> Any:
    try:
        return (await tool.run(tool_call(inputs, trust_domain="one"))).result
    except ToolFailure as failed:
        return failed.error.kind, failed.error.retryable, failed.error.message


@needs_cgroups
async def test_a_python_task_over_its_memory_with_files_is_told_why() -> None:
    tool = PythonTool(SETTINGS)
    kind, retryable, message = await outcome(tool, {"code": FILL})
    after = await outcome(tool, {"code": "import os\nreturn os.listdir('/dev/shm')"})
    killed = await outcome(tool, {"code": "import os\nos.kill(os.getpid(), 9)"})
    await tool.close()
    assert (kind, retryable) == ("memory", False)
    assert "201,326,592 bytes, with what is in /tmp and /dev/shm (NOETL_CHILD_MEMORY_BYTES)" in message
    assert after == []
    assert killed[:2] == ("crashed", True)


@needs_cgroups
async def test_a_task_gets_no_notice_about_the_memory_of_an_earlier_one() -> None:
    tool = PythonTool(SETTINGS)
    filled = f"import subprocess, sys\nreturn subprocess.run([sys.executable, '-c', {FILL!r}]).returncode"
    assert await outcome(tool, {"code": filled}) == -signal.SIGKILL
    killed = await outcome(tool, {"code": "import os\nos.kill(os.getpid(), 9)"})
    await tool.close()
    assert killed[:2] == ("crashed", True)


@needs_cgroups
async def test_a_command_whose_processes_together_exceed_the_memory_is_told_why() -> None:
    tool = ShellTool(SETTINGS)
    fill = "head -c 80M /dev/zero | tee /tmp/a > /dev/shm/b; head -c 80M /dev/zero | tail -n 1 > /dev/null; exit 3"
    kind, _, message = await outcome(tool, {"command": fill})
    failed = await outcome(tool, {"command": "exit 3"})
    await tool.close()
    assert kind == "memory"
    assert "NOETL_CHILD_MEMORY_BYTES" in message
    assert failed[0] == "exit_status"


@needs_cgroups
async def test_the_memory_of_all_processes_of_a_task_is_bounded_together() -> None:
    tool = PythonTool(ChildSettings(user="worker", processes=24))
    started = await outcome(tool, {"code": FORK})
    await tool.close()
    assert 0 < started < 24


YIELDS = "import os\nreturn [os.nice(0), open('/proc/self/oom_score_adj').read().strip()]"


@pytest.mark.parametrize("user", ["own", "worker"])
async def test_children_leave_the_processor_to_the_worker_and_are_killed_before_it(user: str) -> None:
    python, shell = PythonTool(ChildSettings(user=user)), ShellTool(ChildSettings(user=user))
    seen = await outcome(python, {"code": YIELDS})
    command = await outcome(shell, {"command": "nice; cat /proc/self/oom_score_adj"})
    for tool in (python, shell):
        await tool.close()
    nice = min(19, os.nice(0) + 5)
    assert seen == [nice, "500"]
    assert command["stdout"].split() == [str(nice), "500"]


@needs_cgroups
@pytest.mark.skipif(not Path("/sys/fs/cgroup/cpu").is_dir(), reason="only version 1 has a tree of the processor")
async def test_all_children_together_have_the_processor_share_of_one_process() -> None:
    tool = PythonTool(SETTINGS)
    (group,) = {one for one in await outcome(tool, {"code": GROUPS}) if "noetl-tasks/" in one}
    await tool.close()
    together = Path(f"/sys/fs/cgroup/cpu{group}").parent
    assert (together / "cpu.shares").read_text().strip() == "1024"


@needs_cgroups
@pytest.mark.parametrize("killed", [False, True])
async def test_a_group_is_removed_with_its_child_also_if_what_started_it_was_killed(killed: bool) -> None:
    tool = PythonTool(SETTINGS)
    names = [Path(group).name for group in await outcome(tool, {"code": GROUPS})]
    folders = [Path(folder, name) for folder in own_cgroups().folders for name in names]
    there = [folder.is_dir() for folder in folders]
    if killed:
        os.kill(int(names[0].split("-")[1]), signal.SIGKILL)
    await tool.close()
    assert there
    assert all(there)
    assert not any(folder.exists() for folder in folders)


def test_groups_are_removed_whose_makers_were_killed(tmp_path: Path) -> None:
    ended, living = tmp_path / "noetl-4194305-1", tmp_path / f"noetl-{os.getpid()}-1"
    for folder in (ended, living, tmp_path / "noetl-worker", tmp_path / "another"):
        folder.mkdir()
    remove_orphans(Cgroups((str(tmp_path),)))
    assert {folder.name for folder in tmp_path.iterdir()} == {living.name, "noetl-worker", "another"}


def group_of_version_2(folder: Path, controllers: str) -> Path:
    """Makes what the kernel shows of a group that was handed to this process."""
    (folder / "noetl-worker").mkdir()
    for name in (
        "cgroup.events",
        "cgroup.subtree_control",
        "cgroup.procs",
        "noetl-worker/cgroup.procs",
        "noetl-worker/cpu.weight",
    ):
        (folder / name).touch()
    (folder / "cgroup.controllers").write_text(controllers)
    return folder


def test_with_version_2_a_worker_moves_aside_and_hands_its_controllers_on(tmp_path: Path) -> None:
    folder = group_of_version_2(tmp_path, "cpuset cpu io memory pids\n")
    assert delegated_folder(str(folder)) == str(folder)
    assert (folder / "noetl-worker" / "cgroup.procs").read_text() == "0"
    assert (folder / "cgroup.subtree_control").read_text() == "+cpu +io +memory +pids"
    assert (folder / "noetl-worker" / "cpu.weight").read_text() == "10000"
    assert delegated_folder(str(folder / "noetl-worker")) == str(folder)


def test_with_version_2_a_worker_stays_where_the_group_is_not_its_alone(tmp_path: Path) -> None:
    folder = group_of_version_2(tmp_path, "memory pids\n")
    (folder / "cgroup.subtree_control").unlink()
    (folder / "cgroup.subtree_control").mkdir()
    with pytest.raises(OSError):
        delegated_folder(str(folder))
    assert (folder / "cgroup.procs").read_text() == "0"


@pytest.mark.parametrize("controllers", ["memory\n", "cpu io pids\n", ""])
def test_with_version_2_a_worker_needs_controllers_of_memory_and_processes(tmp_path: Path, controllers: str) -> None:
    with pytest.raises(OSError, match="no controllers of memory and processes"):
        delegated_folder(str(group_of_version_2(tmp_path, controllers)))
