"""Redacts secrets from everything that leaves a worker: results, errors, helper blocks, output, logs (LANGUAGE §11)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from noetl_stream.model.outcome import RunWarning
from noetl_stream.model.secrets.credential import Redactor
from noetl_stream.tools.contract import ToolFailure, ToolResult


class ToolRedactor(Redactor):
    """Redacts known secrets also in what tools return."""

    def result(self, result: ToolResult) -> ToolResult:
        """Returns a tool's result without secrets."""
        if not self.knows_any:
            return result
        warnings = self._warnings(result.warnings)
        return ToolResult(
            self.value(result.result), self.value(dict(result.helper)), self.text(result.output), warnings
        )

    def failure(self, failure: ToolFailure) -> ToolFailure:
        """Returns a tool's failure without secrets."""
        if not self.knows_any:
            return failure
        error = failure.error
        code = None if error.code is None else self.text(error.code)
        error = msgspec.structs.replace(error, message=self.cut_text(error.message), code=code)
        helper = {key: self._helper_member(member) for key, member in failure.helper.items()}
        return ToolFailure(
            error,
            result=self.value(failure.result),
            helper=helper,
            output=self.text(failure.output),
            warnings=self._warnings(failure.warnings),
        )

    def _warnings(self, warnings: tuple[RunWarning, ...]) -> tuple[RunWarning, ...]:
        return tuple(RunWarning(one.kind, self.text(one.message)) for one in warnings)

    def _helper_member(self, member: Any) -> Any:
        return self.cut_text(member) if isinstance(member, str) else self.value(member)


class RedactedLines(logging.Formatter):
    """Formats log records with another formatter, then redacts them: message, extra fields and traceback."""

    def __init__(self, lines: logging.Formatter, redactor: Redactor) -> None:
        super().__init__()
        self.lines = lines
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.text(self.lines.format(record))


def hide_in_logs(redactor: Redactor) -> Callable[[], None]:
    """Redacts everything this process logs, until the returned function is called."""
    wrapped = [(handler, handler.formatter or logging.Formatter()) for handler in logging.getLogger().handlers]
    for handler, lines in wrapped:
        handler.setFormatter(RedactedLines(lines, redactor))

    def restore() -> None:
        for handler, lines in wrapped:
            handler.setFormatter(lines)

    return restore
