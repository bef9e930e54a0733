"""Where a playbook's text comes from: a file, or the catalog."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.model.limits import operator_limits
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.plan import Plan
from noetl_stream.ports.catalog import ADDRESS_FORM, Address, read_address
from noetl_stream.ports.operations.playbooks import PlaybookDocument
from noetl_stream.settings.environment import limit_settings
from noetl_stream.tools.registry import kinds_of, load_tools

_FILE_BEGINNINGS: Final = ("/", "./", "../", "~")
_FILE_ENDINGS: Final = (".yaml", ".yml")


class PlaybookText(NamedTuple):
    """A playbook's text. ``name`` is what people call it: the file, or ``path@version``; ``entry``: of the catalog."""

    name: str
    source: str
    entry: PlaybookDocument | None


class Runnable(NamedTuple):
    """A text without errors, and its plan."""

    source: str
    plan: Plan


def file_or_address(argument: str) -> Path | Address:
    """What a person means by FILE or PATH[@VERSION]: a file that is there, else an address if it reads as one."""
    file = Path(argument)
    if os.access(file, os.F_OK) and not file.is_dir():
        return file
    spelled_as_file = argument.startswith(_FILE_BEGINNINGS) or argument.endswith(_FILE_ENDINGS)
    return (None if spelled_as_file else read_address(argument)) or file


def read_playbook(file: Path) -> bytes:
    """The bytes of a playbook file.

    Raises:
        UsageError: if it cannot be read; one line.
    """
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{file}: is a folder, not a playbook file") from None
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None


def read_given(file: Path) -> bytes:
    """:func:`read_playbook`, for an argument that could have been an address too: the error says both."""
    try:
        return read_playbook(file)
    except UsageError as error:
        raise UsageError(error.message, hint=f"name a file, or a registered playbook by {ADDRESS_FORM}") from None


def read_text(file: Path) -> PlaybookText:
    """The text of a file that need not be a good playbook.

    Raises:
        UsageError: it cannot be read, or is no text.
    """
    try:
        return PlaybookText(str(file), read_given(file).decode(), None)
    except UnicodeDecodeError:
        raise UsageError(f"{file}: is not UTF-8 text") from None


def not_there(argument: str, error: NotFound) -> UsageError:
    """The error for what is neither a file nor registered; the hint says what is."""
    return UsageError(f"{argument}: no such file, and {error.message}", hint=error.hint)


def print_diagnostics(found: Sequence[Diagnostic], name: str) -> None:
    """What is to be said of a playbook, on stderr.

    Args:
        name: Of the text; empty: as the diagnostics say.
    """
    for diagnostic in found:
        click.echo((replace(diagnostic, file=name) if name else diagnostic).render(), err=True)


def checked_playbook(name: str, source: bytes | str) -> Runnable | None:
    """The playbook if it has no errors; what is to be said of it goes to stderr."""
    limits = operator_limits(limit_settings())
    checked = check(source, kinds_of(load_tools()), file=name, limits=limits)
    for diagnostic in checked.diagnostics:
        click.echo(diagnostic.render(), err=True)
    if checked.plan is None:
        return None
    return Runnable(source if isinstance(source, str) else source.decode(), checked.plan)


def runnable_playbook(name: str, source: bytes | str) -> Runnable:
    """The playbook; one with errors ends the command with :attr:`ExitCode.INVALID`."""
    found = checked_playbook(name, source)
    if found is None:
        raise click.exceptions.Exit(ExitCode.INVALID)
    return found
