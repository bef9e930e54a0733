"""Playbooks on the command line: a file, or an address of the catalog."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.files import utf8_text
from noetl_stream.cli.base.output import say
from noetl_stream.errors import NotFound, UsageError, usable_file
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.ports.operations.playbooks import PlaybookDocument
from noetl_stream.ports.stores.catalog import ADDRESS_FORM, Address, read_address
from noetl_stream.settings.sources.environment import kinds_off, limit_settings

if TYPE_CHECKING:  # the catalog is read without the compiler
    from noetl_stream.model.limits import Limits
    from noetl_stream.playbook.compile.compiler import CatalogDocument, CheckResult
    from noetl_stream.playbook.kinds.spec import Kinds
    from noetl_stream.playbook.plan import Plan

kinds_option = click.option(
    "--kinds", "extra", default="", metavar="KIND,…", help="Accept these tool kinds although they are not installed."
)

_FILE_BEGINNINGS: Final = ("/", "./", "../", "~")
_FILE_ENDINGS: Final = (".yaml", ".yml")


class PlaybookText(msgspec.Struct, frozen=True, gc=False):
    """The text of a playbook. ``name`` is the file or ``path@version``; ``entry`` is that of the catalog, if any."""

    name: str
    source: str
    entry: PlaybookDocument | None


def file_or_address(argument: str) -> Path | Address:
    """The meaning of FILE or PATH[@VERSION]: an existing file, else an address if it can be one."""
    file = Path(argument)
    if os.access(file, os.F_OK) and not file.is_dir():
        return file
    spelled_as_file = argument.startswith(_FILE_BEGINNINGS) or argument.endswith(_FILE_ENDINGS)
    return (None if spelled_as_file else read_address(argument)) or file


def read_playbook(file: Path) -> bytes:
    """The bytes of a playbook file.

    Raises:
        UsageError: it cannot be read.
    """
    with usable_file(file):
        try:
            return file.read_bytes()
        except FileNotFoundError:
            raise UsageError(f"{file}: no such file") from None
        except IsADirectoryError:
            raise UsageError(f"{file}: is a folder") from None


def read_text(file: Path) -> PlaybookText:
    """The text of a file, unchecked.

    Raises:
        UsageError: it cannot be read, or is not text; a missing file could also be meant as an address.
    """
    try:
        data = read_playbook(file)
    except UsageError as error:
        hint = f"give a file, or the address of a registered playbook: {ADDRESS_FORM}"
        raise UsageError(error.message, hint=hint) from None
    return PlaybookText(str(file), utf8_text(data, str(file)), None)


def not_there(argument: str, error: NotFound) -> UsageError:
    """The error for an argument that is neither a file nor registered."""
    return UsageError(f"{argument}: no such file, and {error.message}", hint=error.hint)


def print_diagnostics(found: Sequence[Diagnostic], name: str) -> None:
    """Prints diagnostics to stderr.

    Args:
        name: Replaces the file named in the diagnostics, unless empty.
    """
    for diagnostic in found:
        say((replace(diagnostic, file=name) if name else diagnostic).render(), err=True)


def accepted(extra: str = "") -> tuple[Kinds, Limits]:
    """The tool kinds installed here, with those switched off by the environment, and of ``--kinds``; its limits."""
    from noetl_stream.model.limits import operator_limits
    from noetl_stream.playbook.kinds.spec import unchecked_kind
    from noetl_stream.tools.registry import kinds_of, load_tools

    foreign = {kind: unchecked_kind(kind) for kind in map(str.strip, extra.split(",")) if kind}
    return {**foreign, **kinds_of(load_tools(), kinds_off())}, operator_limits(limit_settings())


def runnable_plan(name: str, source: bytes | str) -> Plan:
    """The plan of a playbook, whose diagnostics go to stderr; errors end the command with :attr:`ExitCode.INVALID`."""
    return judged(name, source)[0]


def judged(name: str, source: bytes | str) -> tuple[Plan, bool]:
    """:func:`runnable_plan`, and whether there were no diagnostics."""
    from noetl_stream.playbook.compile.compiler import check
    from noetl_stream.playbook.plan import Plan

    kinds, limits = accepted()
    checked = check(source, kinds, file=name, limits=limits, proves=True)
    plan = _valid(checked)
    assert isinstance(plan, Plan)
    return plan, not checked.diagnostics


def registrable(name: str, source: bytes) -> CatalogDocument:
    """:func:`runnable_plan` for any document of the catalog."""
    from noetl_stream.playbook.compile.compiler import check_document

    kinds, limits = accepted()
    return _valid(check_document(source, kinds, file=name, limits=limits))


def _valid(checked: CheckResult) -> CatalogDocument:
    print_diagnostics(checked.diagnostics, "")
    if checked.document is None:
        raise click.exceptions.Exit(ExitCode.INVALID)
    return checked.document
