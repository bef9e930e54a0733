"""``noetl-stream retention``: what servers delete each hour, shown beforehand or done at once."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.options import PlaceType, bundled, form_option, home_option
from noetl_stream.cli.base.output import columns_of, print_documents, say
from noetl_stream.cli.base.process import run_async, settings_for
from noetl_stream.errors import UsageError
from noetl_stream.protocol.nats_permissions import SERVER
from noetl_stream.settings.places import Place
from noetl_stream.settings.retention_periods import ARCHIVE_VARIABLE, RETENTION_VARIABLE, read_retention
from noetl_stream.settings.sources.environment import Settings


class PlannedDocument(msgspec.Struct, frozen=True):
    """What a rule does not keep."""

    rule: str
    executions: int
    journal_bytes: int


def _settings(rules: str | None, archive: Place | None, home: Path | None) -> Settings:
    settings = settings_for(home)
    if rules is not None:
        settings = replace(settings, retention_rules=read_retention("--rules", {"--rules": rules}))
    if archive is not None:
        settings = replace(settings, archive=archive.absolute() if isinstance(archive, Path) else archive)
    if not settings.retention_rules:
        raise UsageError("there are no rules", hint=f"set {RETENTION_VARIABLE}, or use --rules '30d'")
    return settings


rules_options = bundled(
    "settings",
    _settings,
    [
        click.option("--rules", metavar="RULES", help=f"Rules to apply. [default: {RETENTION_VARIABLE}]"),
        click.option(
            "--archive",
            type=PlaceType(),
            metavar="PLACE",
            help=f"Where to archive first. [default: {ARCHIVE_VARIABLE}]",
        ),
        home_option,
    ],
)


@click.group()
def retention() -> None:
    """Show, or delete now, the finished executions that the rules do not keep.

    Run it with the settings of a server, which does the same every hour.
    """


@retention.command()
@rules_options
@form_option()
def plan(settings: Settings, output: str) -> None:
    """Show how many executions each rule would delete. Deletes nothing."""
    from noetl_stream.hosting.maintenance import plan_retention
    from noetl_stream.wiring.stack import open_stack, prepare_once

    with open_stack(settings) as stack:

        async def work() -> list[PlannedDocument]:
            await prepare_once(stack)
            planned = await plan_retention(stack.endpoint_of(SERVER))
            return [PlannedDocument(str(one.rule), one.executions, one.journal_bytes) for one in planned]

        found = run_async(work())
    print_documents(found, output, columns_of("rule", "executions", "journal_bytes"), "rule")


@retention.command()
@rules_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def apply(settings: Settings, yes: bool) -> None:
    """Archive and delete what the rules do not keep."""
    from noetl_stream.hosting.maintenance import apply_retention
    from noetl_stream.wiring.stack import open_stack, prepare_once

    if not yes:
        where = f"after archiving them in {settings.archive}" if settings.archive else "without an archive"
        click.confirm(f"Delete what the rules do not keep, {where}?", abort=True, err=True)
    with open_stack(settings) as stack:

        async def work() -> int:
            await prepare_once(stack)
            return await apply_retention(stack.endpoint_of(SERVER))

        deleted = run_async(work())
    say(f"deleted {deleted} executions")
