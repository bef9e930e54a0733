"""The documents' commands and the demonstration, as a newcomer runs them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from journey_stack import ROOT, LiveStack

from homes import copy_home
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("journeys")

DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands(path: Path) -> list[list[str]]:
    """The commands of all `sh` blocks, comments left out."""
    lines = [line for text in SHELL.findall(path.read_text()) for line in text.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not under pytest's: each pytest that starts closes that to other users, and Postgres may run as one."""
    with tempfile.TemporaryDirectory(prefix="noetl-docs-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_every_command_of_the_documents_runs(
    start_stack: Callable[[int, int], LiveStack], used_home: Path, folder: Path
) -> None:
    stack = start_stack(1, 1)
    copy_home(used_home, folder / "bench-home")
    shutil.copytree(ROOT / "playbooks", folder / "playbooks")
    settings = {"NOETL_HOME": str(stack.home), "PATH": "/usr/bin:/bin"}
    ran = 0
    for path in DOCUMENTS:
        for words in commands(path):
            if words[0] == "make":
                continue
            assert words[0] == "noetl-stream", f"{path.name}: {words}"
            ended = noetl(*words[1:], cwd=folder, timeout_s=120, **settings)
            assert ended.returncode == 0, (words, ended.stderr)
            ran += 1
    assert ran >= 4


@pytest.mark.verify
def test_the_demonstration_ends_well_and_leaves_nothing(used_home: Path, folder: Path) -> None:
    home = copy_home(used_home, folder / "home")
    command = [sys.executable, str(ROOT / "playbooks" / "demo.py"), str(home)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert "3376" in ended.stdout
    log = (home / "demo.log").read_text()
    assert "code=429" in log and "code=503" in log
    assert " WARNING " not in ended.stdout + ended.stderr
    assert "completed" in ended.stderr
    assert [process.info["cmdline"] for process in psutil.process_iter(["cmdline"]) if mentions(process, home)] == []


def mentions(process: psutil.Process, home: Path) -> bool:
    return any(str(home) in argument for argument in process.info["cmdline"] or [])
