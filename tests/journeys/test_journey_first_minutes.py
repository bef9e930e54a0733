"""A fresh clone, and the first command somebody types there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from journey_stack import ROOT

pytestmark = [pytest.mark.verify, pytest.mark.xdist_group("journeys")]

NOT_CLONED = shutil.ignore_patterns(".git", ".venv", ".demo", ".*_cache", ".hypothesis", "__pycache__", "dist")
BASE_PROGRAMS = f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"
PATIENCE_S = 900.0


@pytest.fixture
def clone() -> Iterator[Path]:
    """Not under pytest's folder: that one is closed to Postgres' system user when we are root."""
    with tempfile.TemporaryDirectory(prefix="noetl-clone-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        yield shutil.copytree(ROOT, Path(folder) / "clone", ignore=NOT_CLONED)


def make(clone: Path, target: str, path: str = BASE_PROGRAMS) -> str:
    """What a target prints; it must succeed."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("NOETL_", "MAKE"))}
    made = subprocess.run(
        ["make", target], cwd=clone, env=variables | {"PATH": path}, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert made.returncode == 0, made.stderr
    assert " WARNING " not in made.stdout + made.stderr, "what servers log is in a file"
    return made.stdout


def test_the_demonstration_needs_a_python_and_make_and_tells_what_it_does(clone: Path) -> None:
    output = make(clone, "demo")
    announced = [
        "environment: Python ",
        "environment: ready in ",
        "demo: starting ",
        "demo: running ",
        "3376",
        "demo: done",
        "the servers' log is .demo/demo.log",
    ]
    places = [output.index(text) for text in announced]
    assert places == sorted(places)
    assert list((clone / ".venv").rglob("site-packages/duckdb"))
    assert not list((clone / ".venv").rglob("site-packages/pandas"))
    assert "environment:" not in make(clone, "demo")


def test_pip_installs_where_uv_fails_and_a_line_says_why(clone: Path) -> None:
    programs = clone.parent / "programs"
    programs.mkdir()
    (programs / "uv").write_text("#!/bin/sh\necho error: no such host >&2\nexit 2\n")
    (programs / "uv").chmod(0o755)
    output = make(clone, ".venv/runtime", f"{programs}:{BASE_PROGRAMS}")
    assert "environment: uv cannot be used here (error: no such host)\n" in output
    assert "installing runtime packages with pip" in output
    version = subprocess.run([clone / ".venv/bin/noetl-stream", "version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("noetl-stream ")
