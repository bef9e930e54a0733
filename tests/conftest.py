"""One shared stack for every test that only needs one to be there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl_stream.local.ports import choose_port

DEV = (sys.executable, "-m", "noetl_stream.cli.main", "dev")


def without_settings() -> dict[str, str]:
    """This environment without what a developer has set for noetl-stream."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NOETL_")}


@pytest.fixture(scope="session")
def shared_home() -> Iterator[Path]:
    """The home of a whole stack that is kept up, for tests that do it no harm.

    Mark them ``xdist_group("stack")``, so that there is only one. The home is not under pytest's
    own folder: that one is closed to Postgres' system user when we are root.
    """
    home = Path(tempfile.mkdtemp(prefix="noetl-shared-")).resolve()
    with (home / "dev.log").open("w") as log:
        process = subprocess.Popen(
            [*DEV, "--home", str(home), "--gateway-port", str(choose_port())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=without_settings(),
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
