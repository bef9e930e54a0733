"""``noetl-stream execution start``."""

from __future__ import annotations

from pathlib import Path

import click

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import print_document
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.execution.begin import started, wanted_of
from noetl_stream.cli.execution.follow import Following, end_as, following_options, stay
from noetl_stream.cli.execution.interventions import explained
from noetl_stream.cli.execution.workload import workload_of, workload_options
from noetl_stream.ports.operations.executions import ExecutionDocument


@click.command()
@click.argument("playbook", metavar="FILE|PATH[@VERSION]", required=False)
@click.option("--digest", default=None, help="Instead of both: the digest of a text that was registered or has run.")
@workload_options
@click.option("--ctx", "ctx_sets", multiple=True, metavar="KEY=VALUE", help="Set a key of ctx before the first step.")
@explained
@following_options
@form_option("text")
@target_options
def start(
    playbook: str | None,
    digest: str | None,
    sets: tuple[str, ...],
    strings: tuple[str, ...],
    workload_file: Path | None,
    ctx_sets: tuple[str, ...],
    reason: str,
    correlation_id: str,
    following: Following,
    output: str,
    target: Target,
) -> None:
    """Start an execution, and say its id: of a FILE, or of a registered playbook by its PATH, the latest or @VERSION.

    It is started when this answers, and goes on by itself. KEY may have dots (a.b=1 sets b inside a).

    \b
    Exit code with --wait or --watch: 0 completed    1 failed or cancelled    124 --timeout is over
    """
    wanted = wanted_of(playbook, digest)._replace(
        workload=workload_of(workload_file, sets, strings),
        ctx=workload_of(None, ctx_sets, (), set_option="--ctx"),
        reason=reason,
        correlation_id=correlation_id,
    )

    async def begin(session: Session) -> tuple[ExecutionDocument, ExecutionDocument | None]:
        begun = await started(session, wanted, playbook or "")
        if not (following.wait or following.watch):
            return begun, None
        return begun, await stay(session, begun.execution_id, following, output)

    begun, ended = with_session(target, begin, publishes=True)
    if following.wait or following.watch:
        end_as(ended, begun.execution_id, following, output)
    print_document(begun, output, "execution_id", lambda found: click.echo(found.execution_id))


COMMANDS = (start,)
