"""What a function that runs as a task may use: the context of its run, and errors that say whether to try again.

The module imports the standard library alone, so that a function starts as fast as without it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime


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
    """

    execution_id: str = ""
    step: str = ""
    task: str = ""
    attempt: int = 1
    idempotency_key: str = ""
    deadline: datetime | None = None
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("task"))


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
