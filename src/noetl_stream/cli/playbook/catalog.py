"""``noetl-stream playbook register|list|get|versions|show|explain|graph|diff|delete|statistics``: the catalog."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import form_option, limit_option, moment_ms, output_option
from noetl_stream.cli.base.output import (
    Columns,
    cell_text,
    columns_of,
    print_document,
    print_documents,
    print_json,
    print_source,
    print_table,
    say,
)
from noetl_stream.cli.base.process import settings_for
from noetl_stream.cli.base.session import Session, Target, gateway_of, lists, target_options, with_session
from noetl_stream.cli.execution.workload import labels_of
from noetl_stream.cli.playbook import playbook_source
from noetl_stream.durations import duration_text
from noetl_stream.errors import Conflict, NotFound, UsageError
from noetl_stream.model.aggregates import SCHEDULE, TRIGGER
from noetl_stream.model.ids import digest_of
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.ports.operations import playbooks as documents
from noetl_stream.ports.operations.verbs import plain
from noetl_stream.ports.stores.catalog import Address, read_address
from noetl_stream.protocol.subjects import command_subject

CALLERS: Final = ("/workflow", "/workbook")
"""The place of a call of another playbook."""

Sources = Sequence[tuple[Path, bytes]]

DIGEST_SHOWN: Final = 12
TIMES: Final = ("p50", "p90", "p99", "longest")


def _address_of(entry: documents.PlaybookDocument) -> str:
    return f"{entry.path}@{entry.known_as}"


def _labels(entry: documents.PlaybookDocument) -> str:
    return " ".join(f"{name}={cell_text(value)}" for name, value in entry.labels.items())


def _read_path(context: click.Context, argument: click.Parameter, given: str) -> str:
    address = read_address(given)
    if address is None or address.version is not None:
        raise UsageError(f"{given!r} is not a path in the catalog", hint="a path looks like `examples/airports`")
    return address.path


COLUMNS: Final[Columns] = {
    **columns_of("path", "version", "revision", digest=lambda entry: entry.digest[:DIGEST_SHOWN]),
    **columns_of("kind", "registered", labels=_labels),
}

path_argument = click.argument("path", callback=_read_path)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@form_option()
@target_options
def register(files: tuple[Path, ...], output: str, target: Target) -> None:
    """Register FILES in the catalog.

    They are playbooks, schemas of results (kind: Schema), or schedules (kind: Schedule), which servers start from then
    on. Each is registered at the path and version of its
    metadata. All files are checked first: if one has errors, none is registered. They are registered in the given
    order, up to the first that is rejected.

    \b
    A registered metadata.version never changes: a different text is rejected.
    Without metadata.version, each new text becomes the next revision: 1, 2, 3 …
    Registering the same text again changes nothing.
    """
    register_files([(file, playbook_source.read_playbook(file)) for file in files], output, target)


def register_files(sources: Sources, output: str, target: Target) -> None:
    """Registers these texts, and prints their entries."""
    asks_servers = gateway_of(target, settings_for(target.home)) is None and _check_here(sources)
    registered: list[documents.RegisteredDocument] = []

    async def register(session: Session) -> None:
        async for entry in register_each(session, sources):
            registered.append(entry)  # noqa: PERF401  also those before one that is rejected

    try:
        with_session(target, register, publishes=asks_servers)
    finally:
        if registered:
            _print_entries(registered, output)


def _check_here(sources: Sources) -> bool:
    """Exits if a document has errors, before anything starts; returns whether servers must know one of them."""
    from noetl_stream.operations.playbooks import entry_of

    kinds = set()
    for file, source in sources:
        document = playbook_source.registrable(str(file), source)
        try:
            kinds.add(entry_of(source.decode(), document, registered_ms=0, registered_by="").kind)
        except UsageError as error:
            raise UsageError(f"{file}: {error.message}", hint=error.hint) from None
    return not kinds.isdisjoint({SCHEDULE, TRIGGER})


def _warn_of_calls(sources: Sources, checked: Sequence[tuple[Path, documents.CheckedDocument]]) -> None:
    """Warns of called playbooks that are neither registered nor among these. A missing playbook of a schedule or
    trigger makes its registration an error.
    """
    from noetl_stream.playbook.check.calls import paths_missing  # it reads playbooks

    known = {found.path for _, found in checked}
    for (file, found), (_, source) in zip(checked, sources, strict=True):
        called = [one for one in found.diagnostics if one.pointer.startswith(CALLERS)]
        missing = paths_missing(called, source)
        playbook_source.print_diagnostics([one for one, path in missing.items() if path not in known], str(file))


async def register_each(session: Session, sources: Sources) -> AsyncIterator[documents.RegisteredDocument]:
    """Registers these texts once all of them are checked; exits if one has errors."""
    playbooks = session.operations.playbooks
    checked = [(file, await playbooks.check(source, str(file))) for file, source in sources]
    for file, found in checked:
        if not found.ok:
            playbook_source.print_diagnostics(found.diagnostics, str(file))
            raise click.exceptions.Exit(ExitCode.INVALID)
    _warn_of_calls(sources, checked)
    for file, source in sources:
        try:
            registered = await playbooks.register(source, str(file), session.by)
        except Conflict as error:
            raise UsageError(error.message, hint=error.hint) from None
        yield registered


@click.command("list")
@click.option("--prefix", default="", metavar="PREFIX", help="Match paths that begin with this.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Match this label; repeatable.")
@click.option("--words", default="", metavar="WORDS", help="Match what has these words, anywhere.")
@limit_option("playbooks", 100, 1000)
@click.option("--after", default=None, metavar="PATH", help="Show the page after this path.")
@form_option()
@target_options
def list_playbooks(
    prefix: str, labels: tuple[str, ...], words: str, limit: int, after: str | None, output: str, target: Target
) -> None:
    """List the registered playbooks and schemas.

    They are sorted by path, each as it was registered last. `-o name` prints only the paths. --words looks for each
    word in path, name, description, tags and labels (name=value), upper or lower case.
    """
    from noetl_stream.operations.paging import cursor_of

    wanted, cursor = labels_of(labels), None if after is None else cursor_of(after)
    found = with_session(
        target, lambda session: session.operations.playbooks.page(prefix, wanted, limit, cursor, words=words)
    )
    _print_entries(found.items, output)
    if found.next is not None:
        say(f"next page: --after {found.items[-1].path}", err=True)


@click.command()
@path_argument
@lists("playbooks.versions", COLUMNS, _address_of)
def versions() -> None:
    """List everything registered at PATH, newest first.

    The first is what PATH alone refers to. Each can be addressed as PATH@VERSION or PATH@REVISION. If a number is both
    a version and a revision, PATH@#REVISION selects the revision.
    """


@click.command()
@click.argument("playbook", metavar="PATH[@VERSION]")
@form_option()
@target_options
def get(playbook: str, output: str, target: Target) -> None:
    """Show the catalog entry of a playbook. `playbook show` prints its text."""
    address = _read_registered(playbook)
    found = with_session(target, lambda session: session.operations.playbooks.get(*address))
    _print_entries([found.entry], output)


@click.command()
@click.argument("playbook", metavar="PATH[@VERSION]")
@click.option("--all", "all_versions", is_flag=True, help="Delete all versions.")
@target_options
def delete(playbook: str, all_versions: bool, target: Target) -> None:
    """Delete a version of a playbook, or all with --all. Executions keep their text."""
    address = _read_registered(playbook)
    if (address.version is None) != all_versions:
        raise UsageError("give either a version or --all", hint=f"a version looks like {address.path}@1.0")
    with_session(target, lambda session: session.operations.playbooks.delete(*address, session.by))
    say(f"deleted {address}")


@click.command()
@click.argument("playbook", metavar="PATH[@VERSION]|FILE")
@click.option("--compiled", is_flag=True, help="Show the compiled plan: steps, tasks, policies, arcs.")
@output_option("text", "json")
@target_options
def show(playbook: str, compiled: bool, output: str, target: Target) -> None:
    """Print the text of a playbook, or its compiled plan.

    The text is printed unchanged. `-o json` adds its catalog entry. --compiled prints the plan instead: with defaults
    applied, tasks generated, and the line of each.
    """
    (text,) = texts_of(target, [playbook])
    if compiled:
        from noetl_stream.playbook.compile.view import compiled_text, compiled_view

        plan = playbook_source.runnable_plan(text.name, text.source)
        if output == "json":
            print_json(compiled_view(plan))
        else:
            print_source(compiled_text(plan))
    elif output == "json":
        print_json({**_known_of(text), "source": text.source})
    else:
        print_source(text.source)


@click.command()
@click.argument("playbook", metavar="PATH[@VERSION]|FILE")
@output_option("text", "json")
@target_options
def explain(playbook: str, output: str, target: Target) -> None:
    """Show which line each name of a running playbook comes from.

    Events and messages name what a playbook does not: tasks generated from choose, while and until, rules by their
    number, iterations by their path, timers by their purpose. `-o json` adds the subjects that commands are sent to.
    """
    from noetl_stream.playbook.compile.view import explain_names
    from noetl_stream.playbook.yaml.source import read_source

    (text,) = texts_of(target, [playbook])
    plan = playbook_source.runnable_plan(text.name, text.source)
    source = read_source(text.source, Problems(text.name))
    assert source is not None  # it compiled
    names = [one._asdict() for one in explain_names(plan, source.root)]
    if output == "json":
        subjects = {step.name: command_subject(step.pool, "EXECUTION", "COMMAND") for step in plan.every_step}
        print_json({"path": plan.path, "digest": plan.digest, "names": names, "command_subjects": subjects})
    else:
        print_documents(names, "table", columns_of("line", "what", "name", "about", "origin"), "name")


@click.command()
@click.argument("playbook", metavar="PATH[@VERSION]|FILE")
@output_option("mermaid", "dot", "svg", "json")
@target_options
def graph(playbook: str, output: str, target: Target) -> None:
    """Draw the steps of a playbook and the arcs between them.

    The entry has a thick border, a step that joins a hexagon or square corners. Arcs for failures are dashed; what no
    run reaches is grey. `-o svg` is a picture for a browser, `-o dot` for Graphviz, `-o mermaid` for Markdown.
    """
    from noetl_stream.playbook.drawing import dot, graph_of, mermaid
    from noetl_stream.playbook.svg import svg

    (text,) = texts_of(target, [playbook])
    drawn = graph_of(playbook_source.runnable_plan(text.name, text.source))
    if output == "json":
        print_json(drawn.to_json())
    else:
        print_source({"mermaid": mermaid, "dot": dot, "svg": svg}[output](drawn))


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@output_option("text", "json")
@target_options
@click.pass_context
def diff(ctx: click.Context, before: str, after: str, output: str, target: Target) -> None:
    """Show the changes from A to B as a unified diff.

    A and B are each a FILE or PATH[@VERSION]. `-o json` shows the digests, and which steps and arcs were added, removed
    and changed; layout and comments do not count as changes.

    \b
    Exit code: 0 same text    1 different    2 not found
    """
    from noetl_stream.operations.differences import changed_arcs, changed_steps, unified_diff

    old, new = texts_of(target, [before, after])
    same = old.source == new.source
    if output == "json":
        sides = {"before": _known_of(old), "after": _known_of(new)}
        changes = {"steps": changed_steps(old.source, new.source), "arcs": changed_arcs(old.source, new.source)}
        print_json({"same": same, **sides, **changes})
    else:
        for line in unified_diff(old.source, new.source, old.name, new.name):
            print_source(line)
    ctx.exit(ExitCode.COMPLETED if same else ExitCode.FAILED)


def texts_of(target: Target, arguments: Sequence[str]) -> list[playbook_source.PlaybookText]:
    """The texts of files and addresses. Files alone do not need the catalog."""
    given = [playbook_source.file_or_address(argument) for argument in arguments]
    found = {one: playbook_source.read_text(one) for one in given if isinstance(one, Path)}
    addresses = [one for one in given if not isinstance(one, Path)]

    async def read(session: Session) -> dict[Address, playbook_source.PlaybookText]:
        return {address: await _registered_text(session, address) for address in addresses}

    registered = with_session(target, read) if addresses else {}
    return [found[one] if isinstance(one, Path) else registered[one] for one in given]


async def _registered_text(session: Session, address: Address) -> playbook_source.PlaybookText:
    try:
        entry = await session.operations.playbooks.get(*address)
    except NotFound as error:
        raise playbook_source.not_there(str(address), error) from None
    return playbook_source.PlaybookText(_address_of(entry), entry.source, entry.entry)


def _read_registered(argument: str) -> Address:
    address = read_address(argument)
    if address is None:
        raise UsageError(f"{argument!r} is not an address in the catalog", hint="use PATH or PATH@VERSION")
    return address


def _known_of(text: playbook_source.PlaybookText) -> dict[str, Any]:
    """The catalog entry of a text as JSON; for a file, its name and digest."""
    if text.entry is None:
        return {"file": text.name, "digest": digest_of(text.source)}
    known: dict[str, Any] = plain(text.entry)
    return known


def _print_entries(entries: Sequence[documents.PlaybookDocument], output: str) -> None:
    print_documents(entries, output, COLUMNS, "path")


def _print_statistics(found: documents.PlaybookStatisticsDocument) -> None:
    newest = " (the newest)" if found.is_sample else ""
    statuses = ", ".join(f"{count} {status}" for status, count in sorted(found.statuses.items()))
    say(f"{found.executions} executions{newest} since {found.since}" + (f": {statuses}" if statuses else ""))
    if found.failure_rate is not None:
        say(f"failed: {_percent(found.failure_rate)}")
    if found.duration is not None:
        times = "  ".join(f"{name} {duration_text(getattr(found.duration, name))}" for name in TIMES)
        say(f"completed in: {times}")
    if found.steps:
        say(f"\nsteps of the newest {found.sampled_executions} that have ended:")
        rows = []
        for step in found.steps:
            of_step = (duration_text(getattr(step.duration, name)) for name in TIMES)
            rows.append((step.step, step.done, step.failed, _percent(step.failure_rate), *of_step))
        print_table(("step", "done", "failed", "rate", *TIMES), rows)


def _percent(rate: float) -> str:
    return f"{rate:.1%}"


@click.command()
@path_argument
@click.option(
    "--since", "since_ms", callback=moment_ms, metavar="TIME", help="From then on: 24h, or ISO 8601. [default: 7d]"
)
@output_option("text", "json", "yaml")
@target_options
def statistics(path: str, since_ms: int | None, output: str, target: Target) -> None:
    """Show how executions of the playbook at PATH ended, and how long they and its steps took.

    All versions count, and at most 10,000 executions, the newest. Steps are those of the newest that have ended.
    Durations are in seconds in the documents of `-o`.
    """
    found = with_session(target, lambda session: session.operations.playbooks.statistics(path, since_ms))
    print_document(found, output, "path", _print_statistics)
