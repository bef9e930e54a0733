"""The page about tool kinds, followed from an empty folder: a package is made, installed and run."""

from __future__ import annotations

import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from journey_stack import ROOT
from walkthrough import Walkthrough, steps

from cli_program import NOETL
from homes import copy_home, folder_for_home

PAGE = (ROOT / "docs" / "how-to" / "write-a-tool-kind.md").read_text()


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment that has what this one has, and into which more can be installed without an index."""
    folder = tmp_path / "venv"
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages" / "these.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    )
    programs = {
        "noetl-stream": f'"{folder}/bin/python" -m {NOETL[-1]} "$@"',
        "pytest": f'"{folder}/bin/python" -m pytest -q -p no:cacheprovider "$@"',
        "pip": f'"{Path(sys.executable).with_name("uv")}" pip "$1" -q --no-deps --no-index --no-build-isolation '
        f'--python "{folder}/bin/python" "$2"',
    }
    for name, command in programs.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\nexec {command}\n")
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.fixture
def home(used_home: Path) -> Iterator[Path]:
    with folder_for_home("tool") as folder:
        yield copy_home(used_home, folder / "home")


@pytest.mark.verify
@pytest.mark.xdist_group("own_stacks")
def test_the_page_makes_a_package_whose_kind_runs(environment: Path, home: Path, tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path), "NOETL_HOME": str(home), "PATH": f"{environment}/bin:/usr/bin:/bin"}
    with Walkthrough(tmp_path, variables, {}) as reader:
        for step in steps(PAGE):
            reader.do(step)
    assert any(environment.rglob("noetl_stream_lamp/tool.py"))
