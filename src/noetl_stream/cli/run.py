"""``noetl-stream run``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import output_option
from noetl_stream.cli.base.output import print_json
from noetl_stream.cli.base.process import settings_for
from noetl_stream.cli.base.target import Target, gateway_of, target_options
from noetl_stream.cli.execution.begin import wanted_of
from noetl_stream.cli.execution.tables import print_ended
from noetl_stream.cli.execution.workload import workload_of, workload_options
from noetl_stream.cli.playbook.source import file_or_address, read_given, runnable_playbook
from noetl_stream.ports.operations.documents import plain
from noetl_stream.ports.operations.executions import ExecutionDocument

KEYS = ("execution_id", "path", "status", "result", "ctx", "duration_s", "steps", "error")
STEP_KEYS = ("step", "runs", "status", "duration_s")
"""What ``-o json`` promises; ``execution get`` says more."""


@click.command()
@click.argument("playbook", metavar="FILE|PATH[@VERSION]")
@workload_options
@click.option("--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), help="Wait at most so many seconds.")
@output_option("text", "json")
@target_options
@click.pass_context
def run(
    ctx: click.Context,
    playbook: str,
    sets: tuple[str, ...],
    strings: tuple[str, ...],
    workload_file: Path | None,
    timeout_s: float | None,
    output: str,
    target: Target,
) -> None:
    """Run a playbook and wait for its end: a FILE, or one of the catalog by its PATH, the latest or @VERSION.

    A file that is there comes first. The execution is pinned to the text it began with, whatever is registered later.

    \b
    KEY may have dots (a.b=1 sets b inside a). Later options win over earlier ones, and --set over --workload.
    Where no server runs yet, one is started together with a worker; they end when nothing needs them. With --url the
    gateway's servers and workers do it all.
    Ctrl-C and --timeout only end the waiting: the execution goes on.

    \b
    Exit code:
      0 completed   1 failed or cancelled   2 invalid playbook or usage
      3 NATS or Postgres cannot be reached  124 --timeout is over   130 interrupted
    """
    given = file_or_address(playbook)
    plans = []
    if isinstance(given, Path) and gateway_of(target, settings_for(target.home)) is None:
        # Checked before anything is started for it.
        plans = [runnable_playbook(str(given), read_given(given)).plan]
    wanted = wanted_of(playbook)._replace(workload=workload_of(workload_file, sets, strings))
    from noetl_stream.cli.execution.run import run_to_end

    ended = run_to_end(target, wanted, playbook, plans, timeout_s=timeout_s, output=output)
    if isinstance(ended, ExitCode):
        ctx.exit(ended)
    if output == "json":
        _print(ended)
    else:
        print_ended(ended)
    ctx.exit(ExitCode.COMPLETED if ended.status == "completed" else ExitCode.FAILED)


def _print(found: ExecutionDocument) -> None:
    shown = plain(found)
    steps = [{key: step[key] for key in STEP_KEYS} for step in shown["steps"] or ()]
    print_json({key: steps if key == "steps" else shown[key] for key in KEYS})
