"""``noetl-stream execution start``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import print_document
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.execution.follow import Following, end_as, following_options, overtime, stay, watch_to_end
from noetl_stream.cli.execution.interventions import explained
from noetl_stream.cli.execution.workload import workload_of, workload_options
from noetl_stream.cli.playbook.source import file_or_address, not_there, print_diagnostics, read_text
from noetl_stream.errors import NotFound, PlaybookRefused, UsageError
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.ports.operations.executions import ExecutionDocument, Start


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


async def started(session: Session, wanted: Start, name: str) -> ExecutionDocument:
    """The new execution; a playbook with errors ends the command with :attr:`ExitCode.INVALID`.

    Args:
        name: What its diagnostics call a text.
    """
    try:
        return await session.operations.executions.start(wanted, session.by)
    except PlaybookRefused as refused:
        print_diagnostics([Diagnostic(**one) for one in refused.diagnostics], name)
        raise click.exceptions.Exit(ExitCode.INVALID) from None
    except NotFound as error:
        raise not_there(name, error) if wanted.path is not None else error from None


def run_over_http(
    target: Target, playbook: str, workload: dict[str, Any], *, timeout_s: float | None, output: str
) -> ExecutionDocument | ExitCode:
    """What ``run`` does with a gateway: the ended execution, or the exit code with which the waiting ended."""
    wanted = wanted_of(playbook)._replace(workload=workload)

    async def work(session: Session) -> ExecutionDocument | ExitCode:
        execution_id = (await started(session, wanted, playbook)).execution_id
        ended = await watch_to_end(session, execution_id, timeout_s, output, stderr=True)
        if ended is None:
            click.echo(overtime(execution_id, timeout_s), err=True)
        return ended or ExitCode.TIMEOUT

    return with_session(target, work)
