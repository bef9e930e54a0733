"""Rows of a database as the result of a SQL kind: ``{rows, row_count, columns, statements}`` (LANGUAGE §12)."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.convert import Conversions, NotJson, to_json

CONVERSIONS: Final[Conversions] = {
    datetime.timedelta: datetime.timedelta.total_seconds,
    bytes: lambda value: base64.b64encode(value).decode(),
    ipaddress.IPv4Address: str,
    ipaddress.IPv6Address: str,
    ipaddress.IPv4Network: str,
    ipaddress.IPv6Network: str,
}
"""What databases hand back beside what playbook code may: intervals become seconds, bytes base64, addresses text."""


@dataclass(frozen=True, slots=True)
class StatementRun:
    """What one statement did. ``row_count``: rows it returned or changed, ``None`` where that means nothing."""

    command: str
    row_count: int | None


@dataclass(frozen=True, slots=True)
class Returned:
    """The rows a statement returned, as the driver gave them; ``columns`` are their names."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def check_columns(columns: Sequence[str], number: int) -> None:
    """Refuses a statement that returns two columns of one name: a row could keep only one of them.

    Raises:
        ToolFailure: kind ``sql``.
    """
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        message = f"statement {number} returns more than one column named {twice[0]!r}; name them apart with AS"
        raise ToolFailure(ErrorInfo(kind="sql", message=message))


def too_many_rows(number: int, max_rows: int) -> ToolFailure:
    """The failure of a statement that returned more than ``max_rows`` rows."""
    message = f"statement {number} returns more than max_rows ({max_rows:,}) rows; add LIMIT or raise the knob"
    return ToolFailure(ErrorInfo(kind="result_too_large", message=message))


def result_of(
    returned: Returned | None, runs: Iterable[StatementRun], also: Conversions = CONVERSIONS
) -> dict[str, Any]:
    """The result of a SQL task.

    Args:
        returned: Of the last statement that returned rows; ``None`` if none did: then ``row_count`` is that of the last
            statement that counted the rows it changed, else 0.

    Raises:
        ToolFailure: ``result_not_json``, with the row and column of the value.
    """
    runs = list(runs)
    statements = [{"command": run.command, "row_count": run.row_count} for run in runs]
    if returned is None:
        counted = [run.row_count for run in runs if run.row_count is not None]
        return {"rows": [], "row_count": counted[-1] if counted else 0, "columns": [], "statements": statements}
    columns = list(returned.columns)
    rows = _plain_rows(columns, returned.rows, also)
    return {"rows": rows, "row_count": len(rows), "columns": columns, "statements": statements}


def _plain_rows(columns: list[str], rows: Sequence[Sequence[Any]], also: Conversions) -> list[Mapping[str, Any]]:
    mappings: list[Mapping[str, Any]] = [dict(zip(columns, row, strict=True)) for row in rows]
    try:
        plain: list[Mapping[str, Any]] = to_json(mappings, name="rows", also=also)
    except NotJson as error:
        message = f"{error.path}: {error.reason.partition(';')[0]}; cast the column to text in the statement"
        raise ToolFailure(ErrorInfo(kind="result_not_json", message=message)) from None
    return plain
