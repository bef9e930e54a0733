"""The commands of ``noetl-stream playbook`` about the catalog."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from noetl_stream.cli.exit_codes import ExitCode
from noetl_stream.cli.options import home_option, output_option
from noetl_stream.cli.output import cell_text, print_json, print_table
from noetl_stream.cli.playbook_source import (
    PlaybookText,
    checked_playbook,
    file_or_address,
    read_playbook,
    read_text,
    registered_text,
    runnable_playbook,
)
from noetl_stream.cli.process import run_async, settings_for
from noetl_stream.errors import NoetlError, UsageError
from noetl_stream.model.envelope import iso
from noetl_stream.playbook.compile import digest_of
from noetl_stream.ports.catalog import CatalogEntry
from noetl_stream.ports.catalog_address import find_versions, read_address

if TYPE_CHECKING:  # what needs no store should not wait for its libraries
    from noetl_stream.wiring import Connected

Value = TypeVar("Value")

DIGEST_SHOWN = 12
COLUMNS = ("path", "version", "revision", "digest", "registered", "labels")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_option("table", "json")
@home_option
@click.pass_context
def register(ctx: click.Context, files: tuple[Path, ...], output: str, home: Path | None) -> None:
    """Register FILES in the catalog.

    Each stands there at the path and version its metadata names. All are checked first: if one has an error, none is
    registered. Then they are registered in the order given, up to the first that is refused.

    \b
    A version never changes: another text under a registered metadata.version is refused.
    Without metadata.version each new text is the next revision: 1, 2, 3 …
    The same text again changes nothing.
    """
    import psutil

    from noetl_stream.client.registering import entry_of

    checked = [(file, checked_playbook(str(file), read_playbook(file))) for file in files]
    wanted = []
    for file, found in checked:
        if found is None:
            ctx.exit(ExitCode.INVALID)
        who = psutil.Process().username()
        try:
            wanted.append((entry_of(found.source, found.plan, registered_ms=0, registered_by=who), found.source))
        except UsageError as error:
            raise UsageError(f"{file}: {error.message}", hint=error.hint) from None
    registered: list[CatalogEntry] = []

    async def work(connected: Connected) -> None:
        for entry, source in wanted:
            now_ms = connected.clock.now_ms()
            registered.append(await connected.store.catalog.register(entry._replace(registered_ms=now_ms), source))

    try:
        _with_store(home, work)
    except NoetlError:
        if registered:
            _print_entries(registered, output)
        raise
    _print_entries(registered, output)


@click.command("list")
@click.option("--prefix", default="", metavar="PREFIX", help="Only paths that begin with this.")
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Only playbooks with this label; repeatable."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many, by path.")
@click.option("--after", default=None, metavar="PATH", help="Go on after this path of the last page.")
@output_option("table", "json", "name")
@home_option
def list_playbooks(
    prefix: str, labels: tuple[str, ...], limit: int, after: str | None, output: str, home: Path | None
) -> None:
    """List the registered playbooks.

    By path, each as it was registered last. `-o name` prints the paths alone, one a line.
    """
    wanted = dict(_label(text) for text in labels)
    found = _with_store(home, lambda connected: connected.store.catalog.latest(prefix, wanted, limit, after))
    if output == "name":
        for entry in found:
            click.echo(entry.path)
    else:
        _print_entries(found, output)
    if len(found) == limit:
        click.echo(f"perhaps there are more: --after {found[-1].path}", err=True)


@click.command()
@click.argument("path")
@output_option("table", "json")
@home_option
def versions(path: str, output: str, home: Path | None) -> None:
    """Show everything registered at PATH.

    Newest first; the first is what PATH alone means. Each answers to PATH@VERSION and to PATH@REVISION. Where one
    number is the version of one and the revision of another, PATH@#REVISION says which is meant.
    """
    address = read_address(path)
    if address is None or address.version is not None:
        raise UsageError(f"{path!r} is no path of the catalog", hint="a path is written as in `examples/airports`")
    _print_entries(_with_store(home, lambda connected: find_versions(connected.store.catalog, address.path)), output)


@click.command()
@click.argument("playbook", metavar="PATH[@VERSION]|FILE")
@click.option("--compiled", is_flag=True, help="Show what it compiles to: steps, tasks, policies, arcs.")
@output_option("text", "json")
@home_option
def show(playbook: str, compiled: bool, output: str, home: Path | None) -> None:
    """Show the text of a playbook, or its plan.

    The text of a registered playbook or of a file comes byte for byte. `-o json` adds what the catalog knows of it.
    With `--compiled` it is the plan instead: defaults worked out, tasks generated, with the lines they come from.
    """
    (text,) = _texts(home, [playbook])
    if compiled:
        from noetl_stream.playbook.compiled_view import compiled_text, compiled_view

        plan = runnable_playbook(text.name, text.source).plan
        if output == "json":
            print_json(compiled_view(plan))
        else:
            click.echo(compiled_text(plan), nl=False)
    elif output == "json":
        print_json({**_known_of(text), "source": text.source})
    else:
        click.echo(text.source, nl=False)


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@output_option("text", "json")
@home_option
@click.pass_context
def diff(ctx: click.Context, before: str, after: str, output: str, home: Path | None) -> None:
    """Show what changed from A to B.

    Each is a FILE or a PATH[@VERSION]. The text is a unified diff. `-o json` gives the digests, and the names of the
    steps that were added, removed, or changed in what they say.

    \b
    Exit code 0: the same text    1: different    2: one of them is not there
    """
    from noetl_stream.client.comparing import changed_steps, unified_diff

    old, new = _texts(home, [before, after])
    same = old.source == new.source
    if output == "json":
        steps = changed_steps(old.source, new.source)
        print_json({"same": same, "before": _known_of(old), "after": _known_of(new), "steps": steps})
    else:
        for line in unified_diff(old.source, new.source, old.name, new.name):
            click.echo(line, nl=False)
    ctx.exit(ExitCode.COMPLETED if same else ExitCode.FAILED)


def _texts(home: Path | None, arguments: Sequence[str]) -> list[PlaybookText]:
    """The texts of files and addresses; the catalog is opened only for addresses."""
    given = [file_or_address(argument) for argument in arguments]
    found = {one: read_text(one) for one in given if isinstance(one, Path)}
    addresses = [one for one in given if not isinstance(one, Path)]

    async def read(connected: Connected) -> dict[Any, PlaybookText]:
        store = connected.store
        return {address: await registered_text(store.catalog, store, address) for address in addresses}

    registered = _with_store(home, read) if addresses else {}
    return [found[one] if isinstance(one, Path) else registered[one] for one in given]


def _with_store(home: Path | None, work: Callable[[Connected], Awaitable[Value]]) -> Value:
    from noetl_stream.hosting import connected_to, open_place, prepare_embedded

    with open_place(settings_for(home)) as place:

        async def connect_and_work() -> Value:
            await prepare_embedded(place)
            async with connected_to(place, "noetl-cli") as connected:
                await connected.store.verify()
                return await work(connected)

        return run_async(connect_and_work())


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--label {text!r}: write KEY=VALUE")
    return key, value


def _known_of(text: PlaybookText) -> dict[str, Any]:
    """What is said of a text in JSON: of a file, its name and digest."""
    return _as_json(text.entry) if text.entry else {"file": text.name, "digest": digest_of(text.source)}


def _as_json(entry: CatalogEntry) -> dict[str, Any]:
    known = entry._asdict()
    return known | {"registered": iso(known.pop("registered_ms"))}


def _print_entries(entries: Sequence[CatalogEntry], output: str) -> None:
    if output == "json":
        print_json([_as_json(entry) for entry in entries])
        return
    rows = [
        (
            entry.path,
            entry.version,
            entry.revision,
            entry.digest[:DIGEST_SHOWN],
            iso(entry.registered_ms),
            " ".join(f"{name}={cell_text(value)}" for name, value in entry.labels.items()),
        )
        for entry in entries
    ]
    print_table(COLUMNS, rows)
