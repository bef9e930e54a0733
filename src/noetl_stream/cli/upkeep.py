"""``noetl-stream backup|objects|retention``: backups, the places of objects, and the hourly deletion by servers."""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import PlaceType, bundled, form_option, home_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, say
from noetl_stream.cli.base.process import run_async, run_on_stack, settings_for
from noetl_stream.errors import NoetlError, UsageError
from noetl_stream.model.ids import is_valid_id
from noetl_stream.ports.operations.verbs import plain
from noetl_stream.protocol.nats_permissions import ADMIN, SERVER
from noetl_stream.settings.places import Place
from noetl_stream.settings.retention_periods import ARCHIVE_VARIABLE, RETENTION_VARIABLE, read_retention
from noetl_stream.settings.sources.environment import Settings

if TYPE_CHECKING:  # noetl-stream-cli has no backups
    from noetl_stream.backup.contents import BroughtRights, BroughtToken
    from noetl_stream.backup.reader import BackupReader
    from noetl_stream.sealing.file_keys import FileKeys
    from noetl_stream.wiring.endpoint import Endpoint
    from noetl_stream.wiring.stack import StackAccess

place_argument = click.argument("place", type=PlaceType(), metavar="PLACE")
backup_argument = click.argument("place", type=PlaceType(), metavar="BACKUP")
unsigned_option = click.option("--unsigned", is_flag=True, help="Accept a backup that anybody may have made.")


class BackupDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """A backup as commands show it.

    Attributes:
        made_by, source: The user and machine that made it, and the address of the database.
        signature: ``trusted``, ``not trusted``, ``wrong`` or ``none``; ``signed_with``: the public key.
        bytes: The size of its files.
        missing: The number of objects that were lost.
    """

    name: str
    created: str
    release: str
    generation: int
    executions: int
    entries: int
    objects: int
    bytes: int
    signature: str
    signed_with: str = ""
    made_by: str = ""
    source: str = ""
    encrypted: bool = False
    missing: int = 0


class FileKeyDocument(msgspec.Struct, frozen=True):
    """A public key, and what it is used for here."""

    files: str
    use: str
    key: str


@click.group()
def backup() -> None:
    """Back up, check and restore the database and the objects that it names.

    PLACE is a folder, or in object storage: s3://BUCKET/PREFIX, gs:// or az://. BACKUP is what has been made there.

    Keys are in no backup: keep NOETL_SERVER_KEY, NOETL_ACCESS_KEY and NOETL_CREDENTIAL_KEY in another place.
    """


@backup.command()
@place_argument
@click.option("--name", default=None, help="Name of the backup's folder. [default: the time]")
@form_option("text")
@home_option
def create(place: Place, name: str | None, output: str, home: Path | None) -> None:
    """Make a backup in a new folder in PLACE, while everything runs.

    Run it as the owner of the schema and the NATS identity `admin`, as `database migrate`. It is signed with
    NOETL_BACKUP_SIGNING_KEY, and encrypted to NOETL_BACKUP_RECIPIENTS.
    """
    from noetl_stream.hosting.maintenance import create_backup
    from noetl_stream.wiring.endpoint import backup_keys, maker
    from noetl_stream.wiring.stores import open_files

    if name is not None and not is_valid_id(name):
        raise UsageError(f"{name!r} is not a valid name", hint="use 1 to 64 letters, digits, '_' and '-'")
    files, settings = open_files(place), settings_for(home)

    def creating(endpoint: Endpoint) -> Coroutine[Any, Any, BackupReader]:
        return create_backup(endpoint, files, name, backup_keys(settings), maker())

    made = run_on_stack(settings, ADMIN, creating, prepares=True)
    print_document(_document(made), output, lambda _: made.files.place, lambda found: _show_made(made, found))


@backup.command("list")
@place_argument
@form_option()
@home_option
def list_backups(place: Place, output: str, home: Path | None) -> None:
    """List the backups in PLACE, by name."""
    from noetl_stream.backup.reader import find_backups
    from noetl_stream.wiring.endpoint import backup_keys
    from noetl_stream.wiring.stores import open_files

    finished, unfinished = find_backups(open_files(place), backup_keys(settings_for(home)))
    columns = columns_of("name", "created", "release", "generation", "executions", "objects", "bytes", "signature")
    print_documents([_document(one) for one in finished], output, columns, "name")
    for name in unfinished:
        say(f"{name} in {place} was not finished: delete it, or make it again", err=True)


