"""Playbook files and homes of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli_program import FAILING, ONE_STEP, WAITING
from homes import copy_home, folder_for_home
from in_memory import quick_folder


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
    """A home that was never used."""
    with folder_for_home("cli", quick_folder()) as folder:
        yield folder / "home"


@pytest.fixture
def own_home(used_home: Path, fresh_home: Path) -> Path:
    """A home of the test's own, which starts quickly: it was used before."""
    return copy_home(used_home, fresh_home)
