"""The error tree. Each message says what is wrong, where, and what to do.

The command line maps each class to an exit code (``cli/base/exit_codes.py``); servers and workers log it. Adapters
translate foreign exceptions (asyncpg, nats, OS) into these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final


def page(topic: str) -> str:
    """Names a page of the documentation in a message: by a command, since a user may not have its file."""
    return f"`noetl-stream docs {topic}`"


class NoetlError(Exception):
    """Base of all errors of this project.

    Args:
        message: The description of the error, in one line without a full stop.
        hint: The advice to the user, or ``None``.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(NoetlError):
    """The request is invalid: a bad option, a missing file, an unknown id."""


class NotFound(UsageError):
    """No object exists under this id, path or name."""


class PlaybookRefused(UsageError):
    """A playbook has errors. ``diagnostics`` lists them as JSON objects."""

    def __init__(self, message: str, diagnostics: list[dict[str, Any]], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.diagnostics = diagnostics


class WorkloadRefused(UsageError):
    """A workload does not match the playbook's declaration: the part at ``pointer``, for ``reason``."""

    def __init__(self, message: str, pointer: str, reason: str) -> None:
        super().__init__(message)
        self.pointer = pointer
        self.reason = reason


class Conflict(NoetlError):
    """The request conflicts with the current state: the execution has ended, or another writer came first."""


class VersionMismatch(Conflict):
    """The expected version is not the current one: read again and retry."""


class TooBusy(NoetlError):
    """The process is over capacity. Retry after ``retry_after_s`` seconds."""

    def __init__(self, message: str, retry_after_s: float, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class Unauthenticated(NoetlError):
    """The caller presented no token, or an invalid one."""


class Forbidden(NoetlError):
    """The caller is authenticated but not allowed to make this request."""


class Unreachable(NoetlError):
    """NATS or Postgres does not answer, or refuses the connection."""


class QueryTooLong(NoetlError):
    """A query was ended because it took longer than its request allows."""


class LoginRefused(Unreachable):
    """The login or target is refused: wrong password, unknown database. Waiting does not help."""


class NotReady(NoetlError):
    """A store answers but is not set up: schema missing or newer, stream missing, partition count different."""


class NewerFormat(NotReady):
    """A newer version wrote data of this partition, which is left to that version."""

    def __init__(self, partition: int, message: str) -> None:
        super().__init__(message, hint="upgrade this process")
        self.partition = partition


class StoreMissing(NotReady, Unreachable):
    """A stream or bucket does not exist. Its users wait until somebody creates it; the hint says how."""


class LocalStackError(NoetlError):
    """The embedded NATS or Postgres failed to start: permissions, ports, disk."""


class Fenced(NoetlError):
    """A transaction found another owner, epoch or tick: this server has lost the partition (PROTOCOL §2)."""


class OutcomeUnknown(NoetlError):
    """A commit or publish was sent but not answered: it may or may not have taken effect."""


class ReaderBroken(NoetlError):
    """The event reader can no longer guarantee order or completeness; recreate it from the committed cursors."""


class StreamLost(NoetlError):
    """EVENTS no longer holds what Postgres has folded (PROTOCOL §5): stop rather than fold a different history."""


class BlobMissing(NoetlError):
    """The object store has no object with this key, or its checksum differs."""


class EvaluationEnded(NoetlError):
    """Templates that another process evaluates took too long or too much memory."""


class PayloadRefused(NoetlError):
    """A payload the codec rejects: NUL, lone surrogate, NaN, too deep, too large, not JSON."""


class TooDeep(PayloadRefused):
    """A value is nested more deeply than values may be (LANGUAGE §12)."""


class TickRefused(PayloadRefused):
    """Postgres refuses a tick for its data; nothing of it was written (PROTOCOL §5 *Poison*)."""


class JournalConflict(NoetlError):
    """A position or request would be written twice: always a bug (PROTOCOL §1 *Journal*)."""


class RequestAnswered(JournalConflict):
    """A request would be answered twice. Only its execution is affected."""


@contextlib.contextmanager
def usable_file(file: object, done: str = "read") -> Iterator[None]:
    """Raises a :class:`UsageError` for an OSError of the block: the file cannot be read, or ``done``."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{file}: cannot be {done}: {error.strerror}") from None


VALUE_FAULTS: Final = (PayloadRefused, RecursionError, MemoryError)
"""The errors of walking a value: a fault of its execution, never of the process that walks it."""


def fault_text(error: BaseException) -> str:
    """The text of one of :data:`VALUE_FAULTS`, for people."""
    if isinstance(error, RecursionError):
        return "its values are nested too deeply"
    return "its values take more memory than there is" if isinstance(error, MemoryError) else str(error)
