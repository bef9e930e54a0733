"""``noetl-stream playbook``: what can be said of playbooks without running them, and the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import output_option
from noetl_stream.cli.base.output import print_json
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.playbook.catalog import delete, diff, get, list_playbooks, register, show, versions
from noetl_stream.cli.playbook.schema import schema
from noetl_stream.cli.playbook.source import read_playbook
from noetl_stream.errors import UsageError
from noetl_stream.model.limits import Limits, operator_limits
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.kinds.spec import Kinds, unchecked_kind
from noetl_stream.settings.environment import limit_settings
from noetl_stream.tools.registry import kinds_of, load_tools


@click.group()
def playbook() -> None:
    """Check, register, find and compare playbooks.

    \b
    A playbook is a FILE, or stands in the catalog at PATH[@VERSION], as in examples/airports@1.0:
    VERSION is its metadata.version or its revision; without it the one registered last is meant.
    """


for command in (register, list_playbooks, get, versions, show, diff, schema, delete):
    playbook.add_command(command)


@playbook.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--kinds", "extra", default="", help="Comma-separated tool kinds to accept though not installed here.")
@output_option("text", "json")
@target_options
@click.pass_context
def check_files(ctx: click.Context, files: tuple[Path, ...], extra: str, output: str, target: Target) -> None:
    """Check FILES against the language: every problem of every file, with line, column and a hint.

    It is checked here, with the tool kinds installed here; with --url or --context by that gateway, with its own.

    \b
    Exit code 0: no errors (warnings may be printed)    2: at least one error
    """
    if target.url is not None or target.context is not None:
        if extra:
            raise UsageError("--kinds is for checking here", hint="a gateway knows the kinds of its workers")
        results = with_session(target, lambda session: _checked_there(session, files))
    else:
        foreign = {kind: unchecked_kind(kind) for kind in map(str.strip, extra.split(",")) if kind}
        kinds = {**foreign, **kinds_of(load_tools())}
        limits = operator_limits(limit_settings())
        results = {str(file): _check_file(file, kinds, limits) for file in files}
    if output == "json":
        print_json([_as_json(name, found) for name, found in results.items()])
    else:
        for name, found in results.items():
            for diagnostic in found:
                click.echo(diagnostic.render())
            if _passed(found):
                click.echo(f"{name}: ok")
    if not all(map(_passed, results.values())):
        ctx.exit(ExitCode.INVALID)


async def _checked_there(session: Session, files: Sequence[Path]) -> dict[str, Sequence[Diagnostic]]:
    found: dict[str, Sequence[Diagnostic]] = {}
    for file in files:
        checked = await session.operations.playbooks.check(read_playbook(file), str(file))
        found[str(file)] = checked.diagnostics
    return found


def _check_file(file: Path, kinds: Kinds, limits: Limits) -> Sequence[Diagnostic]:
    try:
        return check(read_playbook(file), kinds, file=str(file), limits=limits).diagnostics
    except UsageError as error:
        why = error.message.removeprefix(f"{file}: ")
        return [
            Diagnostic(
                severity="error",
                code="file_unreadable",
                message=why,
                hint=error.hint,
                file=str(file),
                line=1,
                column=1,
                pointer="",
            )
        ]


def _passed(found: Sequence[Diagnostic]) -> bool:
    return all(one.severity != "error" for one in found)


def _as_json(name: str, found: Sequence[Diagnostic]) -> dict[str, object]:
    return {"file": name, "ok": _passed(found), "diagnostics": [one.to_json() for one in found]}
