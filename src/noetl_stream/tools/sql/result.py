"""Builds the result of a SQL kind from rows: ``{rows, row_count, columns, statements}`` (LANGUAGE §12)."""

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
"""Conversions of database types: intervals to seconds, bytes to base64, addresses to text."""


@dataclass(frozen=True, slots=True)
class StatementRun:
    """A statement's command, and how many rows it returned or changed; ``None`` if that does not apply."""

    command: str
    row_count: int | None


@dataclass(frozen=True, slots=True)
class Returned:
    """The rows that a statement returned, as the driver gave them, and their column names."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def check_columns(columns: Sequence[str], number: int) -> None:
    """Rejects a statement that returns two columns with one name, of which a row could keep only one.

    Raises:
        ToolFailure: kind ``sql``.
    """
    duplicates = [name for name, count in Counter(columns).items() if count > 1]
    if duplicates:
        message = f"statement {number} returns more than one column named {duplicates[0]!r}; rename them with AS"
        raise ToolFailure(ErrorInfo(kind="sql", message=message))


def too_many_rows(number: int, max_rows: int) -> ToolFailure:
    """The failure for more than ``max_rows`` rows."""
    message = f"statement {number} returns more than max_rows ({max_rows:,}) rows; add LIMIT, or raise max_rows"
    return ToolFailure(ErrorInfo(kind="result_too_large", message=message))


def result_of(
    returned: Returned | None, runs: Iterable[StatementRun], also: Conversions = CONVERSIONS
) -> dict[str, Any]:
    """The result of a SQL task.

    Args:
        returned: The rows of the last statement that returned any. If ``None``, ``row_count`` is how many rows the last
            counting statement changed, else 0.

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
        message = f"{error.path}: {error.reason.partition(';')[0]}; cast the column to text"
        raise ToolFailure(ErrorInfo(kind="result_not_json", message=message)) from None
    return plain
