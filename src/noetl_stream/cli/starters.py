"""The common commands of ``noetl-stream schedule`` and ``noetl-stream trigger``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from noetl_stream.cli.base.options import form_option, limit_option, reason_option
from noetl_stream.cli.base.output import Cell, Columns, print_documents, print_members, print_source, say
from noetl_stream.cli.base.session import Session, Target, does, shows, target_options, with_session
from noetl_stream.cli.playbook.catalog import register_each
from noetl_stream.cli.playbook.playbook_source import read_playbook, registrable
from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.verbs import DocumentPage

if TYPE_CHECKING:  # the list of commands starts faster
    from noetl_stream.ports.operations.starters import Schedules, Triggers

Document = TypeVar("Document")


class Starter(NamedTuple):
    """The differences between the commands of the nouns.

    Attributes:
        helps: The ``--help`` texts, by command.
        columns: Of its list.
        resumed: The message about a resumed one.
        entries: The name of its history's entries; ``entry_name`` is the field that ``-o name`` shows of each.
        schema: The JSON Schema of its documents.
    """

    noun: str
    of: Callable[[Session], Schedules | Triggers]
    document: Callable[[str, bytes], Any]
    helps: Mapping[str, str]
    columns: Columns
    resumed: Callable[[Any], str]
    entries: str
    statuses: Sequence[str]
    entry_columns: Columns
    entry_name: Cell
    schema: Callable[[], dict[str, Any]]


def read_starter(name: str, source: bytes, document: type[Document], noun: str) -> Document:
    """The document in a file. Exits if it has errors.

    Raises:
        UsageError: it is of another kind.
    """
    found = registrable(name, source)
    if not isinstance(found, document):
        raise UsageError(f"{name}: not a {noun}", hint=f"a {noun} has `kind: {noun.capitalize()}`")
    return found


def add_commands(group: click.Group, kind: Starter) -> None:
    """Adds the common commands of a noun to its group."""
    for add in (_add_create, _add_lists, _add_changes):
        add(group, kind)


def _add_create(group: click.Group, kind: Starter) -> None:
    @group.command(help=kind.helps["create"])
    @click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
    @form_option("text")
    @target_options
    def create(files: tuple[Path, ...], output: str, target: Target) -> None:
        sources = [(file, read_playbook(file)) for file in files]
        for file, source in sources:
            kind.document(str(file), source)
        found: list[Any] = []

        async def register(session: Session) -> None:
            async for entry in register_each(session, sources):
                found.append(await kind.of(session).get(entry.path))  # noqa: PERF401  also before one that is rejected

        try:
            with_session(target, register, publishes=True)
        finally:
            if output == "text":
                for one in found:
                    print_members(one)
            elif found:
                print_documents(found, output, kind.columns, "path")


def _add_lists(group: click.Group, kind: Starter) -> None:

    @group.command("list", help=kind.helps["list"])
    @click.option("--prefix", default="", metavar="PREFIX", help="Match paths that begin with this.")
    @limit_option(f"{kind.noun}s", 100, 1000)
    @click.option("--after", default=None, metavar="PATH", help="Show the page after this path.")
    @form_option()
    @target_options
    def list_starters(prefix: str, limit: int, after: str | None, output: str, target: Target) -> None:
        cursor = _cursor(after)
        found: DocumentPage[Any] = with_session(target, lambda session: kind.of(session).page(prefix, limit, cursor))
        print_documents(found.items, output, kind.columns, "path")
        if found.next is not None:
            say(f"next page: --after {found.items[-1].path}", err=True)

    @group.command(help=kind.helps["history"])
    @click.argument("path")
    @click.option("--status", type=click.Choice(kind.statuses), help="Only of this status.")
    @limit_option(kind.entries, 20, 1000)
    @click.option("--before", type=click.IntRange(1), metavar="NUMBER", help="Show those before this number.")
    @form_option()
    @target_options
    def history(path: str, status: Any, limit: int, before: int | None, output: str, target: Target) -> None:
        cursor = _cursor(before)
        found: DocumentPage[Any] = with_session(
            target, lambda session: kind.of(session).history(path, status=status, limit=limit, cursor=cursor)
        )
        print_documents(found.items, output, kind.entry_columns, kind.entry_name)
        if found.next is not None:
            say(f"more: --before {found.items[-1].number}", err=True)


def _cursor(place: str | int | None) -> str | None:
    from noetl_stream.operations.paging import cursor_of

    return None if place is None else cursor_of(place)


def _add_changes(group: click.Group, kind: Starter) -> None:
    noun = f"{kind.noun}s"

    @group.command(help=kind.helps["get"])
    @click.argument("path")
    @shows(f"{noun}.get", "path")
    def get() -> None: ...

    @group.command(help=kind.helps["pause"])
    @click.argument("path")
    @reason_option
    @shows(f"{noun}.pause", "path", lambda one: say(f"paused {one.path}"), publishes=True)
    def pause() -> None: ...

    @group.command(help=kind.helps["resume"])
    @click.argument("path")
    @reason_option
    @shows(f"{noun}.resume", "path", lambda one: say(kind.resumed(one)), publishes=True)
    def resume() -> None: ...

    @group.command(help=kind.helps["delete"])
    @click.argument("path")
    @does(f"{noun}.delete", "deleted", publishes=True)
    def delete() -> None: ...

    @group.command(
        help=f"""Print the JSON Schema of {kind.noun}s.

        Editors with the YAML language server use it if a {kind.noun} begins with

        \b
          # yaml-language-server: $schema={kind.noun}.schema.json
        """
    )
    def schema() -> None:
        print_source(json.dumps(kind.schema(), ensure_ascii=False, indent=2) + "\n")
