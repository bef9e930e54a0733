"""The interface of functions that run as tasks: the context of the run, and errors that control retries.

The module imports only the standard library, so that functions start fast.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol


class Line(Protocol):
    """The line from a run to its worker."""

    def heartbeat(self, details: Any) -> None: ...

    def is_cancelled(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The run of a task, passed to the function's parameter that is annotated with this class.

    Attributes:
        execution_id: The id of the execution.
        step: The name of the step.
        task: The name of the task.
        attempt: The number of the attempt, from 1.
        idempotency_key: The same text for each delivery of this attempt: pass it to systems that must act only once.
        deadline: The time when the attempt is stopped, with its time zone; ``None`` without a timeout.
        log: A logger whose records are kept with the task.
        previous_details: The details of the last heartbeat of the previous attempt, or of this one before its worker
            died; ``None`` if there was none.
        secrets: The credentials that the task names in ``auth``, by name: each text or a mapping.
        folder: The folder of the task, removed after it; the files that it returns must be in it. Default: the current
            one.
        line: The connection to the worker. A context made by a test has none.
    """

    execution_id: str = ""
    step: str = ""
    task: str = ""
    attempt: int = 1
    idempotency_key: str = ""
    deadline: datetime | None = None
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("task"))
    previous_details: Any = None
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    folder: Path = field(default_factory=Path.cwd)
    line: Line | None = field(default=None, repr=False, compare=False)

    def heartbeat(self, details: Any = None) -> None:
        """Reports that the run continues, with its progress. The next attempt gets the last details.

        Args:
            details: What JSON can express, at most 16 KiB. Readers of the execution see them.

        Raises:
            ValueError: The details are not JSON, or too large.
        """
        if self.line is not None:
            self.line.heartbeat(details)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run is cancelled or timed out. A function that reads this then has five seconds to end; others
        are killed at once.
        """
        return self.line is not None and self.line.is_cancelled()


class Retryable(Exception):
    """A transient failure: the retry policy of the task applies.

    Args:
        message: A description of the failure.
        after: The least seconds to wait before the next attempt.
    """

    retryable = True

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = after


class Fatal(Exception):
    """A permanent failure: ``outcome.error.retryable`` is false."""

    retryable = False
