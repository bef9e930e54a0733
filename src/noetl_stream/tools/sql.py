"""Code shared by the SQL kinds: statements, parameters, row limits, and the result (LANGUAGE §12)."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any, Final, Never

import msgspec
from pydantic import AliasChoices, Field

from noetl_stream.model.json.values import TOO_DEEP
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.convert import Conversions, NotJson, to_json
from noetl_stream.tools.inputs import Inputs, Knobs, invalid_input

MAX_ROWS: Final = 100_000
MAX_RESULT_BYTES: Final = 64 * 1024 * 1024
_ROW: Final = re.compile(r"^rows\[(\d+)\]")
_TEMPLATE: Final = re.compile(r"\{[{%#]")
MAX_COMPARED_CHARS: Final = 16_384
"""The most characters of SQL that `check` compares with the task's params."""

SQL_INPUTS: Final = frozenset(["command", "query", "commands"])
"""The names of the inputs with statements."""

SQL_RESULT: Final = frozenset(["rows", "row_count", "columns", "statements"])
"""The keys of the result of statements."""


@dataclass(frozen=True, slots=True)
class Inexpressible:
    """A database value that JSON cannot represent."""

    reason: str


def _refuse(value: Inexpressible) -> Never:
    raise NotJson("", value.reason)


CONVERSIONS: Final[Conversions] = {
    Inexpressible: _refuse,
    datetime.timedelta: datetime.timedelta.total_seconds,
    bytes: lambda value: base64.b64encode(value).decode(),
    ipaddress.IPv4Address: str,
    ipaddress.IPv6Address: str,
    ipaddress.IPv4Network: str,
    ipaddress.IPv6Network: str,
}
"""Conversions of database types: intervals to seconds, bytes to base64, addresses to text."""

Params = dict[str, Any] | list[Any] | None


COMMAND_NAMES: Final = AliasChoices("command", "query", "commands")


class SqlInputs(Inputs):
    """Inputs of every SQL kind."""

    command: str | list[str] = Field(
        validation_alias=COMMAND_NAMES,
        description="SQL with one or more statements, or a list of such texts.",
    )
    params: Params = Field(
        default=None, description="Values for `$name` (a mapping) or `$1`, `$2`, … (a list) in the statements."
    )

    @property
    def texts(self) -> list[str]:
        """Returns the texts with statements, in order."""
        return [self.command] if isinstance(self.command, str) else self.command


class SqlKnobs(Knobs):
    """Knobs of every SQL kind."""

    max_rows: int = Field(default=MAX_ROWS, gt=0, description="Rows that a statement may return; more are an error.")
    max_result_bytes: int = Field(
        default=MAX_RESULT_BYTES, gt=0, description="Bytes that a statement may return; more are an error."
    )


def check_params(params: Params, statements: Sequence[tuple[str, Iterable[str]]]) -> None:
    """Checks the parameters against those that the statements use, by name or by position from 1.

    Args:
        statements: Each statement's text, and the parameters that it uses.

    Raises:
        ToolFailure: ``invalid_input`` if one is missing, or unused, which suggests a misspelling or a placeholder in
            the style of another driver.
    """
    given = dict.fromkeys(_param_names(params))
    used: set[str] = set()
    for number, (_, names) in enumerate(statements, start=1):
        for name in names:
            used.add(name)
            if name not in given:
                raise _missing_failure(params, number, name)
    unused = [name for name in given if name not in used]
    if unused:
        shown = f"params.{unused[0]}" if isinstance(params, dict) else f"params[{int(unused[0]) - 1}]"
        foreign = _foreign_placeholder(unused[0], [text for text, _ in statements])
        raise invalid_input(f"{shown}: no statement uses ${unused[0]}{foreign}")


def params_error(inputs: Mapping[str, Any], named: Callable[[str], Sequence[tuple[str, Iterable[str]]]]) -> str | None:
    """Returns the refusal of :func:`check_params`, as far as it is known before the inputs are rendered.

    Args:
        inputs: The inputs by field, with their templates as written.
        named: The statements of a text, each with the parameters that it uses; ``ValueError`` if it does not parse.
    """
    command, params = inputs.get("command"), inputs.get("params")
    texts: list[Any] = command if isinstance(command, list) else [command]
    known = all(isinstance(text, str) and not _TEMPLATE.search(text) for text in texts)
    if not known or sum(map(len, texts)) > MAX_COMPARED_CHARS or not isinstance(params, dict | list | None):
        return None
    try:
        check_params(params, [statement for text in texts for statement in named(text)])
    except ToolFailure as failure:
        return failure.error.message
    except ValueError:
        return None
    return None


def value_of(params: Params, name: str) -> Any:
    """Returns the value of a parameter, after :func:`check_params`."""
    return params[int(name) - 1] if isinstance(params, list) else (params or {})[name]


