"""Errors of the client. Each message says what went wrong, where, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from noetl_stream_client.documents import ErrorInfo, Execution, Problem, Why


class ClientError(Exception):
    """Base of all errors of this package.

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


class ConfigurationError(ClientError):
    """No gateway is named, or what names it cannot be read."""


class UnexpectedAnswer(ClientError):
    """An answer that is not one of a gateway that this client can read."""


class LocalStackError(ClientError):
    """An embedded stack that did not start, or has ended."""


class ApiError(ClientError):
    """A refusal of the HTTP API.

    Attributes:
        code: The kind of the problem, which is stable: ``not-found``.
        status: The HTTP status of the kind.
        problem: The document of the problem; ``None`` if no gateway has answered.
    """

    code: ClassVar[str] = ""
    status: ClassVar[int] = 0

    def __init__(self, message: str, *, hint: str | None = None, problem: Problem | None = None) -> None:
        super().__init__(message, hint=hint)
        self.problem = problem


class ExecutionError(ClientError):
    """An execution without a result.

    Attributes:
        execution: The document of the execution.
        why: The gateway's explanation; ``None`` if it could not be asked.
    """

    def __init__(self, message: str, execution: Execution, why: Why | None, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.execution = execution
        self.why = why

    def __str__(self) -> str:
        reasons = () if self.why is None else self.why.reasons
        return "\n".join([super().__str__(), *(f"  {one.sentence}" for one in reasons)])

    @property
    def error(self) -> ErrorInfo | None:
        """The error that the execution ended with."""
        return self.execution.error


class ExecutionFailed(ExecutionError):
    """An execution that has failed."""


class ExecutionCancelled(ExecutionError):
    """An execution that was cancelled."""


class StillRunning(ExecutionError, TimeoutError):
    """An execution that has not ended within the timeout. It continues: ask for its result again, or cancel it."""


class ResultTooLarge(ExecutionError):
    """A result of more than a gateway answers with.

    Attributes:
        reference: The reference of the stored result.
    """

    def __init__(self, execution: Execution, reference: dict[str, Any]) -> None:
        text = f"the result of execution {execution.execution_id} is too large for an answer"
        hint = "let the playbook store it, and return where: see `reference`"
        super().__init__(text, execution, None, hint=hint)
        self.reference = reference
