"""Translates errors of Postgres and its driver to error outcomes of ``kind: postgres`` (LANGUAGE §5, §12)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.inputs import invalid_input

RETRYABLE_SQLSTATES: Final = frozenset({"40001", "40P01", "55P03"})
"""SQLSTATEs worth a retry: serialization failure, deadlock, lock not available."""
RETRYABLE_CLASSES: Final = ("08", "57P0")
"""SQLSTATE classes worth a retry: connection failures; the server is shutting down or starting up."""
SYNTAX_ERROR: Final = "42601"
QUERY_CANCELED: Final = "57014"
"""The SQLSTATE of a statement cancelled by ``statement_timeout``, or by an administrator."""

_WITHOUT_TRANSACTION: Final = "spec: { transaction: false } runs each statement without one"
_BAD_ARGUMENT: Final = re.compile(r"invalid input for query argument \$(\d+):.*\((.*)\)", re.DOTALL)


@dataclass(slots=True)
class StatementPosition:
    """The statement that a task is running."""

    text: str = "before the first statement"
    line: int = 0
    sql: str = ""
    names: Sequence[str] = ()

    def at_statement(self, number: int, line: int, sql: str, names: Sequence[str]) -> None:
        """Notes the next statement. ``line`` is its first line in the input, ``names`` its parameters by ``$n``."""
        self.text, self.line, self.sql, self.names = f"statement {number}", line, sql, names

    def at_commit(self) -> None:
        """Notes that all statements have run."""
        self.text, self.line, self.sql, self.names = "at commit", 0, "", ()

    def with_line(self, position: Any) -> str:
        """Describes the statement, with the line of ``position``, a character index into ``sql`` from 1."""
        if not self.line or not str(position or "").isdecimal():
            return self.text
        return f"{self.text} (line {self.line + self.sql.count(chr(10), 0, int(position) - 1)})"


@contextmanager
def failures_translated() -> Iterator[StatementPosition]:
    """Translates the driver's exceptions to :class:`ToolFailure`. The caller updates the position."""
    import asyncpg

    place = StatementPosition()
    try:
        yield place
    except asyncpg.PostgresError as error:
        raise _sql_failure(error, place) from None
    except TimeoutError:
        raise ToolFailure.of("timeout", f"{place.text}: exceeded timeout.read", retryable=True) from None
    except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        raise ToolFailure.of("connection", f"{place.text}: connection lost: {error}", retryable=True) from None
    except (OverflowError, ValueError) as error:
        message = f"{place.text}: cannot read a value: {error}; cast the column to text"
        raise ToolFailure.of("result_not_json", message) from None


def _sql_failure(error: Any, place: StatementPosition) -> ToolFailure:
    argument = _BAD_ARGUMENT.match(str(error))
    if argument is not None and place.names:
        # The driver rejected a parameter before sending it. Omit the value, which may be secret.
        reason = "is not a value of its type" if "'" in argument[2] else argument[2]
        return invalid_input(f"params.{place.names[int(argument[1]) - 1]}: {reason}")
    code, reason = str(error.sqlstate), str(error.message or error)
    helper = {"code": code, "sqlstate": code, "message": reason}
    if code.startswith("08"):
        message = f"{place.text}: connection lost: {reason}"
        return ToolFailure.of("connection", message, retryable=True, code=code, helper=helper)
    if code == QUERY_CANCELED:
        return ToolFailure.of("timeout", f"{place.text}: {reason}", retryable=True, code=code, helper=helper)
    wants_none = code == "2D000" or "inside a transaction block" in reason
    advice = error.hint or (_WITHOUT_TRANSACTION if wants_none else "")
    copied = error.context if str(error.context or "").startswith("COPY ") else None
    hint = f" ({advice})" if advice else f" ({copied})" if copied else ""
    return ToolFailure.of(
        "syntax" if code == SYNTAX_ERROR else "sql",
        f"{place.with_line(error.position)}: {reason}{hint}",
        retryable=code in RETRYABLE_SQLSTATES or code.startswith(RETRYABLE_CLASSES),
        code=code,
        helper=helper,
    )
