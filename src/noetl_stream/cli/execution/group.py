"""``noetl-stream execution``: the group, and its verbs that read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.lazy import LazyGroup
from noetl_stream.cli.base.options import PlaceType, bundled, form_option, limit_option
from noetl_stream.cli.base.output import columns_of, print_document, print_documents, print_result, say
from noetl_stream.cli.base.process import settings_for
from noetl_stream.cli.base.session import PAGE, Session, Target, collect, lists, shows, target_options, with_session
from noetl_stream.cli.execution.bulk import Filter, filter_options
from noetl_stream.cli.execution.display.tables import print_execution, print_executions, print_state, print_why
from noetl_stream.durations import duration_text
from noetl_stream.errors import UsageError
from noetl_stream.operations.paging import cursor_of
from noetl_stream.settings.places import Place

if TYPE_CHECKING:
    from noetl_stream.adapters.archive import ParquetArchive
    from noetl_stream.ports.operations import executions as documents
    from noetl_stream.ports.operations.reading.events import ListedEventDocument
    from noetl_stream.ports.operations.reading.views import DataUseDocument, KeyChangeDocument
    from noetl_stream.sealing.data_references import DataReference

MODULES: Final = {
    "start": "execution.start",
    **dict.fromkeys(("diff", "count", "logs", "table"), "execution.readings"),
    **dict.fromkeys(("wait", "watch"), "execution.follow"),
    **dict.fromkeys(("patch", "signal", "token", "cancel", "pause", "resume", "retry-now"), "execution.interventions"),
    **dict.fromkeys(("rerun", "retry", "compensate", "delete"), "execution.rerun"),
}
"""The options of the verbs that do more than read."""

execution_id = click.argument("execution_id", metavar="ID")


class ChosenArchive(msgspec.Struct, frozen=True, gc=False):
    """The archive to read from; ``unsigned``: also files without a trusted signature."""

    place: Place
    unsigned: bool


archive_option = bundled(
    "archive",
    lambda archive, unsigned: None if archive is None else ChosenArchive(archive, unsigned),
    [
        click.option(
            "--archive",
            type=PlaceType(),
            default=None,
            metavar="PLACE",
            help="Read it from this archive, a folder or s3://BUCKET/PREFIX, which needs no servers.",
        ),
        click.option("--unsigned", is_flag=True, help="Read also what no trusted key has signed in the archive."),
    ],
)


@click.group(cls=LazyGroup, modules=MODULES)
def execution() -> None:
    """Start, inspect and control executions.

    cancel, pause, resume, retry, retry-now, rerun, compensate, delete, signal and patch accept several IDs, `-` for IDs
    on stdin, or a filter:

    \b
      noetl-stream execution cancel --path team/report --older-than 2d --dry-run
    """


def _error(found: documents.StepRunDocument | documents.IterationDocument) -> str | None:
    error = found.error
    return None if error is None else f"{error.kind}: {error.message}"


def _place(found: documents.IterationDocument) -> str:
    return ".".join(map(str, found.path))


STEP_COLUMNS: Final = columns_of(
    *("step", "step_run_id", "status", "started", "attempts", "retries", "worker"),
    duration=lambda one: duration_text(one.duration_s),
    error=_error,
)
ITERATION_COLUMNS: Final = {"iteration": _place, **columns_of("status", "attempts", "worker", error=_error)}


def _data_text(references: Sequence[DataReference], use: DataUseDocument, *, written: bool) -> str:
    elsewhere = (one.shown for one in use.datasets if one.written == written)
    return ", ".join((*(one.shown for one in references), *elsewhere))


LINEAGE_COLUMNS: Final = columns_of(
    *("step", "task"),
    iteration=lambda one: ".".join(map(str, one.iteration)),
    read=lambda one: _data_text(one.read, one, written=False),
    written=lambda one: _data_text(one.written, one, written=True),
)


@execution.command("list")
@filter_options
@limit_option("executions", 20, 1000)
@click.option("--before", default=None, metavar="ID", help="Show the page after this execution.")
@archive_option
@form_option()
@target_options
def list_executions(
    filter: Filter, limit: int, before: str | None, archive: ChosenArchive | None, output: str, target: Target
) -> None:
    """List executions, newest first."""
    chosen = filter.chosen()
    if archive is not None:
        page = _opened(archive, target).page(chosen, limit, before)
    else:
        cursor = None if before is None else cursor_of(before)
        page = with_session(target, lambda session: session.operations.executions.page(chosen, limit, cursor))
    print_executions(page.items, output)
    if page.next is not None:
        say(f"next page: --before {page.items[-1].execution_id}", err=True)


@execution.command()
@execution_id
@click.option(
    "--at", type=click.IntRange(1), default=None, metavar="POSITION", help="As it was after the event at this position."
)
@archive_option
@form_option()
@target_options
def get(execution_id: str, at: int | None, archive: ChosenArchive | None, output: str, target: Target) -> None:
    """Show an execution: status, steps, waits, ctx, result.

    With `--at` where its tokens were, ctx and results then. `execution events` shows positions.
    """
    if at is not None:
        _refuse_archive(archive, "--at")
        state = with_session(target, lambda session: session.operations.views.state(execution_id, at))
        print_document(state, output, "execution_id", print_state)
        return
    if archive is not None:
        found = _opened(archive, target).get(execution_id)
    else:
        found = with_session(target, lambda session: session.operations.executions.get(execution_id))
    print_document(found, output, "execution_id", print_execution)


@execution.command()
@execution_id
@archive_option
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="Write it to result.json in this folder, and each file and table in it beside that.",
)
@click.option("--force", is_flag=True, help="With --to: overwrite files that exist.")
@form_option("text")
@target_options
def result(
    execution_id: str, archive: ChosenArchive | None, to: Path | None, force: bool, output: str, target: Target
) -> None:
    """Show the whole result, or the error, of an ended execution."""
    if to is not None:
        from noetl_stream.cli.execution.downloads import download

        folder = to
        _refuse_archive(archive, "--to")
        with_session(target, lambda session: download(session, execution_id, folder, force=force))
        return
    if archive is not None:
        found = _opened(archive, target).result(execution_id)
    else:
        found = with_session(target, lambda session: session.operations.executions.result(execution_id))

    def show(found: documents.ResultDocument) -> None:
        print_result(found.result)
        if found.error is not None:
            say(f"{found.status}: {found.error.kind}: {found.error.message}", err=True)

    print_document(found, output, "execution_id", show)


@execution.command()
@execution_id
@lists("executions.steps", STEP_COLUMNS, "step_run_id")
def steps() -> None:
    """List the step runs of an execution, oldest first."""


@execution.command()
@execution_id
@click.argument("step_run_id", metavar="STEP_RUN")
@limit_option("iterations")
@lists("executions.iterations", ITERATION_COLUMNS, _place)
def iterations() -> None:
    """List the iterations of a loop. `execution steps` shows the ids of step runs."""


@execution.command()
@execution_id
@limit_option("attempts")
@lists("views.lineage", LINEAGE_COLUMNS, "position")
def lineage() -> None:
    """List which task has read and written which files and tables."""


@execution.command()
@execution_id
@click.option("--after", type=click.IntRange(0), default=0, help="Show only events after this position.")
@click.option("--name", "names", multiple=True, metavar="EVENT", help="Show only events of this name; repeatable.")
@click.option("--step", default=None, help="Show only events of this step.")
@click.option("--task", default=None, help="Show only events of this task.")
@click.option("--text", default=None, help="Show only events whose data contains this text.")
@limit_option("events")
@archive_option
@form_option()
@target_options
def events(
    execution_id: str,
    after: int,
    limit: int | None,
    archive: ChosenArchive | None,
    output: str,
    target: Target,
    **chosen: Any,
) -> None:
    """List the events of an execution, oldest first."""
    from noetl_stream.ports.operations.reading.events import EventFilter  # other verbs start faster without it

    async def read(session: Session) -> list[ListedEventDocument]:
        found: list[ListedEventDocument] = []
        last: int | None = after
        while last is not None and (limit is None or len(found) < limit):
            size = min(PAGE, limit - len(found)) if limit is not None else PAGE
            page = await session.operations.views.events(execution_id, EventFilter(last, **chosen), size)
            found += page.items
            last = page.next
        return found

    columns = columns_of("position", "ts", "source", "name", "status", "entity_id")
    if any(chosen.values()):
        _refuse_archive(archive, "--name, --step, --task and --text")
    archived = None if archive is None else _opened(archive, target)
    found = with_session(target, read) if archived is None else archived.events(execution_id, after, limit)
    print_documents(found, output, columns, "event_id")


@execution.command()
@execution_id
@click.option("--key", default=None, help="Show the changes of this key: who, when, from what to what.")
@form_option()
@target_options
def ctx(execution_id: str, key: str | None, output: str, target: Target) -> None:
    """Show ctx and the history of its changes."""
    if key is not None:

        async def read(session: Session) -> list[KeyChangeDocument]:
            one_page = session.operations.views.changes
            return await collect(lambda size, cursor: one_page(execution_id, key, size, cursor))

        columns = columns_of("position", "at", "before", "after", by=_by, reason="reason")
        print_documents(with_session(target, read), output, columns, "position")
        return
    found = with_session(target, lambda session: session.operations.executions.ctx(execution_id))

    def show(found: documents.CtxDocument) -> None:
        print_result(found.ctx)
        columns = columns_of("position", "at", keys=lambda change: ", ".join(change.keys), by=_by, reason="reason")
        print_documents(found.history, "table", columns, "position")

    print_document(found, output, lambda _: execution_id, show)


@execution.command()
@execution_id
@shows("executions.why", "execution_id", print_why)
def why() -> None:
    """Explain why an execution waits, or how it ended."""


def _opened(archive: ChosenArchive, target: Target) -> ParquetArchive:
    from noetl_stream.adapters.archive import ParquetArchive  # other commands need no DuckDB
    from noetl_stream.wiring.endpoint import archive_keys
    from noetl_stream.wiring.stores import open_files

    keys = replace(archive_keys(settings_for(target.home)), accepts_unsigned=archive.unsigned)
    return ParquetArchive(open_files(archive.place), keys)


def _refuse_archive(archive: ChosenArchive | None, options: str) -> None:
    if archive is not None:
        raise UsageError(f"{options} cannot be used with --archive", hint="an archive has whole executions")


def _by(change: documents.CtxChangeDocument | KeyChangeDocument) -> str:
    return change.principal or ".".join(filter(None, (change.step, change.task)))
