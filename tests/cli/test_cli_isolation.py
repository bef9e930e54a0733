"""``noetl-stream worker --isolation``, and what processes of noetl-stream show of themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli_program import environment, noetl


def test_isolation_prints_what_holds_and_runs_no_worker() -> None:
    ended = noetl("worker", "--isolation", NOETL_CHILD_USER="worker", NOETL_CHILD_PATHS="/srv/data")
    assert ended.returncode == 0, ended.stderr
    rows = {line.split("  ")[0]: line for line in ended.stdout.splitlines()}
    assert "shared by runs of one playbook and principal" in rows["processes"]
    assert "the worker's (NOETL_CHILD_USER=worker)" in rows["user"]
    if "yes" in rows["files"]:
        assert "may write: /srv/data" in rows["files"]


HIDES = """
import ctypes
from noetl_stream.cli.main import main
try:
    main()
finally:
    print("dumpable", ctypes.CDLL(None).prctl(3))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux offers it")
def test_other_processes_cannot_look_into_a_worker() -> None:
    command = [sys.executable, "-c", HIDES, "worker"]
    # A broken setting ends the process right after it has closed itself.
    given = environment(NOETL_POOL="a pool")
    ended = subprocess.run(command, capture_output=True, text=True, env=given, timeout=60, check=False)
    assert "invalid NOETL_POOL" in ended.stderr
    assert ended.stdout == "dumpable 0\n"
