"""Turns what the operating system and the servers' logs say into one clear line."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from noetl_stream.errors import LocalStackError, NoetlError, UsageError

ADDRESS_TAKEN_MARKS = ("address already in use", "could not create any tcp/ip sockets")
DISK_FULL_MARKS = ("no space left on device", "disk quota exceeded")
LOG_LINES_SHOWN = 3
LOG_TAIL_BYTES = 16 * 1024

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_RIGHTS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
NOT_A_FOLDER = frozenset({errno.ENOTDIR, errno.EEXIST})
OTHER_FOLDER_HINT = "choose another folder with --home or NOETL_HOME"


@contextmanager
def system_errors_explained(home: Path) -> Iterator[None]:
    """Translates every :class:`OSError` of its block into one line about ``home``.

    Raises:
        UsageError: the home is a file, or lies under one.
        LocalStackError: the disk is full, rights are missing, or anything else the system refused.
    """
    try:
        yield
    except OSError as error:
        raise explain_system_error(error, home) from error


def explain_system_error(error: OSError, home: Path) -> NoetlError:
    """One error with what, where and what to do, for a refusal of the system."""
    where = error.filename or home
    if error.errno in FULL_DISK:
        return disk_full(home)
    if error.errno in NO_RIGHTS:
        return LocalStackError(f"no rights to write {where}", hint=OTHER_FOLDER_HINT)
    if error.errno in NOT_A_FOLDER:
        return UsageError(f"{where} is a file or lies under one, and must be a folder", hint=OTHER_FOLDER_HINT)
    return LocalStackError(f"the local stack under {home} failed: {error.strerror or error} ({where})")


def disk_full(home: Path) -> LocalStackError:
    return LocalStackError(f"no space left on device under {home}", hint="free some and run again")


def explain_output(doing: str, output: str, home: Path, log: Path | None = None) -> LocalStackError:
    """One error from what a server or tool wrote: its known cause, or its last lines joined into one."""
    lowered = output.lower()
    if any(mark in lowered for mark in DISK_FULL_MARKS):
        return disk_full(home)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = " | ".join(lines[-LOG_LINES_SHOWN:]) or "it said nothing"
    hint = OTHER_FOLDER_HINT if "permission denied" in lowered else None
    if log is not None:
        hint = f"the whole log is {log}" if hint is None else f"{hint}; the whole log is {log}"
    return LocalStackError(f"{doing}: {said}", hint=hint)


def says_address_taken(output: str) -> bool:
    lowered = output.lower()
    return any(mark in lowered for mark in ADDRESS_TAKEN_MARKS)


def read_tail(log: Path, from_byte: int = 0) -> str:
    """What ``log`` holds after ``from_byte``, at most its last :data:`LOG_TAIL_BYTES`."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(from_byte, size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
