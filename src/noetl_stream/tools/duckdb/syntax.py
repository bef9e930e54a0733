"""Reads the SQL of ``kind: duckdb`` with DuckDB's own parser, without running it. Importing DuckDB is slow."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import duckdb

from noetl_stream.playbook.kinds.spec import CodeProblem
from noetl_stream.tools import sql

MAX_PARSED_CHARS: Final = 16_384
"""The most characters of SQL that is parsed: DuckDB's parser takes kilobytes for each level of nesting."""

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": "1",
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_TOKEN: Final = re.compile(r"/\*|--[^\n]*|\w+")
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_BEFORE_SECRET: Final = frozenset({"or", "replace", "temp", "temporary", "persistent"})
_parsing: Final = threading.Lock()


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(":memory:", config=_CONFIG)


def syntax_problems(text: str) -> Iterator[CodeProblem]:
    """Returns the reason why the SQL does not parse, if any. The meaning of its names is known only when it runs."""
    if len(text) > MAX_PARSED_CHARS:
        return
    try:
        with _parsing:
            _connection().extract_statements(text)
    except duckdb.ParserException as error:
        yield _problem(text, str(error))
    except duckdb.Error:
        return


def params_error(inputs: Mapping[str, Any]) -> str | None:
    """Returns the reason why the params do not match the SQL, as far as known before the run."""
    return sql.params_error(inputs, _statement_parameters)


def _statement_parameters(text: str) -> list[tuple[str, list[str]]]:
    try:
        with _parsing:
            statements = _connection().extract_statements(text)
    except duckdb.Error as error:
        raise ValueError("does not parse") from error
    return [(one.query, [str(name) for name in one.named_parameters]) for one in statements]


def creates_secret(statement: str) -> bool:
    """Returns whether a statement creates a secret of DuckDB, or may do so, since it explains one."""
    words = _words(statement.lower())
    first = next(words, "")
    if first == "explain":  # it may run it, with options in quotes of any kind before it
        return all(word in statement.lower() for word in ("create", "secret"))
    return first == "create" and next((word for word in words if word not in _BEFORE_SECRET), "") == "secret"


def _words(text: str) -> Iterator[str]:
    """Yields the words of SQL outside comments, which may be nested."""
    at = depth = 0
    while found := (_COMMENT_EDGE if depth else _TOKEN).search(text, at):
        token, at = found[0], found.end()
        if token in ("/*", "*/"):
            depth += 1 if token == "/*" else -1
        elif not token.startswith("--"):
            yield token


def _problem(text: str, error: str) -> CodeProblem:
    message, _, excerpt = error.removeprefix("Parser Error: ").partition("\n\nLINE ")
    number = excerpt.partition(":")[0]
    line = int(number) if number.isdecimal() else 1
    return CodeProblem(" ".join(message.split()), line, _column(text, line, excerpt))


def _column(text: str, line: int, excerpt: str) -> int:
    """Returns the column of DuckDB's mark below the line; 1 if it shows only part of the line."""
    shown, _, mark = excerpt.partition("\n")
    prefix = f"{line}: "
    is_whole = shown.removeprefix(prefix) in text.split("\n")
    return max(mark.find("^") - len(f"LINE {prefix}"), 0) + 1 if is_whole else 1
