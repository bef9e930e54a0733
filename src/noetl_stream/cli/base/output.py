"""Output for people and programs: data goes to stdout, messages to stderr.

All output of commands goes through here, so that no character of it is a control sequence for the terminal.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click
import msgspec

from noetl_stream.cli.base.activity import activity
from noetl_stream.ports.operations.verbs import plain
from noetl_stream.sealing.data_references import without_seals
from noetl_stream.telemetry.terminal import UNSAFE, json_text, shown, shown_json

DOCUMENTS = ("json", "jsonl", "yaml")
"""Formats that show all fields."""

ROWS_SHOWN = 50
WHOLE_CELLS = 40
"""The width up to which a cell never folds, so that ids can be copied."""

Fields = msgspec.Struct | Mapping[str, Any]
Shown = TypeVar("Shown", bound=Fields)

Cell = str | Callable[[Any], Any]
"""A field of a document, or a function of the document."""

Columns = Mapping[str, Cell]


def _write(text: str, *, err: bool = False, nl: bool = True) -> None:
    activity.clear()
    click.echo(text, err=err, nl=nl)


def say(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints text for people, or a word or name for programs."""
    _write(shown(str(text)), err=err, nl=nl)


def say_json(text: str) -> None:
    """Prints JSON that comes as text."""
    _write(shown_json(text))


def print_source(text: str) -> None:
    """Prints a text such as a playbook: unchanged to a file or pipe."""
    activity.clear()
    sys.stdout.write(shown(text) if sys.stdout.isatty() else text)  # click would remove colours from a file


def columns_of(*keys: str, **more: Cell) -> Columns:
    """A column for each of these keys, followed by others."""
    return {**{key: key for key in keys}, **more}


def print_documents(documents: Sequence[Fields], output: str, columns: Columns, name: Cell) -> None:
    """Prints a list in the format of ``-o``: a table of ``columns``, only the names, or everything.

    Args:
        name: The field that ``-o name`` shows.
    """
    if output in ("table", "text"):
        print_table(tuple(columns), [[_cell(one, cell) for cell in columns.values()] for one in documents])
    elif output == "json":
        print_json(documents)
    elif output == "yaml":
        print_yaml(documents)
    else:
        for one in documents:
            print_document(one, output, name, print_json)


def print_document(document: Shown, output: str, name: Cell, show: Callable[[Shown], object]) -> None:
    """Prints one document in the format of ``-o``; ``show`` prints it for people."""
    if output == "name":
        say(_cell(document, name))
    elif output == "yaml":
        print_yaml(document)
    elif output in ("json", "jsonl"):
        print_json(document)
    else:
        show(document)


def print_members(document: Fields) -> None:
    """Prints a document for people: a line for each member that has a value."""
    for key, value in plain(document).items():
        if value not in (None, "", [], {}):
            is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
            say(f"{key}: {cell_text(', '.join(value) if is_words else value)}")


def print_json(value: Any) -> None:
    """Prints one line of JSON."""
    _write(json_text(plain(value)))


def print_yaml(value: Any) -> None:
    """Prints one YAML document."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.allow_unicode = True
    yaml.width = 4096
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    text = io.StringIO()
    yaml.dump(plain(value), text)
    if re.search(UNSAFE, text.getvalue()):
        yaml.allow_unicode = False  # it escapes them, along with all other non-ASCII characters
        text = io.StringIO()
        yaml.dump(plain(value), text)
    _write(text.getvalue(), nl=False)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints a table. On a terminal long cells fold, and ids stay whole; elsewhere a row is one line."""
    lines = [list(columns), *([cell_text(cell) for cell in row] for row in rows)]
    if not sys.stdout.isatty():
        lines = [[" ".join(cell.split("\n")) for cell in line] for line in lines]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    if sys.stdout.isatty():
        _print_folded(lines, [min(width, WHOLE_CELLS) for width in widths])
        return
    for line in lines:
        padded = (cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True))
        say("  ".join(padded).rstrip())


def _width(text: str) -> int:
    """The number of terminal cells of a text."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # takes a twentieth of a command that has no other use for it

    return cell_len(text)


def _print_folded(lines: Sequence[Sequence[str]], least: Sequence[int]) -> None:
    """A terminal narrower than the ``least`` widths wraps the rows itself."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.width = max(console.width, sum(least) + 2 * len(least))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, width in zip(lines[0], least, strict=True):
        table.add_column(column, min_width=width, overflow="fold")
    for line in lines[1:]:
        table.add_row(*line)
    activity.clear()
    console.print(table)


def cell_text(value: Any) -> str:
    """A value as a cell: text in printable form, ``None`` empty, anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, float):
        return f"{value:g}"
    return json_text(without_seals(plain(value)))


def print_result(result: Any) -> None:
    """Prints a result as a table if it has rows or members, else as JSON."""
    result = without_seals(result)  # it may be a reference itself, or a list of them
    rows = result.get("rows") if isinstance(result, dict) and isinstance(result.get("rows"), list) else result
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        columns = list(dict.fromkeys(key for row in rows for key in row))
        print_table(columns, [[_value(row, column) for column in columns] for row in rows[:ROWS_SHOWN]])
        if len(rows) > ROWS_SHOWN:
            say(f"… and {len(rows) - ROWS_SHOWN} more rows")
    elif isinstance(result, dict) and result:
        print_table(("key", "value"), [(key, _value(result, key)) for key in result])
    elif result is not None:
        _write(json_text(result, indent=2))


def _value(row: Mapping[str, Any], key: str) -> Any:
    """A member as the cell of a result, where none is blank: ``null``, ``""``, and ``–`` for a missing member."""
    if key not in row:
        return "–"
    value = row[key]
    return "null" if value is None else '""' if value == "" else value


def _cell(document: Fields, cell: Cell) -> Any:
    if not isinstance(cell, str):
        return cell(document)
    return document[cell] if isinstance(document, Mapping) else getattr(document, cell)
