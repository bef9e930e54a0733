"""What a function that runs as a task may use: the context of its run, and errors that say whether to try again.

The module imports the standard library alone, so that a function starts as fast as without it.
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
    """The run of a task, given to the parameter of its function that is annotated with this class.

    Attributes:
        execution_id: The id of the execution.
        step: The name of the step.
        task: The name of the task.
        attempt: Which attempt of the task this is, from 1.
        idempotency_key: The same text whenever this attempt is delivered: hand it to systems that must do a thing once.
        deadline: When the attempt is ended, with its time zone; ``None`` without a timeout.
        log: A logger whose records are kept with the task.
        previous_details: The details of the last heartbeat of the attempt before, or of this attempt before its worker
            died; ``None`` if there was none.
        secrets: The credentials that the task names in ``auth``, by name: each text or a mapping.
        folder: The folder of the task, removed after it: files that it returns are in it. Default: the current one.
        line: The line to the worker. A context made by a test has none.
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
        """Says that the run goes on, and how far it is. The last details are given to the next attempt.

        Args:
            details: What JSON can express, at most 16 KiB. They are shown to whoever may read the execution.

        Raises:
            ValueError: The details are not JSON, or too large.
        """
        if self.line is not None:
            self.line.heartbeat(details)

    @property
    def is_cancelled(self) -> bool:
        """Whether the run is cancelled or its time is up. A function that reads this has five seconds to end then;
        any other is killed at once.
        """
        return self.line is not None and self.line.is_cancelled()


class Retryable(Exception):
    """A failure that may pass: the retry policy of the task may try again.

    Args:
        message: What failed.
        after: The least seconds to wait before the next attempt.
    """

    retryable = True

    def __init__(self, message: str = "", *, after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = after


class Fatal(Exception):
    """A failure that no other attempt mends: ``outcome.error.retryable`` is false."""

    retryable = False
