"""Registered schedules: their past and future (LANGUAGE §15 *Schedule*)."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Protocol, get_args

from msgspec import Meta

from noetl_stream.model.aggregates import Missed, Overlap
from noetl_stream.model.envelope import Time
from noetl_stream.ports.operations.documents import Document, DocumentPage, list_of
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.verbs import Cursor, Default, ItemsBelow, Limit, PlaybookPath, verb

OccurrenceStatus = Literal["waiting", "started", "skipped", "completed", "failed", "cancelled"]
OCCURRENCE_STATUSES: tuple[OccurrenceStatus, ...] = get_args(OccurrenceStatus)


class TimetableDocument(Document, frozen=True):
    """When it is due, as the document says."""

    timezone: str
    cron: list[str]
    every_s: int | None
    at: list[Time]


class PauseDocument(Document, frozen=True):
    """Why it starts nothing, and since when."""

    reason: str
    since: Time


class BackfillDocument(Document, frozen=True):
    """A backfill under way. ``next``: the time of its next occurrence; ``left`` are to come."""

    next: Time
    before: Time
    overlap: Overlap
    left: int


class RegisteredScheduleDocument(Document, frozen=True):
    """A schedule as it is.

    ``registered_by`` is whose rights it acts with. ``revision`` and ``digest`` are those of its document in the
    catalog. ``next`` is when it starts next, with its jitter; null if it is paused or over. ``failures`` counts
    executions that failed since the last that did not. ``running`` are its executions, ``waiting`` occurrences of it.
    With ``files``, ``playbook`` is that which looks for them, and ``calls`` what it calls for each.
    """

    path: str
    playbook: str
    version: str | None
    revision: int
    digest: str
    registered_by: str
    registered: Time
    timetable: TimetableDocument
    jitter_s: int
    overlap: Overlap
    missed: Missed
    missed_within_s: int | None
    pause_after_failures: int | None
    next: Time | None
    paused: PauseDocument | None
    failures: int
    running: list[str]
    waiting: int
    backfill: BackfillDocument | None
    occurrences: int
    calls: str | None = None


class SchedulePage(DocumentPage[RegisteredScheduleDocument], frozen=True):
    """By path."""


class OccurrenceDocument(Document, frozen=True):
    """What became of an occurrence. ``scheduled`` is its time, ``due`` the same with its jitter.

    ``cause``: ``timetable``, ``trigger`` or ``backfill``. ``reason`` says why it was skipped or waits, or how its
    execution failed.
    """

    number: int
    status: OccurrenceStatus
    scheduled: Time
    due: Time
    cause: str
    execution_id: str | None
    started: Time | None
    ended: Time | None
    reason: str


class OccurrencePage(DocumentPage[OccurrenceDocument], frozen=True):
    """Newest first. The newest 10,000 of a schedule are kept."""


class UpcomingDocument(Document, frozen=True):
    """An occurrence to come. ``note`` says that the clocks were set since the one before.

    ``at`` is its time in the zone of the schedule, ``utc`` the same instant; ``starts`` is when it starts, with jitter.
    """

    at: str
    utc: Time
    starts: Time
    note: str = ""


class BackfilledDocument(Document, frozen=True):
    """``occurrences`` are in the range; each is in the history once it is reached."""

    path: str
    occurrences: int


BACKFILL: Final = (
    "BackfillRequest",
    "The occurrences from one time up to before another; `overlap` counts for them.",
)


class Schedules(Protocol):
    """A schedule begins when its document is registered (:meth:`.Playbooks.register`).

    Raises (any method but :meth:`page`): :class:`~noetl_stream.errors.NotFound` if no schedule is registered there.
    """

    @verb("GET", "/schedules", "listSchedules", scope="items", listed_first=("limit", "cursor"))
    async def page(
        self,
        prefix: Annotated[str, Default(""), Meta(max_length=512, description="What the path begins with.")],
        limit: Limit,
        cursor: Cursor | None,
        scope: ItemsBelow = (),
    ) -> SchedulePage:
        """List schedules by path, each with its next time."""

    @verb("GET", "/schedules/{path}", "getSchedule")
    async def get(self, path: PlaybookPath) -> RegisteredScheduleDocument:
        """Get a schedule: when it starts next, what runs and waits, whether it is paused and why."""

    @verb(
        "GET", "/schedules/{path}/upcoming", "listUpcoming", document=list_of("UpcomingOccurrences", UpcomingDocument)
    )
    async def upcoming(
        self,
        path: PlaybookPath,
        count: Annotated[int, Meta(ge=1, le=1000, description="How many.")] = 10,
        after_ms: Annotated[int | None, Meta(description="Those after this time; without it those to come.")] = None,
    ) -> list[UpcomingDocument]:
        """List when it is due next, paused or not."""

    @verb("GET", "/schedules/{path}/history", "listOccurrences")
    async def history(
        self,
        path: PlaybookPath,
        limit: Limit,
        cursor: Cursor | None,
        status: Annotated[OccurrenceStatus | None, Meta(description="Only of this status.")] = None,
    ) -> OccurrencePage:
        """List what became of its occurrences: started, or skipped with the reason.

        The newest is first.
        """

    @verb("POST", "/schedules/{path}/pause", "pauseSchedule", "operator", refuses=("conflict",))
    async def pause(
        self, path: PlaybookPath, by: str, reason: str = "", ids: RequestIds | None = None
    ) -> RegisteredScheduleDocument:
        """Pause it: it starts nothing until it is resumed.

        What runs goes on.
        """

    @verb("POST", "/schedules/{path}/resume", "resumeSchedule", "operator", refuses=("conflict",))
    async def resume(
        self, path: PlaybookPath, by: str, reason: str = "", ids: RequestIds | None = None
    ) -> RegisteredScheduleDocument:
        """Resume it from now on.

        What was due meanwhile is not made up for.

        Raises:
            Forbidden: whoever registered it may no longer start the playbook.
        """

    @verb("POST", "/schedules/{path}/trigger", "triggerSchedule", "operator", refuses=("conflict",), adds_work=True)
    async def run_now(
        self, path: PlaybookPath, by: str, reason: str = "", ids: RequestIds | None = None
    ) -> OccurrenceDocument:
        """Let it be due now, once, also if it is paused.

        ``overlap`` counts.
        """

    @verb(
        "POST",
        "/schedules/{path}/backfill",
        "backfillSchedule",
        "operator",
        refuses=("conflict",),
        adds_work=True,
        request=BACKFILL,
    )
    async def backfill(
        self,
        path: PlaybookPath,
        from_ms: int,
        before_ms: int,
        by: str,
        overlap: Overlap = "queue_all",
        reason: str = "",
        ids: RequestIds | None = None,
    ) -> BackfilledDocument:
        """Let the occurrences of a range in the past be due now, in order.

        Args:
            from_ms: The first instant of the range, ms since the epoch.
            before_ms: The first instant after it.

        Raises:
            Conflict: it is paused, or another backfill is under way.
            UsageError: the range has no occurrence, or more than 10,000, or ends in the future.
        """

    @verb(
        "DELETE",
        "/schedules/{path}",
        "deleteSchedule",
        "author",
        refuses=("conflict",),
        description="What it has started goes on.",
    )
    async def delete(self, path: PlaybookPath, by: str, reason: str = "") -> None:
        """Delete it, its history, and its document in all versions."""
