"""Turns system errors and the servers' logs into one-line messages."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noetl_stream.errors import LocalStackError, NoetlError, UsageError

ADDRESS_IN_USE_MARKS = ("address already in use", "could not create any tcp/ip sockets")
DISK_FULL_MARKS = ("no space left on device", "disk quota exceeded")
LOG_LINES_SHOWN = 3
LOG_TAIL_BYTES = 16 * 1024

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_PERMISSION = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
NOT_A_FOLDER = frozenset({errno.ENOTDIR, errno.EEXIST})
OTHER_FOLDER_HINT = "choose another folder with --home or NOETL_HOME"


@contextmanager
def system_errors_explained(home: Path) -> Iterator[None]:
    """Translates every :class:`OSError` in the block to a one-line error about ``home``.

    Raises:
        UsageError: The home is a file, or under one.
        LocalStackError: The disk is full, permissions are missing, or another system error.
    """
    try:
        yield
    except OSError as error:
        raise explain_system_error(error, home) from error


def explain_system_error(error: OSError, home: Path) -> NoetlError:
    """Returns the error for a system error: what, where, and what to do."""
    where = error.filename or home
    if error.errno in FULL_DISK:
        return disk_full(home)
    if error.errno in NO_PERMISSION:
        return LocalStackError(f"no permission to write {where}", hint=OTHER_FOLDER_HINT)
    if error.errno in NOT_A_FOLDER:
        return UsageError(f"{where} must be a folder, but is a file or under one", hint=OTHER_FOLDER_HINT)
    return LocalStackError(f"the local stack under {home} failed: {error.strerror or error} ({where})")


def disk_full(home: Path) -> LocalStackError:
    return LocalStackError(f"no space left on device under {home}", hint="free some space and retry")


def explain_output(doing: str, output: str, home: Path, log: Path | None = None) -> LocalStackError:
    """Returns the error for a program's output: a known cause, or its last lines joined."""
    lowered = output.lower()
    full = [line for line in lowered.splitlines() if any(mark in line for mark in DISK_FULL_MARKS)]
    if any("shared memory" in line for line in full):
        remedy = "free some space there, or give the container more (--shm-size), and retry"
        return LocalStackError("no space left in the shared memory of this machine, /dev/shm", hint=remedy)
    if full:
        return disk_full(home)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    tail = " | ".join(lines[-LOG_LINES_SHOWN:]) or "no output"
    hint = OTHER_FOLDER_HINT if "permission denied" in lowered else None
    if log is not None:
        hint = f"see {log}" if hint is None else f"{hint}; see {log}"
    return LocalStackError(f"{doing}: {tail}", hint=hint)


def is_address_in_use(output: str) -> bool:
    """Returns whether a program's output says that its address is already in use."""
    lowered = output.lower()
    return any(mark in lowered for mark in ADDRESS_IN_USE_MARKS)


def read_tail(log: Path, from_byte: int = 0) -> str:
    """Returns the end of ``log``, from ``from_byte`` on, at most :data:`LOG_TAIL_BYTES`."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(from_byte, size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
