"""Tables and JSON for people and programs: data to stdout, talk to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

ROWS_SHOWN = 50


def console(*, stderr: bool = False) -> Console:
    """A console that folds at the terminal's width, and never cuts when piped."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else 200, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """One JSON document on stdout, and nothing else."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> None:
    """A table on stdout."""
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(cell_text(cell) for cell in row))
    console().print(table)


def cell_text(value: Any) -> str:
    """A cell: text as it is, nothing as an empty cell, everything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, ensure_ascii=False)


def print_result(result: Any) -> None:
    """A result as a table where it has the shape of one, else as JSON."""
    rows = result.get("rows") if isinstance(result, dict) and isinstance(result.get("rows"), list) else result
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        columns = list(dict.fromkeys(key for row in rows for key in row))
        print_table(columns, [[row.get(column) for column in columns] for row in rows[:ROWS_SHOWN]])
        if len(rows) > ROWS_SHOWN:
            click.echo(f"… and {len(rows) - ROWS_SHOWN} more rows")
    elif isinstance(result, dict) and result:
        print_table(("key", "value"), list(result.items()))
    elif result is not None:
        click.echo(json.dumps(result, ensure_ascii=False, indent=2))
