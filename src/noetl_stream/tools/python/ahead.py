"""Imports the module of a function before its job comes: most runs call what the one before called.

What the module prints is printed when the job begins. If a file has changed since, the job imports anew what is not
installed: workers see what is installed later once they restart.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import sysconfig
import time
from collections.abc import Iterator
from functools import reduce
from typing import Any, Final, cast

from noetl_stream.tools.python.annotations import call_function, signature_of

CLOCK_TICK_NS: Final = 20_000_000
"""How far the time of a file may be behind the clock: more than the kernel takes between two ticks."""

INSTALLED: Final = tuple(
    f"{folder}/"
    for folder in (*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")), *sys.path)
    if folder.endswith(("-packages", sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")))
)
"""The folders of installed modules."""


class _Ahead:
    """What this process has imported ahead.

    Attributes:
        path: The function that it was for; empty: none.
        files: The modules that are not installed: the file of each, and the version of that.
        printed: What the modules have printed.
    """

    def __init__(self) -> None:
        self.path = ""
        self.files: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.printed = io.StringIO()

    def has_changed(self) -> bool:
        """Returns whether a file has."""
        return any(_version_of(file) != version for file, version in self.files.values())


_ahead = _Ahead()


def import_ahead(path: str) -> None:
    """Imports the module of ``module:name`` and reads the signature of the function. Errors are shown when the job
    does so.
    """
    call_function(_first, {"n": 1}, {})  # so that pages of memory which every call writes to are this process's own
    known, began_ns = set(sys.modules), time.time_ns() - CLOCK_TICK_NS
    with _silence(), contextlib.suppress(BaseException):
        module, _, name = path.partition(":")
        signature_of(reduce(getattr, name.split("."), cast(Any, importlib.import_module(module))))
    _ahead.path = path
    for name in sys.modules.keys() - known:
        file = getattr(sys.modules[name], "__file__", None)
        if isinstance(file, str) and not file.startswith(INSTALLED):
            _ahead.files[name] = file, _version_of(file, began_ns)
    _ahead.has_changed()


def _first(n: int) -> int:
    return n


def use_ahead(path: str) -> None:
    """Prints what was printed, if a job calls the function that its process has expected. Else, or if a file has
    changed, the job imports anew what it needs.

    Args:
        path: The function of the job; empty: it runs code.
    """
    if not _ahead.path:
        return
    if path != _ahead.path or _ahead.has_changed():
        for name in _ahead.files:
            sys.modules.pop(name, None)
    elif printed := _ahead.printed.getvalue():
        sys.stdout.write(printed)
    _ahead.path = ""  # of runs that share a process the first uses it


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keeps what Python code prints, and drops what other code writes: the output belongs to the job that runs."""
    outputs = [os.dup(1), os.dup(2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(nowhere, number)
        with contextlib.redirect_stdout(_ahead.printed), contextlib.redirect_stderr(_ahead.printed):
            yield
    finally:
        for number, output in enumerate(outputs, start=1):
            os.dup2(output, number)
            os.close(output)
        os.close(nowhere)


def _version_of(file: str, since_ns: float = float("inf")) -> tuple[int, ...]:
    """Returns what differs between versions of a file; nothing if it is newer than this time."""
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size) if found.st_ctime_ns < since_ns else ()
