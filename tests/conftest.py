"""One shared stack for every test that only needs one to be there."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from cli_program import NOETL, environment
from effort import times
from noetl_stream.local.processes import choose_port

settings.register_profile("effort", max_examples=times(100), deadline=None)
settings.load_profile("effort")

for ignored in (signal.SIGINT, signal.SIGHUP):
    # A shell's background job ignores Ctrl-C, one of nohup a closed terminal, and so would the programs of our tests.
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored is signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(scope="session")
def shared_home() -> Iterator[Path]:
    """The home of a whole stack that is kept up, for tests that do it no harm.

    Mark them ``xdist_group("stack")``, so that there is only one. The home is not under pytest's
    own folder: that one is closed to Postgres' system user when we are root.
    """
    home = Path(tempfile.mkdtemp(prefix="noetl-shared-")).resolve()
    with (home / "dev.log").open("w") as log:
        process = subprocess.Popen(
            [*NOETL, "dev", "--home", str(home), "--gateway-port", str(choose_port())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(),
        )
    try:
        assert process.stdout is not None
        first_line = process.stdout.readline()
        assert "is running" in first_line, (home / "dev.log").read_text()
        yield home
    finally:
        process.terminate()
        process.communicate(timeout=60)
        shutil.rmtree(home, ignore_errors=True)
