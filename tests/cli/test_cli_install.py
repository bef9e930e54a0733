"""The wheel in an empty folder and an empty environment, as the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli_program import environment
from wheel_building import ROOT, build_wheel

pytestmark = pytest.mark.verify

PATIENCE_S = 900.0


def test_the_wheel_installs_and_runs_an_example_as_the_readme_says(tmp_path: Path, fresh_home: Path) -> None:
    section = (ROOT / "README.md").read_text().split("\n## Install it\n")[1].split("\n## ")[0]
    (commands,) = re.findall(r"^```bash\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    build_wheel(tmp_path)
    base = f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"
    settings = environment(NOETL_HOME=str(fresh_home), PATH=base)
    ended = subprocess.run(
        ["bash", "-eu", "-c", commands], cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 0, ended.stderr
    assert "HELLO, ADA" in ended.stdout
    assert (tmp_path / "playbooks/hello.yaml").exists()


def test_the_extra_brings_the_kind_quantum(tmp_path: Path, fresh_home: Path) -> None:
    for project in (ROOT, ROOT / "plugins" / "noetl-stream-quantum"):
        build_wheel(tmp_path, project)
    base = f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"
    commands = """
        python3 -m venv .venv && . .venv/bin/activate
        pip install --quiet --find-links . 'noetl-stream[quantum]'
        noetl-stream init . --example quantum_sweep
        noetl-stream run playbooks/quantum_sweep.yaml
    """
    settings = environment(NOETL_HOME=str(fresh_home), PATH=base)
    ended = subprocess.run(
        ["bash", "-eu", "-c", commands], cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^circuits +64$", ended.stdout, re.M)
