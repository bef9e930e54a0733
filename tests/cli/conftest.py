"""Playbook files and homes of a test's own."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli_program import FAILING, ONE_STEP, WAITING, processes_of


@pytest.fixture
def playbook(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a playbook file."""

    def write(text: str, name: str = "playbook.yaml") -> Path:
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return write


@pytest.fixture
def one_step(playbook: Callable[[str], Path]) -> Path:
    return playbook(ONE_STEP)


@pytest.fixture
def failing(playbook: Callable[[str], Path]) -> Path:
    return playbook(FAILING)


@pytest.fixture
def waiting(playbook: Callable[[str], Path]) -> Path:
    return playbook(WAITING)


@pytest.fixture
def fresh_home() -> Iterator[Path]:
    """A home nobody has used; whatever a failed test leaves running there is ended."""
    folder = Path(tempfile.mkdtemp(prefix="noetl-cli-")).resolve()
    home = folder / "home"
    yield home
    for process in processes_of(home):
        os.kill(process.pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
