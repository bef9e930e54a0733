"""``noetl-stream schedule``: when executions start."""

from __future__ import annotations

import time
from contextlib import suppress
from copy import copy
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from noetl_stream.cli.base.options import form_option, reason_option, seconds
from noetl_stream.cli.base.output import Columns, columns_of, print_documents, say
from noetl_stream.cli.base.session import Session, Target, shows, target_options, with_session
from noetl_stream.cli.playbook.playbook_source import file_or_address, read_playbook
from noetl_stream.cli.starters import Starter, add_commands, read_starter
from noetl_stream.durations import duration_text
from noetl_stream.ports.operations.starters import OCCURRENCE_STATUSES, BackfilledDocument, RegisteredScheduleDocument

if TYPE_CHECKING:  # the list of commands starts faster
    from noetl_stream.model.aggregates import Overlap
    from noetl_stream.playbook.schedule.schedule_document import ScheduleDocument
    from noetl_stream.ports.operations.starters import UpcomingDocument

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


@schedule.command("run-now")
@click.argument("path")
@reason_option
@shows("schedules.run_now", lambda one: one.execution_id or "", publishes=True)
def run_now() -> None:
    """Let a schedule be due now, once, also if it is paused. Its `overlap` counts."""


_earlier_name = copy(run_now)
_earlier_name.hidden = True
schedule.add_command(_earlier_name, "trigger")


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
            before_ms = now_ms  # up to the present time
        return await schedules.backfill(path, _instant(first, zone), before_ms, session.by, overlap, reason)

    found = with_session(target, ask, publishes=True)
    say(f"{found.occurrences} occurrences of {path} are due now")


def _instant(given: date, zone: str, *, is_last: bool = False) -> int:
    from noetl_stream.playbook.schedule.schedule_document import bound_ms
    from noetl_stream.zones import zone_named

    return bound_ms(given, zone_named(zone), is_last=is_last)


def _in_file(file: Path, count: int, after: date | None) -> tuple[list[UpcomingDocument], bool]:
    """The next times of the schedule in a file, and whether it is paused."""
    from noetl_stream.operations.starters import upcoming_of

    document = _document(str(file), read_playbook(file))
    after_ms = int(time.time() * 1000) if after is None else _instant(after, document.recurrence.zone)
    upcoming = upcoming_of(document.recurrence, document.path, document.jitter_s, after_ms)
    return list(islice(upcoming, count)), document.paused


def _when(one: RegisteredScheduleDocument) -> str:
    table = one.timetable
    return "; ".join(table.cron) or (f"every {duration_text(table.every_s)}" if table.every_s else ", ".join(table.at))


_COLUMNS: Final[Columns] = {
    "path": "path",
    "playbook": lambda one: one.calls or one.playbook,
    "due": _when,
    "zone": lambda one: one.timetable.timezone,
    "next": "next",
    "paused": lambda one: one.paused.reason if one.paused else "",
    "running": lambda one: len(one.running),
}


def _document(name: str, source: bytes) -> ScheduleDocument:
    from noetl_stream.playbook.schedule.schedule_document import ScheduleDocument

    return read_starter(name, source, ScheduleDocument, "schedule")


def _schema() -> dict[str, Any]:
    from noetl_stream.playbook.schedule.schedule_document import schedule_schema

    return schedule_schema()


_HELPS: Final = {
    "create": """Register the schedules in FILES; the same as `playbook register`.

    A schedule that is registered already is changed: it keeps what runs and waits, its history, and whether it is
    paused; when it is due counts from now on.
    """,
    "list": "List the registered schedules by path, each with its next start.",
    "get": "Show a schedule: when it starts next, what runs and waits, whether it is paused and why.",
    "pause": "Pause a schedule: it starts nothing until it is resumed. What runs goes on.",
    "resume": "Resume a schedule from now on. What was due while it was paused is not made up for: see `backfill`.",
    "delete": "Delete a schedule, its history, and its document in all versions. What it has started goes on.",
    "history": "Show what became of the occurrences of a schedule, newest first: started, or skipped with the reason.",
}

add_commands(
    schedule,
    Starter(
        noun="schedule",
        of=lambda session: session.operations.schedules,
        document=_document,
        helps=_HELPS,
        columns=_COLUMNS,
        resumed=lambda one: f"resumed {one.path}; next start: {one.next or 'none any more'}",
        entries="occurrences",
        statuses=OCCURRENCE_STATUSES,
        entry_columns=columns_of("number", "scheduled", "status", "cause", execution="execution_id", reason="reason"),
        entry_name=lambda one: one.execution_id or "",
        schema=_schema,
    ),
)
