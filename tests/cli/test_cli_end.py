"""How a process ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli_program import NOETL

ROLE = """
import asyncio, sys
from noetl_stream import __main__
from noetl_stream.cli import main
def role():
    import duckdb
    from noetl_stream.cli.base.process import run_role
    run_role(asyncio.sleep(0))
    sys.stdout.write("ended")
    sys.exit(3)
main.main = role
__main__.program()
"""


def test_a_role_that_has_imported_duckdb_ends_with_its_own_output_and_code_alone() -> None:
    ended = subprocess.run([sys.executable, "-c", ROLE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "ended", "")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such a device")
def test_an_output_without_space_is_reported_without_a_traceback() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        ended = subprocess.run([*NOETL, "version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "noetl-stream: No space left on device\n")
