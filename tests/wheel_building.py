"""The wheel of this source tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build_wheel(folder: Path, project: Path = ROOT) -> Path:
    """Builds it, or that of another project, into the folder, with the build backend that is installed here."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob(f"{project.name.replace('-', '_') if project != ROOT else 'noetl_stream'}-*.whl")
    return wheel
