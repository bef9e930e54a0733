"""``noetl-stream schedule``: when executions start."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from noetl_stream.cli.base.options import form_option, moment_ms
from noetl_stream.cli.base.output import columns_of, print_documents, print_source, say
from noetl_stream.cli.playbook.source import read_playbook, registrable
from noetl_stream.errors import UsageError

if TYPE_CHECKING:  # the list of commands starts faster
    from noetl_stream.playbook.schedule.document import ScheduleDocument

MOST_SHOWN: Final = 1000


class PreviewedOccurrence(msgspec.Struct, frozen=True):
    """An occurrence of a schedule. ``note`` says that the clocks were set since the one before.

    ``at`` is its time in the zone of the schedule, ``utc`` the same instant; ``starts`` is when it starts, with jitter.
    """

    at: str
    utc: str
    starts: str
    note: str = ""


@click.group()
def schedule() -> None:
    """Check when schedules are due.

    A schedule is a document of `kind: Schedule`. `playbook check` checks it. This version does not start anything by
    schedules, and does not register them.
    """


@schedule.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-n", "count", type=click.IntRange(1, MOST_SHOWN), default=10, show_default=True, help="How many.")
@click.option(
    "--after", "after_ms", callback=moment_ms, metavar="TIME", help="Show those after this time. [default: now]"
)
@form_option()
def preview(file: Path, count: int, after_ms: int | None, output: str) -> None:
    """Show when the schedule in FILE is due next.

    Needs no servers. TIME is such as 2026-10-25 or 2026-10-25T00:00+02:00, of this machine's zone without an offset, or
    a duration before now: 2d.

    \b
    Exit code: 0 shown, also if there is none any more    2 the schedule is invalid
    """
    from noetl_stream.playbook.schedule.document import ScheduleDocument

    document = registrable(str(file), read_playbook(file))
    if not isinstance(document, ScheduleDocument):
        raise UsageError(f"{file}: not a schedule", hint="a schedule has `kind: Schedule`")
    after_ms = int(time.time() * 1000) if after_ms is None else after_ms
    found = list(islice(_previewed(document, after_ms), count))
    if document.paused:
        say("paused: it starts nothing before it is resumed", err=True)
    if not found and output == "table":
        say("no occurrence any more", err=True)
        return
    starts = {"starts": "starts"} if document.jitter_s else {}
    print_documents(found, output, columns_of("at", "utc", **starts, note="note"), "at")


@schedule.command()
def schema() -> None:
    """Print the JSON Schema of schedules.

    Editors with the YAML language server use it if a schedule begins with

    \b
      # yaml-language-server: $schema=schedule.schema.json
    """
    from noetl_stream.playbook.schedule.schema import schedule_schema

    print_source(json.dumps(schedule_schema(), ensure_ascii=False, indent=2) + "\n")


def _previewed(document: ScheduleDocument, after_ms: int) -> Iterator[PreviewedOccurrence]:
    from noetl_stream.model.envelope import iso
    from noetl_stream.schedule.recurrence import jitter_of
    from noetl_stream.schedule.zones import iso_in, offset_s, zone_named

    zone = zone_named(document.recurrence.zone)
    before_s = offset_s(after_ms, zone)
    for at_ms in document.recurrence.occurrences(after_ms):
        now_s = offset_s(at_ms, zone)
        ahead_s, before_s = now_s - before_s, now_s
        note = f"clocks set {'forward' if ahead_s > 0 else 'back'} by {abs(ahead_s) // 60} min" if ahead_s else ""
        starts_ms = at_ms + jitter_of(document.path, at_ms, document.jitter_s)
        yield PreviewedOccurrence(iso_in(at_ms, zone), iso(at_ms), iso(starts_ms), note)
