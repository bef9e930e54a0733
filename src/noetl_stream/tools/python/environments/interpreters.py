"""The interpreters of a worker, for the choice of environments, and the program that installs packages."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from noetl_stream.settings.children import INTERPRETERS_VARIABLE
from noetl_stream.tools.children.launcher import ENVIRONMENT
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.python.environments.requirements import specifiers

_NAMES: Final = tuple(f"python3.{minor}" for minor in range(11, 20))
_ASK_S: Final = 20.0
_ASK: Final = (
    "import json, platform, sys; print(json.dumps([getattr(sys, '_base_executable', '') or sys.executable,"
    " platform.python_version(), sys.base_prefix, sys.version_info >= (3, 11)]))"
)


class Interpreter(NamedTuple):
    """An installed interpreter, in the folder ``prefix``."""

    path: str
    version: str
    prefix: str


def interpreters_of(paths: Sequence[str]) -> list[Interpreter]:
    """The interpreters at these paths; by default the worker's own, and those in its ``PATH``, as far as they start."""
    found = list(paths) or [sys.executable, *filter(None, map(shutil.which, _NAMES))]
    with ThreadPoolExecutor(4) as threads:
        asked = [one for one in threads.map(_asked, found) if one is not None]
    return list({one.prefix: one for one in reversed(asked)}.values())[::-1]


def _asked(path: str) -> Interpreter | None:
    try:
        said = subprocess.run(
            [path, "-I", "-S", "-c", _ASK],
            capture_output=True,
            check=True,
            timeout=_ASK_S,
            env=ENVIRONMENT,
        )
        *fields, fits = json.loads(said.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Interpreter(*fields) if fits else None


def chosen(interpreters: Sequence[Interpreter], python: str) -> Interpreter:
    """The first of the interpreters that fits, which is the worker's own if that does; else the newest.

    Raises:
        ToolFailure: ``environment``: none fits.
    """
    from packaging.version import Version

    fitting = [one for one in interpreters if specifiers(python).contains(one.version, prereleases=True)]
    if fitting:
        return fitting[0] if fitting[0] is interpreters[0] else max(fitting, key=lambda one: Version(one.version))
    held = ", ".join(f"{one.version} ({one.path})" for one in interpreters) or "none"
    message = f"no Python of this worker is {python}: it has {held}; {INTERPRETERS_VARIABLE} names others"
    raise ToolFailure.of("environment", message)


def uv_program() -> str:
    """The path of uv.

    Raises:
        FileNotFoundError: It is not installed.
    """
    with contextlib.suppress(ImportError, FileNotFoundError):
        import uv

        return uv.find_uv_bin()
    if found := shutil.which("uv"):
        return found
    raise FileNotFoundError(errno.ENOENT, "uv is not installed here", "uv")
