"""The error tree: every error a person can meet says what, where and what to do.

The command line maps each class to an exit code (see ``cli/exit.py``); roles map them to logs. Foreign
exceptions (asyncpg, nats, OS) are translated into these inside the adapter that meets them.
"""

from __future__ import annotations

from typing import Any


class NoetlError(Exception):
    """Base of all errors of this project.

    Args:
        message: What is wrong, one line, no trailing full stop.
        hint: What the reader can do about it, or ``None``.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(NoetlError):
    """The caller asked for something that cannot be: a bad option, a missing file, an unknown id."""


class NotFound(UsageError):
    """What an id, a path or a name stands for is not there."""


class PlaybookRefused(UsageError):
    """A playbook has errors. ``diagnostics`` are its findings, as JSON objects."""

    def __init__(self, message: str, diagnostics: list[dict[str, Any]], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.diagnostics = diagnostics


class Conflict(NoetlError):
    """It could be done to another state of the same thing: it has ended, it is being written, its version differs."""


class VersionMismatch(Conflict):
    """The version that the caller expected is not the present one: read again, decide again."""


class TooBusy(NoetlError):
    """More is asked for than can be taken in now. ``retry_after_s`` says when to come again."""

    def __init__(self, message: str, retry_after_s: float, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class Unauthenticated(NoetlError):
    """The caller shows no token, or one that does not hold."""


class Forbidden(NoetlError):
    """The caller is known, and may not do this."""


class Unreachable(NoetlError):
    """NATS or Postgres does not answer, or refuses us."""


class NotReady(NoetlError):
    """A store answers but is not prepared: schema missing or newer, stream missing, other partition count."""


class LocalStackError(NoetlError):
    """The embedded NATS or Postgres could not be started: rights, ports, disk."""


class Fenced(NoetlError):
    """A transaction found another owner, epoch or tick: this server has lost the partition (PROTOCOL §2)."""


class OutcomeUnknown(NoetlError):
    """A commit or publish was sent and its answer never came: it may or may not have happened."""


class ReaderBroken(NoetlError):
    """The event reader can no longer vouch for order or completeness; recreate it from the committed cursors."""


class StreamLost(NoetlError):
    """EVENTS no longer holds what Postgres has folded (PROTOCOL §5): refuse to go on rather than fold another past."""


class BlobMissing(NoetlError):
    """The object store has no object of that key, or its checksum differs."""


class PayloadRefused(NoetlError):
    """A payload the codec does not let in: NUL, lone surrogate, NaN, too deep, too large, not JSON."""


class JournalConflict(NoetlError):
    """A position or a request was about to be written twice: an alarm, never a routine (PROTOCOL §1 *Journal*)."""
