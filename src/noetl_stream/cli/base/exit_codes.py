"""Exit codes, and the errors that lead to them."""

from __future__ import annotations

from enum import IntEnum

from noetl_stream.errors import LocalStackError, NoetlError, NotReady, StreamLost, Unreachable, UsageError


class ExitCode(IntEnum):
    """The exit code of every command (README)."""

    COMPLETED = 0
    FAILED = 1
    INVALID = 2
    UNREACHABLE = 3
    TIMEOUT = 124
    INTERRUPTED = 130


def code_for(error: NoetlError) -> ExitCode:
    """The exit code of an error that ends a command."""
    if isinstance(error, UsageError):
        return ExitCode.INVALID
    if isinstance(error, Unreachable | NotReady | LocalStackError | StreamLost):
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED
