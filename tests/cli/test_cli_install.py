"""The wheels of plugins and new kinds in an empty folder and an empty environment."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_program import environment
from homes import folder_for_home
from wheel_building import ROOT, build_wheel, build_wheels

pytestmark = pytest.mark.verify

PATIENCE_S = 900.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder that other users reach, as whom Postgres may run."""
    with folder_for_home("install") as made:
        made.chmod(0o755)
        yield made


def bash(commands: str, folder: Path, home: Path) -> str:
    """What the commands print, run with an environment of their own in which the wheels of the folder are found."""
    settings = environment(NOETL_HOME=str(home), PATH=f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin")
    begin = f'python3 -m venv .venv && . .venv/bin/activate; export PIP_FIND_LINKS="{folder} ${{PIP_FIND_LINKS:-}}"\n'
    ended = subprocess.run(
        ["bash", "-eu", "-c", begin + commands],
        cwd=folder,
        env=settings,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_extra_brings_the_kind_quantum(folder: Path, fresh_home: Path) -> None:
    build_wheels(folder)
    build_wheel(folder, ROOT / "plugins" / "noetl-stream-quantum", "noetl_stream_quantum")
    printed = bash(
        """
        pip install --quiet 'noetl-stream[quantum]'
        noetl-stream init . --example quantum_sweep
        noetl-stream run playbooks/quantum_sweep.yaml
        """,
        folder,
        fresh_home,
    )
    assert re.search(r"^circuits +64$", printed, re.M)


def test_the_commands_in_the_readme_of_a_new_kind_work(folder: Path, fresh_home: Path) -> None:
    build_wheels(folder)
    printed = bash(
        """
        pip install --quiet noetl-stream
        noetl-stream tool new lamp
        cd noetl-stream-lamp
        sed -n '/^```sh$/,/^```$/p' README.md | sed '/^```/d' > commands.sh
        . ./commands.sh
        """,
        folder,
        fresh_home,
    )
    assert "3 passed" in printed
    assert re.search(r"^words +6$", printed, re.M)
