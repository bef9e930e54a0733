"""How a process ends."""

from __future__ import annotations

import subprocess
import sys

ROLE = """
import asyncio, duckdb
from noetl_stream.cli.base.process import run_async
run_async(asyncio.sleep(0, None))
print("ended")
"""


def test_a_role_that_has_imported_duckdb_ends_without_a_word() -> None:
    ended = subprocess.run([sys.executable, "-c", ROLE], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("ended\n", "")
