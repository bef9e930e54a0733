"""What Postgres and its driver refuse, as error outcomes of ``kind: postgres`` (LANGUAGE §5, §12)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.inputs import invalid_input

RETRYABLE_SQLSTATES: Final = frozenset({"40001", "40P01", "55P03"})
"""Serialization failure, deadlock, lock not available."""
RETRYABLE_CLASSES: Final = ("08", "57P0")
"""Connection failures; the server shuts down or starts up."""
SYNTAX_ERROR: Final = "42601"
QUERY_CANCELED: Final = "57014"
"""By ``statement_timeout``, or by somebody with the right to."""

_BAD_ARGUMENT: Final = re.compile(r"invalid input for query argument \$(\d+):.*\((.*)\)", re.DOTALL)


@dataclass(slots=True)
class StatementPosition:
    """Where a task is in its statements."""

    text: str = "before the first statement"
    line: int = 0
    sql: str = ""
    names: Sequence[str] = ()

    def at_statement(self, number: int, line: int, sql: str, names: Sequence[str]) -> None:
        """A statement begins. ``line`` is its first line in the input, ``names`` its parameters in order of ``$n``."""
        self.text, self.line, self.sql, self.names = f"statement {number}", line, sql, names

    def at_commit(self) -> None:
        """All statements are through."""
        self.text, self.line, self.sql, self.names = "at the end of the transaction", 0, "", ()

    def pointed_at(self, position: Any) -> str:
        """The place, with the line that Postgres means by ``position``, a character of ``sql`` from 1."""
        if not self.line or not str(position or "").isdecimal():
            return self.text
        return f"{self.text} (line {self.line + self.sql.count(chr(10), 0, int(position) - 1)})"


@contextmanager
def failures_translated() -> Iterator[StatementPosition]:
    """Turns what the driver raises inside into :class:`ToolFailure`; the caller keeps the place up to date."""
    import asyncpg

    place = StatementPosition()
    try:
        yield place
    except asyncpg.PostgresError as error:
        raise _sql_failure(error, place) from None
    except TimeoutError:
        message = f"{place.text}: took longer than timeout.read"
        raise ToolFailure(ErrorInfo(kind="timeout", message=message, retryable=True)) from None
    except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        message = f"{place.text}: the database hung up: {error}"
        raise ToolFailure(ErrorInfo(kind="connection", message=message, retryable=True)) from None
    except (OverflowError, ValueError) as error:
        message = f"{place.text}: a value cannot be read: {error}; cast the column to text in the statement"
        raise ToolFailure(ErrorInfo(kind="result_not_json", message=message)) from None


def _sql_failure(error: Any, place: StatementPosition) -> ToolFailure:
    argument = _BAD_ARGUMENT.match(str(error))
    if argument is not None and place.names:
        # The driver refused a parameter before it was sent. The value is left out: it may be a secret.
        return invalid_input(f"params.{place.names[int(argument[1]) - 1]}: {argument[2]}")
    code, said = str(error.sqlstate), str(error.message or error)
    helper = {"code": code, "sqlstate": code, "message": said}
    if code.startswith("08"):
        message = f"{place.text}: the database hung up: {said}"
        return ToolFailure(ErrorInfo(kind="connection", message=message, retryable=True, code=code), helper=helper)
    if code == QUERY_CANCELED:
        message = f"{place.text}: {said}"
        return ToolFailure(ErrorInfo(kind="timeout", message=message, retryable=True, code=code), helper=helper)
    hint = f" ({error.hint})" if error.hint else ""
    info = ErrorInfo(
        kind="syntax" if code == SYNTAX_ERROR else "sql",
        message=f"{place.pointed_at(error.position)}: {said}{hint}",
        retryable=code in RETRYABLE_SQLSTATES or code.startswith(RETRYABLE_CLASSES),
        code=code,
    )
    return ToolFailure(info, helper=helper)
