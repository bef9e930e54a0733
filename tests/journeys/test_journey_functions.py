"""The page about functions, followed from an empty folder (call-a-function.md)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from journey_stack import ROOT
from walkthrough import Walkthrough, steps

from homes import copy_home, folder_for_home

PAGE = (ROOT / "docs" / "how-to" / "call-a-function.md").read_text()


@pytest.fixture
def folder(used_home: Path) -> Iterator[Path]:
    """A folder that children of a worker can read, with a home in it."""
    with folder_for_home("functions") as folder:
        copy_home(used_home, folder / "home")
        (folder / "shop").mkdir()
        yield folder


@pytest.mark.verify
@pytest.mark.xdist_group("own_stacks")
def test_the_page_leads_to_a_playbook_that_calls_a_tested_function(folder: Path) -> None:
    shop = folder / "shop"
    programs = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    with Walkthrough(shop, {"HOME": str(folder), "NOETL_HOME": str(folder / "home"), "PATH": programs}, {}) as reader:
        for step in steps(PAGE):
            reader.do(step)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"]
    tested = subprocess.run(command, cwd=shop, capture_output=True, text=True)
    assert "1 passed" in tested.stdout