def _param_names(params: Params) -> list[str]:
    if isinstance(params, list):
        return [str(position) for position in range(1, len(params) + 1)]
    return list(params or ())


def _foreign_placeholder(name: str, texts: Iterable[str]) -> str:
    """Returns where a statement writes the parameter in another driver's style, for the message; empty if nowhere."""
    named = (f"%({name})s", f":{name}", f"@{name}")
    for number, text in enumerate(texts, start=1):
        for written in ("%s", "?") if name.isdecimal() else named:
            if re.search(rf"(?<![\w:@?]){re.escape(written)}(?!\w)", text):
                return f"; statement {number} writes {written}, and parameters are written ${name}"
        if f"'${name}'" in text:
            return f"; statement {number} has '${name}', which is text: write ${name} without quotes"
    return ""


def _missing_failure(params: Params, number: int, name: str) -> ToolFailure:
    if params is None:
        reason = "the task has no params"
    elif isinstance(params, list):
        reason = f"params is a list of {len(params)}"
        if not name.isdecimal():
            reason += "; use a mapping for names"
    else:
        reason = f"params has {', '.join(sorted(params)) or 'no values'}"
    return invalid_input(f"statement {number} uses ${name}, but {reason}")


@dataclass(frozen=True, slots=True)
class StatementRun:
    """A statement's command, and the number of rows that it returned or changed; ``None`` if that does not apply."""

    command: str
    row_count: int | None


@dataclass(frozen=True, slots=True)
class Returned:
    """The rows that a statement returned, as the driver gave them, and their column names."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


def parsed_json(text: str) -> Any:
    """Parses a JSON column. A number whose digits a double cannot keep is a ``Decimal``, so that it is refused.

    Raises:
        ValueError: The text is not JSON.
    """
    try:
        return _json.decode(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def _exact(literal: str) -> float | Decimal:
    number = float(literal)
    if len(literal) <= _DOUBLE_KEEPS_CHARS and "e" not in literal.lower():
        return number
    exact = Decimal(literal)
    return number if isfinite(number) and Decimal(repr(number)) == exact else exact


_DOUBLE_KEEPS_CHARS: Final = 16
"""The characters of a number with a point, and so at most 15 digits, that a double always keeps."""
_json: Final = msgspec.json.Decoder(float_hook=_exact)


def check_columns(columns: Sequence[str], number: int) -> None:
    """Rejects a statement that returns two columns with one name, of which a row could keep only one.

    Raises:
        ToolFailure: kind ``sql``.
    """
    duplicates = [name for name, count in Counter(columns).items() if count > 1]
    if duplicates:
        message = f"statement {number} returns more than one column named {duplicates[0]!r}; rename them with AS"
        raise ToolFailure.of("sql", message)


def too_many_rows(number: int, max_rows: int) -> ToolFailure:
    """Makes the failure for more than ``max_rows`` rows."""
    advice = "add LIMIT, write `into: table`, or raise max_rows"
    message = f"statement {number} returns more than max_rows ({max_rows:,}) rows; {advice}"
    return ToolFailure.of("result_too_large", message)


def too_many_bytes(number: int, max_bytes: int) -> ToolFailure:
    """Makes the failure for more than ``max_bytes`` bytes."""
    message = (
        f"statement {number} returns more than max_result_bytes ({max_bytes:,}) bytes; select less, "
        "write `into: table`, or raise max_result_bytes"
    )
    return ToolFailure.of("result_too_large", message)


def result_of(
    returned: Returned | None, runs: Iterable[StatementRun], also: Conversions = CONVERSIONS
) -> dict[str, Any]:
    """Builds the result of a SQL task.

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
    rows = plain_rows(columns, returned.rows, also=also)
    return {"rows": rows, "row_count": len(rows), "columns": columns, "statements": statements}


def plain_rows(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], first: int = 0, also: Conversions = CONVERSIONS
) -> list[Mapping[str, Any]]:
    """Returns rows as mappings of plain JSON. ``first`` is the number of the first one, for errors.

    Raises:
        ToolFailure: ``result_not_json``, with the row and column of the value.
    """
    mappings: list[Mapping[str, Any]] = [dict(zip(columns, row, strict=True)) for row in rows]
    try:
        plain: list[Mapping[str, Any]] = to_json(mappings, name="rows", also=also)
    except NotJson as error:
        path = _ROW.sub(lambda found: f"rows[{first + int(found[1])}]", error.path)
        reason, _, advice = error.reason.partition(";")
        rounded = ", or to double precision to round it" if "round" in advice else ""
        message = f"{path}: {reason}; cast the column to text{rounded}"
        raise ToolFailure.of("result_not_json", message) from None
    return plain
