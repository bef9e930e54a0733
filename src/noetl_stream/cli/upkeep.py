"""``noetl-stream backup|retention``: copies of the database and its objects, and what servers delete each hour."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import PlaceType, bundled, form_option, home_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, say
from noetl_stream.cli.base.process import run_async, run_on_stack, settings_for
from noetl_stream.errors import UsageError
from noetl_stream.model.ids import is_valid_id
from noetl_stream.protocol.nats_permissions import ADMIN, SERVER
from noetl_stream.settings.places import Place
from noetl_stream.settings.retention_periods import ARCHIVE_VARIABLE, RETENTION_VARIABLE, read_retention
from noetl_stream.settings.sources.environment import Settings

if TYPE_CHECKING:  # noetl-stream-cli has no backups
    from noetl_stream.backup.folder import BackupReader

place_argument = click.argument("place", type=PlaceType(), metavar="PLACE")
backup_argument = click.argument("place", type=PlaceType(), metavar="BACKUP")


class BackupDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backup as commands show it. ``bytes`` is the size of its files, ``missing`` counts objects that were lost."""

    name: str
    created: str
    release: str
    generation: int
    executions: int
    entries: int
    objects: int
    bytes: int
    missing: int = 0


@click.group()
def backup() -> None:
    """Back up, check and restore the database and the objects that it names.

    PLACE is a folder, or in object storage: s3://BUCKET/PREFIX, gs:// or az://. BACKUP is what has been made there.

    Keys are in no backup: keep NOETL_SERVER_KEY, NOETL_ACCESS_KEY and NOETL_CREDENTIAL_KEY beside it.
    """


@backup.command()
@place_argument
@click.option("--name", default=None, help="Name of the backup's folder. [default: the time]")
@form_option("text")
@home_option
def create(place: Place, name: str | None, output: str, home: Path | None) -> None:
    """Make a backup in a new folder in PLACE, while everything runs.

    Run it as the owner of the schema and the NATS identity `admin`, as `database migrate`.
    """
    from noetl_stream.hosting.maintenance import create_backup
    from noetl_stream.wiring.stores import open_files

    if name is not None and not is_valid_id(name):
        raise UsageError(f"{name!r} is not a valid name", hint="use 1 to 64 letters, digits, '_' and '-'")
    creating = partial(create_backup, place=open_files(place), name=name)
    made = run_on_stack(settings_for(home), ADMIN, creating, prepares=True)
    print_document(_document(made), output, lambda _: made.files.place, lambda found: _show(made, found))


@backup.command("list")
@place_argument
@form_option()
def list_backups(place: Place, output: str) -> None:
    """List the backups in PLACE, by name."""
    from noetl_stream.backup.folder import find_backups
    from noetl_stream.wiring.stores import open_files

    finished, unfinished = find_backups(open_files(place))
    columns = columns_of("name", "created", "release", "generation", "executions", "objects", "bytes")
    print_documents([_document(one) for one in finished], output, columns, "name")
    for name in unfinished:
        say(f"{name} in {place} was not finished: delete it, or make it again", err=True)


@backup.command()
@backup_argument
@click.pass_context
def verify(ctx: click.Context, place: Place) -> None:
    """Check that a backup is whole. Exits with 1 if it is not. Needs neither NATS nor Postgres."""
    from noetl_stream.backup.folder import BackupReader
    from noetl_stream.backup.restore import problems_of
    from noetl_stream.wiring.stores import open_files

    found = BackupReader(open_files(place))
    problems = problems_of(found)
    for line in problems:
        say(line)
    if problems:
        ctx.exit(ExitCode.FAILED)
    say(f"{place} is whole: {_counts(_document(found))}")


@backup.command()
@backup_argument
@click.option("--objects-only", is_flag=True, help="Restore objects that are missing, and nothing else.")
@home_option
def restore(place: Place, objects_only: bool, home: Path | None) -> None:
    """Restore a backup into an empty database and streams that were just made.

    Stop all servers first, and make sure that nothing of the system that was backed up runs any more.
    """
    from noetl_stream.backup.folder import BackupReader
    from noetl_stream.hosting.maintenance import restore_backup, restore_objects
    from noetl_stream.wiring.stack import open_stack
    from noetl_stream.wiring.stores import ensure_all_streams, open_files

    found = BackupReader(open_files(place))
    with open_stack(settings_for(home)) as stack:

        async def work() -> str:
            admin = stack.endpoint_of(ADMIN)
            if stack.embedded is not None:
                await ensure_all_streams(admin)
            if objects_only:
                return f"restored {await restore_objects(admin, found)} objects"
            restored = await restore_backup(admin, found)
            counts = f"{restored.executions} executions, {restored.entries} journal entries, {restored.objects} objects"
            return f"restored {counts}; generation {restored.generation}"

        say(run_async(work()))


def _document(made: BackupReader) -> BackupDocument:
    manifest = made.manifest
    return BackupDocument(
        name=made.files.name,
        created=manifest.created_at,
        release=manifest.release,
        generation=manifest.database.generation,
        executions=manifest.rows["execution"],
        entries=manifest.rows["event"],
        objects=manifest.objects,
        bytes=made.size,
        missing=len(manifest.missing),
    )


def _show(made: BackupReader, found: BackupDocument) -> None:
    say(made.files.place)
    say(_counts(found), err=True)
    if found.missing:
        say(f"{found.missing} objects that rows name were not there: manifest.json lists them", err=True)


def _counts(found: BackupDocument) -> str:
    return f"{found.executions} executions, {found.entries} journal entries, {found.objects} objects"


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

    planned = run_on_stack(settings, SERVER, plan_retention, prepares=True)
    found = [PlannedDocument(str(one.rule), one.executions, one.journal_bytes) for one in planned]
    print_documents(found, output, columns_of("rule", "executions", "journal_bytes"), "rule")


@retention.command()
@rules_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def apply(settings: Settings, yes: bool) -> None:
    """Archive and delete what the rules do not keep."""
    from noetl_stream.hosting.maintenance import apply_retention

    if not yes:
        where = f"after archiving them in {settings.archive}" if settings.archive else "without an archive"
        click.confirm(f"Delete what the rules do not keep, {where}?", abort=True, err=True)
    say(f"deleted {run_on_stack(settings, SERVER, apply_retention, prepares=True)} executions")
