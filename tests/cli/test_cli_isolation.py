"""``noetl-stream worker --isolation``, and what processes of noetl-stream show of themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli_program import environment, noetl
from noetl_stream.tools.children.seccomp import filters_calls


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


WITHOUT_NAMESPACES = """
from noetl_stream.tools.children.linux import refuse_new_privileges
from noetl_stream.tools.children.seccomp import refuse_calls
refuse_new_privileges()
refuse_calls()
from noetl_stream.cli.main import main
main()
"""
"""As in a container whose engine has its default filter of calls."""


@pytest.mark.skipif(not filters_calls(), reason="this kernel filters no system calls")
@pytest.mark.parametrize(
    ("variable", "value"),
    [("NOETL_CHILD_CONFINEMENT", "full"), ("NOETL_CHILD_NETWORK", "none"), ("NOETL_CHILD_NETWORK", "proxy")],
)
def test_a_worker_does_not_start_below_the_confinement_that_the_operator_wants(variable: str, value: str) -> None:
    command = [sys.executable, "-c", WITHOUT_NAMESPACES, "worker"]
    given = environment(**{variable: value})
    ended = subprocess.run(command, capture_output=True, text=True, env=given, timeout=60, check=False)
    assert ended.returncode != 0
    assert f"{variable}={value} needs level full, but tasks can be confined to level " in ended.stderr
    assert "full is out of reach" in ended.stderr
