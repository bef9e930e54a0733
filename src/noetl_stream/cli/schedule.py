"""``noetl-stream schedule``: when executions start."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from noetl_stream.cli.base.options import form_option, limit_option, reason_option, seconds
from noetl_stream.cli.base.output import (
    Columns,
    columns_of,
    print_document,
    print_documents,
    print_members,
    print_source,
    say,
)
from noetl_stream.cli.base.session import Session, Value, Work, with_session
from noetl_stream.cli.base.target import Target, target_options
from noetl_stream.cli.playbook.catalog import register_files
from noetl_stream.cli.playbook.playbook_source import file_or_address, read_playbook, registrable
from noetl_stream.errors import UsageError
from noetl_stream.ports.operations.schedules import (
    OCCURRENCE_STATUSES,
    BackfilledDocument,
    RegisteredScheduleDocument,
)

if TYPE_CHECKING:  # the list of commands starts faster
    from noetl_stream.model.aggregates import Overlap
    from noetl_stream.playbook.schedule.schedule_document import ScheduleDocument
    from noetl_stream.ports.operations.schedules import OccurrenceStatus, UpcomingDocument

MOST_SHOWN: Final = 1000
OVERLAPS: Final = ("skip", "queue_one", "queue_all", "cancel", "terminate", "allow")
_YEARS: Final = range(1970, 2200)


def _day_or_time(context: click.Context, option: click.Parameter, given: str | None) -> date | None:
    """The callback of an option that takes a day, a time, or a duration before now."""
    if given is None:
        return None
    found: date | None = None
    for read in (date.fromisoformat, datetime.fromisoformat):
        with suppress(ValueError):
            found = found or read(given)
    if found is None:
        ago_s = seconds(context, option, given)
        assert ago_s is not None
        return datetime.now(UTC) - timedelta(seconds=ago_s)
    if found.year not in _YEARS:
        raise click.BadParameter(f"{given!r} is not from {_YEARS[0]} to {_YEARS[-1]}")
    return found


@click.group()
def schedule() -> None:
    """Start executions on time.

    A schedule is a document of `kind: Schedule`. Once it is registered, with `schedule create` or `playbook register`,
    servers start an execution of its playbook whenever it is due. Servers have to run for that: `noetl-stream dev`.
    """


@schedule.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@form_option()
@target_options
def create(files: tuple[Path, ...], output: str, target: Target) -> None:
    """Register the schedules in FILES; the same as `playbook register`.

    A schedule that is registered already is changed: it keeps what runs and waits, its history, and whether it is
    paused; when it is due counts from now on.
    """
    sources = [(file, read_playbook(file)) for file in files]
    for file, source in sources:
        _read_schedule(str(file), source)
    register_files(sources, output, target)


@schedule.command("list")
@click.option("--prefix", default="", metavar="PREFIX", help="Match paths that begin with this.")
@limit_option("schedules", 100, 1000)
@click.option("--after", default=None, metavar="PATH", help="Show the page after this path.")
@form_option()
@target_options
def list_schedules(prefix: str, limit: int, after: str | None, output: str, target: Target) -> None:
    """List the registered schedules by path, each with its next start."""
    from noetl_stream.operations.paging import cursor_of

    cursor = None if after is None else cursor_of(after)
    found = with_session(target, lambda session: session.operations.schedules.page(prefix, limit, cursor))
    print_documents(found.items, output, _COLUMNS, "path")
    if found.next is not None:
        say(f"next page: --after {found.items[-1].path}", err=True)


@schedule.command()
@click.argument("path")
@form_option("text")
@target_options
def get(path: str, output: str, target: Target) -> None:
    """Show a schedule: when it starts next, what runs and waits, whether it is paused and why."""
    found = with_session(target, lambda session: session.operations.schedules.get(path))
    print_document(found, output, "path", print_members)


@schedule.command()
@click.argument("schedule", metavar="FILE|PATH")
@click.option("-n", "count", type=click.IntRange(1, MOST_SHOWN), default=10, show_default=True, help="How many.")
@click.option(
    "--after", "after", callback=_day_or_time, metavar="TIME", help="Show those after this time. [default: now]"
)
@form_option()
@target_options
def preview(schedule: str, count: int, after: date | None, output: str, target: Target) -> None:
    """Show when a schedule is due next: that in FILE, or that registered at PATH.

    A file needs no servers. TIME is such as 2026-10-25 or 2026-10-25T00:00+02:00, of the schedule's zone without an
    offset, or a duration before now: 2d.

    \b
    Exit code: 0 shown, also if there is none any more    2 the schedule is invalid
    """
    given = file_or_address(schedule)
    if isinstance(given, Path):
        found, is_paused = _in_file(given, count, after)
    else:
        path = given.path

        async def read(session: Session) -> tuple[list[UpcomingDocument], bool]:
            schedules = session.operations.schedules
            registered = await schedules.get(path)
            after_ms = None if after is None else _instant(after, registered.timetable.timezone)
            return await schedules.upcoming(path, count, after_ms), registered.paused is not None

        found, is_paused = with_session(target, read)
    if is_paused:
        say("paused: it starts nothing before it is resumed", err=True)
    if not found and output == "table":
        say("no occurrence any more", err=True)
        return
    starts = {"starts": "starts"} if any(one.starts != one.utc for one in found) else {}
    print_documents(found, output, columns_of("at", "utc", **starts, note="note"), "at")


@schedule.command()
@click.argument("path")
@reason_option
@target_options
def pause(path: str, reason: str, target: Target) -> None:
    """Pause a schedule: it starts nothing until it is resumed. What runs goes on."""
    _with_servers(target, lambda session: session.operations.schedules.pause(path, session.by, reason))
    say(f"paused {path}")


@schedule.command()
@click.argument("path")
@reason_option
@target_options
def resume(path: str, reason: str, target: Target) -> None:
    """Resume a schedule from now on. What was due while it was paused is not made up for: see `backfill`."""
    found = _with_servers(target, lambda session: session.operations.schedules.resume(path, session.by, reason))
    say(f"resumed {path}; next start: {found.next or 'none any more'}")


@schedule.command()
@click.argument("path")
@reason_option
@form_option("text")
@target_options
def trigger(path: str, reason: str, output: str, target: Target) -> None:
    """Let a schedule be due now, once, also if it is paused. Its `overlap` counts."""
    found = _with_servers(target, lambda session: session.operations.schedules.trigger(path, session.by, reason))
    print_document(found, output, lambda one: one.execution_id or "", print_members)


@schedule.command()
@click.argument("path")
@click.option(
    "--from", "first", callback=_day_or_time, required=True, metavar="TIME", help="The first day or time of the range."
)
@click.option(
    "--until", "last", callback=_day_or_time, metavar="TIME", help="Its last day, all of it, or time. [default: now]"
)
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="queue_all",
    show_default=True,
    help="Counts for these occurrences.",
)
@reason_option
@target_options
def backfill(path: str, first: date, last: date | None, overlap: Overlap, reason: str, target: Target) -> None:
    """Let the occurrences of a range in the past be due now, in order.

    With `queue_all` one starts when the one before has ended. The history shows each; `get` shows how many are left.
    TIME is as for `preview`, and both ends belong to the range, as in `window`. It is refused if the range has no
    occurrence, or more than 10,000.
    """

    async def ask(session: Session) -> BackfilledDocument:
        schedules = session.operations.schedules
        zone = (await schedules.get(path)).timetable.timezone
        now_ms = int(time.time() * 1000)
        before_ms = now_ms if last is None else _instant(last, zone, is_last=True)
        if last is not None and _instant(last, zone) <= now_ms < before_ms:
            before_ms = now_ms  # today, as far as it has gone
        return await schedules.backfill(path, _instant(first, zone), before_ms, session.by, overlap, reason)

    found = _with_servers(target, ask)
    say(f"{found.occurrences} occurrences of {path} are due now")


@schedule.command()
@click.argument("path")
@reason_option
@target_options
def delete(path: str, reason: str, target: Target) -> None:
    """Delete a schedule, its history, and its document in all versions. What it has started goes on."""
    _with_servers(target, lambda session: session.operations.schedules.delete(path, session.by, reason))
    say(f"deleted {path}")


@schedule.command()
@click.argument("path")
@click.option("--status", type=click.Choice(OCCURRENCE_STATUSES), help="Only of this status.")
@limit_option("occurrences", 20, 1000)
@click.option("--before", type=click.IntRange(1), metavar="NUMBER", help="Show those before this number.")
@form_option()
@target_options
def history(
    path: str, status: OccurrenceStatus | None, limit: int, before: int | None, output: str, target: Target
) -> None:
    """Show what became of the occurrences of a schedule, newest first: started, or skipped with the reason."""
    from noetl_stream.operations.paging import cursor_of

    cursor = None if before is None else cursor_of(before)
    found = with_session(target, lambda session: session.operations.schedules.history(path, limit, cursor, status))
    columns = columns_of("number", "scheduled", "status", "cause", execution="execution_id", reason="reason")
    print_documents(found.items, output, columns, lambda one: one.execution_id or "")
    if found.next is not None:
        say(f"more: --before {found.items[-1].number}", err=True)


@schedule.command()
def schema() -> None:
    """Print the JSON Schema of schedules.

    Editors with the YAML language server use it if a schedule begins with

    \b
      # yaml-language-server: $schema=schedule.schema.json
    """
    from noetl_stream.playbook.schedule.schedule_schema import schedule_schema

    print_source(json.dumps(schedule_schema(), ensure_ascii=False, indent=2) + "\n")


def _with_servers(target: Target, work: Work[Value]) -> Value:
    return with_session(target, work, publishes=True)


def _read_schedule(name: str, source: bytes) -> ScheduleDocument:
    from noetl_stream.playbook.schedule.schedule_document import ScheduleDocument

    document = registrable(name, source)
    if not isinstance(document, ScheduleDocument):
        raise UsageError(f"{name}: not a schedule", hint="a schedule has `kind: Schedule`")
    return document


def _instant(given: date, zone: str, *, is_last: bool = False) -> int:
    from noetl_stream.playbook.schedule.times import bound_ms
    from noetl_stream.schedule.zones import zone_named

    return bound_ms(given, zone_named(zone), is_last=is_last)


def _in_file(file: Path, count: int, after: date | None) -> tuple[list[UpcomingDocument], bool]:
    """When the schedule of a file is due next, and whether it is paused."""
    from noetl_stream.operations.schedules import upcoming_of

    document = _read_schedule(str(file), read_playbook(file))
    after_ms = int(time.time() * 1000) if after is None else _instant(after, document.recurrence.zone)
    upcoming = upcoming_of(document.recurrence, document.path, document.jitter_s, after_ms)
    return list(islice(upcoming, count)), document.paused


def _when(one: RegisteredScheduleDocument) -> str:
    table = one.timetable
    return "; ".join(table.cron) or (f"every {table.every_s} s" if table.every_s else ", ".join(table.at))


_COLUMNS: Final[Columns] = {
    "path": "path",
    "playbook": "playbook",
    "due": _when,
    "zone": lambda one: one.timetable.timezone,
    "next": "next",
    "paused": lambda one: one.paused.reason if one.paused else "",
    "running": lambda one: len(one.running),
}
