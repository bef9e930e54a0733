"""Inputs of the SQL kinds: statements, parameters, row limits (LANGUAGE §12)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pydantic import AliasChoices, Field

from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.inputs import Inputs, Knobs, invalid_input

MAX_ROWS: Final = 100_000

SQL_INPUTS: Final = frozenset(["command", "query", "commands"])
"""The names of the input with the statements."""

Params = dict[str, Any] | list[Any] | None


class SqlInputs(Inputs):
    """Inputs of every SQL kind."""

    command: str | list[str] = Field(
        validation_alias=AliasChoices("command", "query", "commands"),
        description="SQL with one or more statements, or a list of such texts.",
    )
    params: Params = Field(
        default=None, description="Values for `$name` (a mapping) or `$1`, `$2`, … (a list) in the statements."
    )

    @property
    def texts(self) -> list[str]:
        """The texts, in order."""
        return [self.command] if isinstance(self.command, str) else self.command


class SqlKnobs(Knobs):
    """Knobs of every SQL kind."""

    max_rows: int = Field(default=MAX_ROWS, gt=0, description="Rows that a statement may return; more are an error.")


def check_params(params: Params, named: Iterable[Iterable[str]]) -> None:
    """Checks the parameters against those that the statements use, by name or by position from 1.

    Args:
        named: The parameters that each statement uses.

    Raises:
        ToolFailure: ``invalid_input`` if one is missing, or unused, which suggests a misspelling.
    """
    given = _given(params)
    used: set[str] = set()
    for number, names in enumerate(named, start=1):
        for name in names:
            used.add(name)
            if name not in given:
                raise _missing(params, number, name)
    unused = [name for name in given if name not in used]
    if unused:
        shown = f"params.{unused[0]}" if isinstance(params, dict) else f"params[{int(unused[0]) - 1}]"
        raise invalid_input(f"{shown}: no statement uses ${unused[0]}")


def value_of(params: Params, name: str) -> Any:
    """The value of a parameter, after :func:`check_params`."""
    return params[int(name) - 1] if isinstance(params, list) else (params or {})[name]


def _given(params: Params) -> list[str]:
    if isinstance(params, list):
        return [str(position) for position in range(1, len(params) + 1)]
    return list(params or ())


def _missing(params: Params, number: int, name: str) -> ToolFailure:
    if params is None:
        reason = "the task has no params"
    elif isinstance(params, list):
        reason = f"params is a list of {len(params)}"
        if not name.isdecimal():
            reason += "; use a mapping for names"
    else:
        reason = f"params has {', '.join(sorted(params)) or 'no values'}"
    return invalid_input(f"statement {number} uses ${name}, but {reason}")
