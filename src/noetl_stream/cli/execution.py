"""``noetl-stream execution``: what can be read of executions, and asked of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from noetl_stream.cli.asking import COMMANDS as ASKING
from noetl_stream.cli.asking_work import no_execution
from noetl_stream.cli.options import home_option, output_option
from noetl_stream.cli.output import print_json, print_result, print_table
from noetl_stream.cli.process import run_async, settings_for
from noetl_stream.client.summary import describe
from noetl_stream.hosting import connected_to, open_place, prepare_embedded
from noetl_stream.model.envelope import envelope, iso
from noetl_stream.ports.store import ListedExecution, Store

WAITS_SHOWN = 20

STATUSES = ("pending", "running", "waiting", "paused", "completed", "failed", "cancelled")


@click.group()
def execution() -> None:
    """Look at executions, and intervene."""


for command in ASKING:
    execution.add_command(command)


@execution.command("list")
@click.option("--status", type=click.Choice(STATUSES), default=None, help="Only executions with this status.")
@click.option("--path", default=None, help="Only executions of the playbook with this path.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest first.")
@click.option("--before", default=None, metavar="ID", help="Go on after this execution of the last page.")
@output_option("table", "json")
@home_option
def list_executions(
    status: str | None, path: str | None, limit: int, before: str | None, output: str, home: Path | None
) -> None:
    """List executions, newest first."""

    async def read(store: Store) -> list[ListedExecution]:
        return await store.list_executions(status, path, limit, before)

    found = _with_store(home, read)
    rows = [
        {
            "execution_id": one.execution_id,
            "status": one.status,
            "path": one.path,
            "version": one.version,
            "started": iso(one.started_ms),
            "duration_s": None if one.finished_ms is None else round((one.finished_ms - one.started_ms) / 1000, 3),
        }
        for one in found
    ]
    if output == "json":
        print_json(rows)
    else:
        print_table(
            ("execution", "status", "path", "version", "started", "seconds"), [list(row.values()) for row in rows]
        )


@execution.command()
@click.argument("execution_id", metavar="ID")
@output_option("table", "json")
@home_option
def get(execution_id: str, output: str, home: Path | None) -> None:
    """Show one execution: status, steps, ctx, result or error."""

    async def read(store: Store) -> dict[str, Any]:
        row = await store.execution(execution_id)
        if row is None:
            raise no_execution(execution_id)
        return describe(row, await store.journal(execution_id), await store.now_ms())

    found = _with_store(home, read)
    if output == "json":
        print_json(found)
        return
    for key in ("execution_id", "path", "status", "duration_s", "discarded_tokens", "error"):
        if found[key]:
            click.echo(f"{key}: {_plain(found[key])}")
    print_table(("step", "runs", "status", "seconds", "retries"), [list(step.values()) for step in found["steps"]])
    for wait in found["waits"][:WAITS_SHOWN]:
        click.echo(_waiting(wait))
    if len(found["waits"]) > WAITS_SHOWN:
        click.echo(f"… and {len(found['waits']) - WAITS_SHOWN} more waits")
    if found["ctx"]:
        click.echo(f"ctx, version {found['ctx_version']}:" if found["ctx_version"] else "ctx:")
        print_result(found["ctx"])
    if found["result"] is not None:
        click.echo("result:")
        print_result(found["result"])


@execution.command()
@click.argument("execution_id", metavar="ID")
@click.option("--after", type=click.IntRange(0), default=0, help="Only events after this position.")
@click.option("--limit", type=click.IntRange(1), default=None, help="At most so many.")
@output_option("table", "json")
@home_option
def events(execution_id: str, after: int, limit: int | None, output: str, home: Path | None) -> None:
    """Show the journal of one execution, by position."""

    async def read(store: Store) -> list[dict[str, Any]]:
        execution = await store.execution(execution_id)
        if execution is None:
            raise no_execution(execution_id)
        rows = await store.journal(execution_id, after, limit)
        return [
            envelope(
                execution_id,
                row.position,
                row.name,
                row.source,
                row.at_ms,
                row.step_run_id,
                row.report_id,
                row.data,
                row.cause,
                execution.trace_id,
            )
            for row in rows
        ]

    found = _with_store(home, read)
    if output == "json":
        print_json(found)
        return
    columns = ("position", "ts", "source", "name", "status", "entity_id")
    print_table(columns, [[one[column] for column in columns] for one in found])


def _with_store(home: Path | None, read: Any) -> Any:
    async def work() -> Any:
        await prepare_embedded(place)
        async with connected_to(place, "noetl-cli") as connected:
            await connected.store.verify()
            return await read(connected.store)

    with open_place(settings_for(home)) as place:
        return run_async(work())


def _waiting(wait: dict[str, Any]) -> str:
    where = [wait["step"], *map(str, wait["iteration"]), *([wait["task"]] if wait["task"] else [])]
    until = f", until {wait['until']}" if wait["until"] else ""
    return f"{'.'.join(where)} waits for {wait['for']}{until}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value.get('kind')}: {value.get('message')}"
    return str(value)