@backup.command()
@backup_argument
@unsigned_option
@home_option
@click.pass_context
def verify(ctx: click.Context, place: Place, unsigned: bool, home: Path | None) -> None:
    """Check that a backup is whole, and signed by a trusted key. Exits with 1 if not. Needs neither NATS nor Postgres.

    Trusted are the keys in NOETL_BACKUP_TRUSTED_KEYS, and the one that signs here. To look into an encrypted backup, it
    needs NOETL_BACKUP_IDENTITY_FILE.
    """
    from noetl_stream.backup.restore import doubt_of, problems_of

    found = _opened(place, settings_for(home), unsigned=unsigned)
    problems = problems_of(found)
    for line in problems:
        say(line)
    if problems:
        ctx.exit(ExitCode.FAILED)
    doubt = doubt_of(found)
    say(f"{place} is whole: {_counts(_document(found))}")
    say(doubt.message if doubt else _signed_words(found))
    if found.manifest.name not in ("", found.files.name):
        made_as = f"{found.manifest.name!r}, {found.manifest.created_at}"
        say(f"it was made as {made_as}: it may stand in the place of a newer one")
    if not found.is_readable:
        say("its rows and objects were not looked at: it is encrypted, and NOETL_BACKUP_IDENTITY_FILE is not set")
    if doubt:
        say(doubt.hint, err=True)
        ctx.exit(ExitCode.FAILED)


@backup.command()
@backup_argument
@unsigned_option
@form_option("text")
@home_option
def show(place: Place, unsigned: bool, output: str, home: Path | None) -> None:
    """Show where a backup is from, and which tokens, credentials, grants, schedules and triggers it would bring."""
    from noetl_stream.backup.contents import rights_of
    from noetl_stream.backup.restore import require_restorable

    found = _opened(place, settings_for(home), unsigned=unsigned)
    require_restorable(found)
    brings = rights_of(found)

    def text(_: dict[str, Any]) -> None:
        for line in [*_origin_lines(found), *_rights_lines(brings)]:
            say(line)

    print_document({**plain(_document(found)), "brings": plain(brings)}, output, "name", text)


@backup.command()
@backup_argument
@click.option("--objects-only", is_flag=True, help="Restore objects that are missing, and nothing else.")
@unsigned_option
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@home_option
def restore(place: Place, objects_only: bool, unsigned: bool, yes: bool, home: Path | None) -> None:
    """Restore a backup into an empty database and streams that were just made.

    Stop all servers first, and make sure that nothing of the system that was backed up runs any more. It shows what the
    backup would bring, and asks.
    """
    from noetl_stream.backup.contents import rights_of
    from noetl_stream.backup.restore import require_restorable
    from noetl_stream.wiring.stack import open_stack

    settings = settings_for(home)
    found = _opened(place, settings, unsigned=unsigned)
    require_restorable(found)
    for line in [*_origin_lines(found), *([] if objects_only else _rights_lines(rights_of(found)))]:
        say(line, err=True)
    if not yes:
        _confirm(place)
    with open_stack(settings) as stack:
        say(run_async(_restored(stack, found, objects_only=objects_only)))


async def _restored(stack: StackAccess, found: BackupReader, *, objects_only: bool) -> str:
    from noetl_stream.hosting.maintenance import restore_backup, restore_objects
    from noetl_stream.wiring.stores import ensure_all_streams

    admin = stack.endpoint_of(ADMIN)
    if stack.embedded is not None:
        await ensure_all_streams(admin)
    if objects_only:
        return f"restored {await restore_objects(admin, found)} objects"
    restored = await restore_backup(admin, found)
    counts = f"{restored.executions} executions, {restored.entries} journal entries, {restored.objects} objects"
    return f"restored {counts}; generation {restored.generation}"


@backup.command()
@form_option()
@home_option
def keys(output: str, home: Path | None) -> None:
    """List the public keys that sign, check and encrypt backups and archives here."""
    from noetl_stream.wiring.endpoint import archive_keys, backup_keys

    settings = settings_for(home)
    found = [*_key_documents("backup", backup_keys(settings)), *_key_documents("archive", archive_keys(settings))]
    print_documents(found, output, columns_of("files", "use", "key"), "key")


@backup.command("make-key")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--encryption", is_flag=True, help="Make one to decrypt with, in place of one to sign with.")
def make_key(file: Path, encryption: bool) -> None:
    """Write a new private key into FILE, and print its public key.

    The file is for NOETL_BACKUP_SIGNING_KEY_FILE, and what is printed for NOETL_BACKUP_TRUSTED_KEYS; with --encryption
    for NOETL_BACKUP_IDENTITY_FILE and NOETL_BACKUP_RECIPIENTS.
    """
    from noetl_stream.local.home import write_private
    from noetl_stream.sealing.age import new_identity, recipient_of
    from noetl_stream.sealing.file_keys import public_key_of
    from noetl_stream.sealing.keys import new_key

    if file.exists():
        raise UsageError(f"{file} exists already", hint="give another file: what is encrypted to a key is lost with it")
    private = new_identity() if encryption else new_key()
    public = recipient_of(private) if encryption else public_key_of(private)
    try:
        write_private(file, f"# public key: {public}\n{private}\n" if encryption else private + "\n")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None
    say(public)


@click.group()
def objects() -> None:
    """Move stored objects between NATS, buckets and folders.

    Objects are files, tables and large results. NOETL_OBJECTS has their places: the first is written, all are read.
    """


