"""The wheels of this source tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


CLI = ROOT / "packages" / "noetl-stream-cli"
"""The command line, which the program depends on."""


def build_wheels(folder: Path) -> list[Path]:
    """Builds those of the program and of its command line into the folder."""
    return [build_wheel(folder, project) for project in (ROOT, CLI)]


def build_wheel(folder: Path, project: Path) -> Path:
    """Builds that of a project into the folder, with the build backend that is installed here."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob(f"{project.name.replace('-', '_') if project != ROOT else 'noetl_stream'}-*.whl")
    return wheel
