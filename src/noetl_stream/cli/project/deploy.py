"""``noetl-stream deploy``: registration of a project's documents."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import Columns, columns_of, print_documents, say
from noetl_stream.cli.base.session import Session, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.project.deployment import Deployment, compared, require_author
from noetl_stream.cli.project.packages import bundle_of, project_locks, with_bundle
from noetl_stream.cli.project.project_check import STARTERS, check_project
from noetl_stream.cli.project.project_file import read_project, target_of, texts_of
from noetl_stream.errors import UsageError

COLUMNS: Final[Columns] = {
    **columns_of("change", "kind", "path", "registered", "version"),
    **columns_of(done=lambda item: "yes" if item.done else ""),
    **columns_of("file", "note"),
}


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--exit-code", is_flag=True, help="With --dry-run: exit with 1 if something would be done.")
@click.option("--prune", is_flag=True, help="Remove what this project has registered and has no longer.")
@form_option()
@target_options
@click.pass_context
def deploy(
    ctx: click.Context, folder: Path, dry_run: bool, exit_code: bool, prune: bool, output: str, target: Target
) -> None:
    """Register the documents of the project in DIR, and show what changed.

    A project is a folder with noetl-stream.toml, or [tool.noetl-stream] in its pyproject.toml. All documents are
    checked first, and compared with what is registered: if anything is wrong, nothing is done. Then schemas, playbooks,
    schedules and triggers are registered, in this order; before them the Python packages are stored that playbooks with
    functions name. Repeated, the command changes nothing; if it broke off,
    repeat it.

    \b
    Exit code: 0 done, or nothing to do    1 with --exit-code: something would be done    2 something is wrong
    """
    if exit_code and not dry_run:
        raise UsageError("--exit-code needs --dry-run", hint="a deployment that succeeds exits with 0")
    project = read_project(folder)
    documents = texts_of(project)
    bundle = bundle_of(project, project_locks(project, documents, keep=not dry_run))
    texts = with_bundle(documents, bundle)
    asks_servers = not dry_run and (prune or any(text.kind in STARTERS for text in texts))
    made: list[Deployment] = []

    async def work(session: Session) -> None:
        caller = await session.caller()
        if not dry_run:
            require_author(caller)
        documents = await check_project(session, texts, caller, [project.folder / one for one in project.packages])
        made.append(await compared(session, project.name, documents, caller, bundle, prune=prune))
        if not dry_run:
            await made[0].carry_out(prune=prune)

    try:
        with_session(target_of(target, project), work, publishes=asks_servers)
    except BaseException:
        if made:
            say("the deployment broke off: repeat it to finish", err=True)
        raise
    finally:
        if made:
            print_documents(made[0].items, output, COLUMNS, "path")
    if exit_code and made[0].differs:
        ctx.exit(ExitCode.FAILED)
