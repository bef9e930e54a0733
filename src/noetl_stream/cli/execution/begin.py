"""What ``run`` and ``execution start`` share: what the arguments stand for, and the new execution."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.session import Session
from noetl_stream.cli.playbook.source import file_or_address, not_there, print_diagnostics, read_text
from noetl_stream.errors import NotFound, PlaybookRefused, UsageError
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.ports.operations.executions import ExecutionDocument, RequestIds, Start


def wanted_of(playbook: str | None, digest: str | None = None) -> Start:
    """What FILE, PATH[@VERSION] or a digest stand for.

    Raises:
        UsageError: neither or both are given, or the file cannot be read.
    """
    if (playbook is None) == (digest is None):
        raise UsageError("say what to start", hint="by one of FILE, PATH[@VERSION] and --digest DIGEST")
    if playbook is None:
        return Start(digest=digest)
    given = file_or_address(playbook)
    return Start(playbook=read_text(given).source) if isinstance(given, Path) else Start(given.path, given.version)


async def started(session: Session, wanted: Start, name: str, ids: RequestIds | None = None) -> ExecutionDocument:
    """The new execution; a playbook with errors ends the command with :attr:`ExitCode.INVALID`.

    Args:
        name: What its diagnostics call a text.
    """
    try:
        return await session.operations.executions.start(wanted, session.by, ids)
    except PlaybookRefused as refused:
        print_diagnostics([Diagnostic(**one) for one in refused.diagnostics], name)
        raise click.exceptions.Exit(ExitCode.INVALID) from None
    except NotFound as error:
        raise not_there(name, error) if wanted.path is not None else error from None
