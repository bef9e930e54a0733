"""``noetl-stream run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from noetl_stream.cli.exit_codes import ExitCode
from noetl_stream.cli.options import home_option, output_option
from noetl_stream.cli.output import print_json, print_result
from noetl_stream.cli.playbook_source import file_or_address, read_given, runnable_playbook
from noetl_stream.cli.process import run_async, settings_for
from noetl_stream.cli.workload import workload_of

KEYS = ("execution_id", "path", "status", "result", "ctx", "duration_s", "steps", "error")
STEP_KEYS = ("step", "runs", "status", "duration_s")
"""What ``-o json`` promises; ``execution get`` says more."""


@click.command()
@click.argument("playbook", metavar="FILE|PATH[@VERSION]")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a workload key; JSON if it is JSON.")
@click.option("--set-string", "strings", multiple=True, metavar="KEY=VALUE", help="Set a workload key, always text.")
@click.option(
    "--workload",
    "workload_file",
    type=click.Path(path_type=Path),
    help="YAML or JSON mapping merged over the defaults.",
)
@click.option("--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), help="Wait at most so many seconds.")
@output_option("text", "json")
@home_option
@click.pass_context
def run(
    ctx: click.Context,
    playbook: str,
    sets: tuple[str, ...],
    strings: tuple[str, ...],
    workload_file: Path | None,
    timeout_s: float | None,
    output: str,
    home: Path | None,
) -> None:
    """Run a playbook and wait for its end: a FILE, or one of the catalog by its PATH, the latest or @VERSION.

    A file that is there comes first. The execution is pinned to the text it began with, whatever is registered later.

    \b
    KEY may have dots (a.b=1 sets b inside a). Later options win over earlier ones, and --set over --workload.
    Where no server runs yet, one is started together with a worker; they end when nothing needs them.
    Ctrl-C and --timeout only end the waiting: the execution goes on.

    \b
    Exit code:
      0 completed   1 failed or cancelled   2 invalid playbook or usage
      3 NATS or Postgres cannot be reached  124 --timeout is over   130 interrupted
    """
    given = file_or_address(playbook)
    found = runnable_playbook(str(given), read_given(given)) if isinstance(given, Path) else given
    workload = workload_of(workload_file, sets, strings)
    from noetl_stream.cli.running import run_playbook

    ended = run_async(run_playbook(settings_for(home), found, workload, timeout_s=timeout_s, output=output))
    if isinstance(ended, ExitCode):
        ctx.exit(ended)
    _print(ended, output)
    ctx.exit(ExitCode.COMPLETED if ended["status"] == "completed" else ExitCode.FAILED)


def _print(found: dict[str, Any], output: str) -> None:
    if output == "json":
        steps = [{key: step[key] for key in STEP_KEYS} for step in found["steps"]]
        print_json({key: steps if key == "steps" else found[key] for key in KEYS})
        return
    if found["result"] is not None:
        print_result(found["result"])
    if discarded := found["discarded_tokens"]:
        click.echo(f"{discarded} {'token was' if discarded == 1 else 'tokens were'} discarded at the end", err=True)
    error = found["error"]
    if error is not None:
        where = f" in task {error['task']}" if error.get("task") else ""
        click.echo(f"{error['kind']}{where}: {error['message']}", err=True)
    runs = sum(step["runs"] for step in found["steps"])
    counted = f"{runs} step run{'' if runs == 1 else 's'}"
    click.echo(f"{found['status']} in {found['duration_s']:.2f} s, {counted} ({found['execution_id']})", err=True)
