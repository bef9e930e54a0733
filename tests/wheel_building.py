"""The wheels of this source tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


CLI = ROOT / "clients" / "cli"
"""The command line, which the program depends on."""


def build_wheels(folder: Path) -> list[Path]:
    """Builds those of the program and of its command line into the folder."""
    return [build_wheel(folder, *named) for named in ((ROOT, "noetl_stream"), (CLI, "noetl_stream_cli"))]


def build_wheel(folder: Path, project: Path, name: str) -> Path:
    """Builds that of the project with this name into the folder, with the build backend that is installed here."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob(f"{name}-*.whl")
    return wheel
