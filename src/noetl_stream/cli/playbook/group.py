"""``noetl-stream playbook``: the group, and what it does without running playbooks or the catalog."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import output_option
from noetl_stream.cli.base.output import print_json, print_source, say
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.playbook.catalog import delete, diff, get, list_playbooks, register, show, versions
from noetl_stream.cli.playbook.graph import graph
from noetl_stream.cli.playbook.source import read_playbook
from noetl_stream.errors import UsageError
from noetl_stream.model.limits import Limits, operator_limits
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.kinds.spec import Kinds, unchecked_kind
from noetl_stream.playbook.schema import playbook_schema
from noetl_stream.settings.environment import kinds_off, limit_settings
from noetl_stream.tools.registry import kinds_of, load_tools

kinds_option = click.option(
    "--kinds", "extra", default="", metavar="KIND,…", help="Accept these tool kinds although they are not installed."
)


@click.group()
def playbook() -> None:
    """Check, register, find and compare playbooks.

    A playbook is a FILE, or in the catalog at PATH[@VERSION], e.g. examples/airports@1.0. VERSION is its
    metadata.version or its revision; the default is the one registered last.
    """


for command in (register, list_playbooks, get, versions, show, graph, diff, delete):
    playbook.add_command(command)


@playbook.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@kinds_option
@output_option("text", "json")
@target_options
@click.pass_context
def check_files(ctx: click.Context, files: tuple[Path, ...], extra: str, output: str, target: Target) -> None:
    """Check FILES for errors.

    Reports every problem with its line, column and a hint. Uses the tool kinds installed here; with --url or --context,
    the gateway checks with its own.

    \b
    Exit code: 0 no errors (there may be warnings)    2 at least one error
    """
    if target.url is not None or target.context is not None:
        if extra:
            raise UsageError("--kinds needs a local check", hint="a gateway uses the tool kinds of its workers")
        results = with_session(target, lambda session: _check_remotely(session, files))
    else:
        kinds, limits = _accepted(extra)
        results = {str(file): _check_file(file, kinds, limits) for file in files}
    if output == "json":
        print_json([_as_json(name, found) for name, found in results.items()])
    else:
        for name, found in results.items():
            for diagnostic in found:
                say(diagnostic.render())
            if _passed(found):
                say(f"{name}: ok")
    if not all(map(_passed, results.values())):
        ctx.exit(ExitCode.INVALID)


@playbook.command()
@click.option("-o", "--output", "file", type=click.Path(path_type=Path), help="File to write. [default: stdout]")
@kinds_option
def schema(file: Path | None, extra: str) -> None:
    """Print the JSON Schema of playbooks.

    The schema (draft 2020-12) covers the tool kinds installed here. Editors with the YAML language server use it if a
    playbook begins with

    \b
      # yaml-language-server: $schema=playbook.schema.json
    """
    text = json.dumps(playbook_schema(*_accepted(extra)), ensure_ascii=False, indent=2) + "\n"
    if file is None:
        print_source(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: cannot be written: {error.strerror}") from None


def _accepted(extra: str) -> tuple[Kinds, Limits]:
    """The tool kinds installed here, with those switched off by the environment, and of ``--kinds``; its limits."""
    foreign = {kind: unchecked_kind(kind) for kind in map(str.strip, extra.split(",")) if kind}
    return {**foreign, **kinds_of(load_tools(), kinds_off())}, operator_limits(limit_settings())


async def _check_remotely(session: Session, files: Sequence[Path]) -> dict[str, Sequence[Diagnostic]]:
    found: dict[str, Sequence[Diagnostic]] = {}
    for file in files:
        checked = await session.operations.playbooks.check(read_playbook(file), str(file))
        found[str(file)] = checked.diagnostics
    return found


def _check_file(file: Path, kinds: Kinds, limits: Limits) -> Sequence[Diagnostic]:
    try:
        return check(read_playbook(file), kinds, file=str(file), limits=limits, proves=True).diagnostics
    except UsageError as error:
        return [
            Diagnostic(
                severity="error",
                code="file_unreadable",
                message=error.message.removeprefix(f"{file}: "),
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
