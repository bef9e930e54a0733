"""Executions in a table, and one of them in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from msgspec.structs import astuple

from noetl_stream.cli.base.output import DOCUMENTS, Columns, Fields, print_documents, print_result, print_table
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.ports.operations.documents import plain
from noetl_stream.ports.operations.executions import ExecutionDocument, ListedExecutionDocument, WaitDocument

COLUMNS: Final[Columns] = {
    "execution": "execution_id",
    "status": "status",
    "path": "path",
    "version": "version",
    "started": "started",
    "seconds": "duration_s",
}
LISTED: Final = ("execution_id", "status", "path", "version", "started", "duration_s")
WAITS_SHOWN: Final = 20


def print_executions(found: Sequence[ListedExecutionDocument], output: str) -> None:
    """A list. What tables show comes first in documents, too."""
    shown: Sequence[Fields] = found
    if output in DOCUMENTS:
        members = [plain(one) for one in found]
        shown = [{key: one[key] for key in dict.fromkeys((*LISTED, *one))} for one in members]
    print_documents(shown, output, COLUMNS, "execution_id")


def print_execution(found: ExecutionDocument) -> None:
    """One, for people."""
    for key in ("execution_id", "path", "status", "duration_s", "rerun_of", "discarded_tokens", "error"):
        if value := getattr(found, key):
            click.echo(f"{key}: {_words(value)}")
    if found.steps is None:
        click.echo(f"its journal is long: `noetl-stream execution steps {found.execution_id}` shows its step runs")
    else:
        columns = ("step", "runs", "status", "seconds", "retries")
        print_table(columns, [astuple(step) for step in found.steps])
    waits = found.waits or []
    for wait in waits[:WAITS_SHOWN]:
        click.echo(_waiting(wait))
    if len(waits) > WAITS_SHOWN:
        click.echo(f"… and {len(waits) - WAITS_SHOWN} more waits")
    if found.ctx:
        click.echo(f"ctx, version {found.ctx_version}:")
        print_result(found.ctx)
    if found.result is not None:
        click.echo("result:")
        print_result(found.result)


def print_ended(found: ExecutionDocument) -> None:
    """How an execution has ended, for people: its result on stdout, what is to be said of it on stderr."""
    if found.result is not None:
        print_result(found.result)
    if discarded := found.discarded_tokens:
        click.echo(f"{discarded} {'token was' if discarded == 1 else 'tokens were'} discarded at the end", err=True)
    error = found.error
    if error is not None:
        target = f" in task {error.task}" if error.task else ""
        click.echo(f"{error.kind}{target}: {error.message}", err=True)
    runs = sum(step.runs for step in found.steps or ())
    counted = f", {runs} step run{'' if runs == 1 else 's'}" if runs else ""
    click.echo(f"{found.status} in {found.duration_s:.2f} s{counted} ({found.execution_id})", err=True)


def _waiting(wait: WaitDocument) -> str:
    target = [wait.step, *map(str, wait.iteration), *([wait.task] if wait.task else [])]
    until = f", until {wait.until}" if wait.until else ""
    return f"{'.'.join(target)} waits for {wait.what}{until}"


def _words(value: Any) -> str:
    return f"{value.kind}: {value.message}" if isinstance(value, ErrorInfo) else str(value)
