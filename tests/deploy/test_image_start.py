"""A role in a container starts about as fast as the process alone."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from container_engine import ROOT, Engine, Images

pytestmark = [pytest.mark.xdist_group("containers"), pytest.mark.verify]

ROUNDS = "7"


def test_a_container_takes_at_most_twice_as_long_as_the_process(engine: Engine, images: Images) -> None:
    """Without the engine, which is not ours. Each container starts right after a process: what slows one slows both."""
    command = [sys.executable, ROOT / "benchmarks" / "image_start.py", images.stream, ROUNDS]
    ran = subprocess.run(command, env=engine.environment(), capture_output=True, text=True, timeout=600)
    print(ran.stdout)
    found = re.search(r"^median of process in the container / process: ([\d.]+) x$", ran.stdout, re.M)
    assert found is not None, ran.stderr
    assert float(found[1]) <= 2.0