@objects.command("move")
@home_option
def move_objects(home: Path | None) -> None:
    """Move all objects to the first place of NOETL_OBJECTS, while everything runs.

    Run it as the owner of the schema and the NATS identity `admin`, as `database migrate`. Each object is copied,
    compared and deleted where it was. An interrupted move is repeated: it goes on where it ended.
    """
    from noetl_stream.hosting.maintenance import move_objects as move

    found = run_on_stack(settings_for(home), ADMIN, move, prepares=True)
    say(f"moved {found.moved:,} objects, {found.bytes:,} bytes")
    if found.differing:
        shown = f"{found.differing[0]}{' and others' if len(found.differing) > 1 else ''}"
        hint = "they stay in both places, and the first is read"
        raise NoetlError(f"{len(found.differing)} objects have other bytes in the first place: {shown}", hint=hint)


def _opened(place: Place, settings: Settings, *, unsigned: bool) -> BackupReader:
    from noetl_stream.backup.reader import BackupReader
    from noetl_stream.wiring.endpoint import backup_keys
    from noetl_stream.wiring.stores import open_files

    return BackupReader(open_files(place), replace(backup_keys(settings), accepts_unsigned=unsigned))


def _confirm(place: Place) -> None:
    if not sys.stdin.isatty():
        hint = "look at it with `noetl-stream backup show`, and confirm with --yes"
        raise UsageError(f"this would restore {place}, and there is no terminal to ask at", hint=hint)
    if not click.confirm(f"Restore {place}?", err=True):
        raise NoetlError("not confirmed, nothing was restored")


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
        signature=_signature_word(made),
        signed_with=made.signature.key,
        made_by=manifest.made_by,
        source=manifest.source,
        encrypted=made.is_encrypted,
        missing=len(manifest.missing),
    )


def _signature_word(made: BackupReader) -> str:
    if made.signature.fault:
        return "wrong"
    if not made.signature.key:
        return "none"
    return "trusted" if made.signature.is_trusted else "not trusted"


def _show_made(made: BackupReader, found: BackupDocument) -> None:
    say(made.files.place)
    say(_counts(found), err=True)
    if found.missing:
        say(f"{found.missing} objects that rows name were not there: manifest.json lists them", err=True)
    if not found.signed_with:
        say("it is not signed: set NOETL_BACKUP_SIGNING_KEY, which `noetl-stream backup make-key` makes", err=True)


def _counts(found: BackupDocument) -> str:
    return f"{found.executions} executions, {found.entries} journal entries, {found.objects} objects"


def _signed_words(found: BackupReader) -> str:
    key, is_trusted = found.signature.key, found.signature.is_trusted
    return f"signed with {key}, which is {'' if is_trusted else 'not '}trusted" if key else "not signed"


def _origin_lines(found: BackupReader) -> Iterator[str]:
    manifest = found.manifest
    yield f"{found.files.place}, made {manifest.created_at} by {manifest.made_by or 'unknown'} as {manifest.name!r}"
    yield f"with release {manifest.release}, from {manifest.source or 'unknown'}"
    yield f"generation {manifest.database.generation}, schema {manifest.database.migrations[-1][0]}"
    yield _signed_words(found)
    yield _counts(_document(found))


def _rights_lines(brings: BroughtRights) -> Iterator[str]:
    yield "it brings"
    valid = [one for one in brings.tokens if one.revoked is None]
    for token in valid:
        yield f"  token {token.name}: {_token_words(token)}"
    revoked = len(brings.tokens) - len(valid)
    yield f"  {len(valid)} valid tokens, {revoked} revoked ones, {brings.sessions} browser sessions"
    for credential in brings.credentials:
        yield f"  credential {credential.name}: {credential.kind}"
    for starter in brings.starters:
        yield f"  {starter.kind} {starter.path}: starts {starter.playbook} for {starter.by}"
    yield f"  {len(brings.playbooks)} registered playbooks"
    if brings.grants is None:
        yield "  no registered grants"
    else:
        yield f"  revision {brings.grants.revision} of the grants, registered by {brings.grants.registered_by}:"
        yield from (f"    {line}" for line in brings.grants.source.splitlines())


def _token_words(token: BroughtToken) -> str:
    until = f", until {token.expires}" if token.expires else ""
    return f"{token.role}, {', '.join(token.paths) or 'all paths'}, made by {token.created_by}{until}"


def _key_documents(files: str, found: FileKeys) -> Iterator[FileKeyDocument]:
    from noetl_stream.sealing.age import recipient_of

    by_use = {
        "sign": [found.public_key] if found.public_key else [],
        "trust": found.trusted_keys,
        "encrypt": found.recipients,
        "decrypt": [recipient_of(one) for one in found.identities],
    }
    for use, public in by_use.items():
        for key in public:
            yield FileKeyDocument(files, use, key)


class PlannedDocument(msgspec.Struct, frozen=True):
    """The executions that a rule of retention does not keep."""

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
