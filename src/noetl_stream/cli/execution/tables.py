"""Executions in a table, and one of them in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from noetl_stream.cli.base.output import Columns, print_documents, print_result, print_table

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


def print_executions(found: Sequence[dict[str, Any]], output: str) -> None:
    """A list. What tables show comes first in documents, too."""
    ordered = [{key: one[key] for key in (*LISTED, *(key for key in one if key not in LISTED))} for one in found]
    print_documents(ordered, output, COLUMNS, "execution_id")


def print_execution(found: dict[str, Any]) -> None:
    """One, for people."""
    for key in ("execution_id", "path", "status", "duration_s", "rerun_of", "discarded_tokens", "error"):
        if found[key]:
            click.echo(f"{key}: {_plain(found[key])}")
    if found["steps"] is None:
        click.echo(f"its journal is long: `noetl-stream execution steps {found['execution_id']}` shows its step runs")
    else:
        columns = ("step", "runs", "status", "seconds", "retries")
        print_table(columns, [list(step.values()) for step in found["steps"]])
    waits = found["waits"] or []
    for wait in waits[:WAITS_SHOWN]:
        click.echo(_waiting(wait))
    if len(waits) > WAITS_SHOWN:
        click.echo(f"… and {len(waits) - WAITS_SHOWN} more waits")
    if found["ctx"]:
        click.echo(f"ctx, version {found['ctx_version']}:" if found["ctx_version"] else "ctx:")
        print_result(found["ctx"])
    if found["result"] is not None:
        click.echo("result:")
        print_result(found["result"])


def print_ended(found: dict[str, Any]) -> None:
    """How an execution has ended, for people: its result on stdout, what is to be said of it on stderr."""
    if found["result"] is not None:
        print_result(found["result"])
    if discarded := found["discarded_tokens"]:
        click.echo(f"{discarded} {'token was' if discarded == 1 else 'tokens were'} discarded at the end", err=True)
    error = found["error"]
    if error is not None:
        target = f" in task {error['task']}" if error.get("task") else ""
        click.echo(f"{error['kind']}{target}: {error['message']}", err=True)
    runs = sum(step["runs"] for step in found["steps"] or ())
    counted = f", {runs} step run{'' if runs == 1 else 's'}" if runs else ""
    click.echo(f"{found['status']} in {found['duration_s']:.2f} s{counted} ({found['execution_id']})", err=True)


def _waiting(wait: dict[str, Any]) -> str:
    target = [wait["step"], *map(str, wait["iteration"]), *([wait["task"]] if wait["task"] else [])]
    until = f", until {wait['until']}" if wait["until"] else ""
    return f"{'.'.join(target)} waits for {wait['for']}{until}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value.get('kind')}: {value.get('message')}"
    return str(value)
