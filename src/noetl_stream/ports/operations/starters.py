"""Schedules and triggers: what starts executions, with its past and future (LANGUAGE §15)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Protocol, get_args

from msgspec import Meta

from noetl_stream.model.aggregates import EventSource, Missed, Overlap
from noetl_stream.model.envelope import Time
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.verbs import (
    MAX_POSITION,
    Cursor,
    Default,
    Document,
    DocumentPage,
    ItemsBelow,
    Limit,
    PlaybookPath,
    Prefix,
    list_of,
    verb,
)
from noetl_stream.trigger.signatures import WebhookDelivery

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


EventStatus = Literal["started", "waiting", "repeated", "ignored"]
EVENT_STATUSES: tuple[EventStatus, ...] = get_args(EventStatus)


class TriggerStreamDocument(Document, frozen=True, kw_only=True):
    """How far the stream of a trigger is read.

    `consumer`: its durable consumer on NATS. `sequence`: of the last message that it has taken. `pending`: how many
    were left behind that when it was last looked at. `running`: executions of its messages that have not ended; from
    500 on it waits for some to end. `trouble`: why the stream cannot be read, `since` when; null if it can.
    """

    consumer: str
    sequence: int | None
    pending: int | None
    running: int
    trouble: str | None
    since: Time | None


class TriggerFaultsDocument(Document, frozen=True, kw_only=True):
    """The events with which a trigger could not do what it says, since its text was registered: `count` of them, and
    the last one's `number`, time and `reason`.
    """

    count: int
    number: int
    at: Time
    reason: str


class TriggerStateDocument(Document, frozen=True, kw_only=True):
    """A trigger as it is now.

    `on`: what it is on, as registered. `address`: where a webhook's events are sent. `paused`: why it starts nothing;
    null if it does. `events`: how many there were. `waiting`: how
    many of them wait for their turn (`rate`). `faults`: those that it could not handle; null if there were none.
    `stream`: on NATS, how far it is read. It acts with the rights of `registered_by`.
    """

    path: str
    source: EventSource
    on: dict[str, Any]
    address: str | None
    playbook: str
    version: str | None
    when: str | bool
    workload: dict[str, Any]
    key: str | None
    revision: int
    digest: str
    registered: Time
    registered_by: str
    paused: str | None
    events: int
    waiting: int = 0
    rate: dict[str, Any] | None = None
    faults: TriggerFaultsDocument | None = None
    stream: TriggerStreamDocument | None = None


class TriggerPage(DocumentPage[TriggerStateDocument], frozen=True):
    """Triggers by path."""


class TriggerEventDocument(Document, frozen=True, kw_only=True):
    """An event and what became of it: it started an execution; it waits to start one, since the trigger may not start
    more now; its key had started one before; or it was ignored, for a reason. `fault`: the trigger could not do with it
    what it says. `event` is what it was, in full; null in lists. `resent` is the number of the one that it repeats.
    """

    number: int
    at: Time
    status: EventStatus
    execution_id: str | None
    reason: str | None
    key: str | None
    resent: int | None
    depth: int | None
    fault: bool = False
    event: dict[str, Any] | None = None


class TriggerEventPage(DocumentPage[TriggerEventDocument], frozen=True):
    """Events, newest first."""


class DeliveredDocument(Document, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to the sender of an event. An answer to a challenge has only `challenge`."""

    number: int | None = None
    status: EventStatus | None = None
    execution_id: str | None = None
    execution_status: ExecutionStatus | None = None
    challenge: str | None = None


EventNumber = Annotated[int, Meta(ge=1, le=MAX_POSITION)]


class Triggers(Protocol):
    """A trigger begins when its document is registered (:meth:`.Playbooks.register`). A path that has no trigger raises
    NotFound.
    """

    @verb("GET", "/triggers", "listTriggers", scope="items", listed_first=("limit", "cursor"))
    async def page(self, prefix: Prefix, limit: Limit, cursor: Cursor | None, scope: ItemsBelow = ()) -> TriggerPage:
        """List triggers by path."""

    @verb("GET", "/triggers/{path}", "getTrigger")
    async def get(self, path: PlaybookPath) -> TriggerStateDocument:
        """Get a trigger as it is now."""

    @verb("POST", "/triggers/{path}/pause", "pauseTrigger", "operator")
    async def pause(
        self, path: PlaybookPath, by: str, reason: str = "", ids: RequestIds | None = None
    ) -> TriggerStateDocument:
        """Ignore events until the trigger is resumed."""

    @verb("POST", "/triggers/{path}/resume", "resumeTrigger", "operator")
    async def resume(
        self, path: PlaybookPath, by: str, reason: str = "", ids: RequestIds | None = None
    ) -> TriggerStateDocument:
        """Start executions on events again.

        Raises:
            Forbidden: whoever registered it may no longer start the playbook.
        """

    @verb("GET", "/triggers/{path}/events", "listTriggerEvents")
    async def history(
        self,
        path: PlaybookPath,
        limit: Limit,
        cursor: Cursor | None,
        status: Annotated[EventStatus | None, Meta(description="What became of them.")] = None,
    ) -> TriggerEventPage:
        """List events and what became of them, newest first."""

    @verb("GET", "/triggers/{path}/events/{number}", "getTriggerEvent")
    async def event(self, path: PlaybookPath, number: EventNumber) -> TriggerEventDocument:
        """Get an event in full."""

    @verb("POST", "/triggers/{path}/events/{number}/resend", "resendTriggerEvent", "operator", adds_work=True)
    async def resend(
        self, path: PlaybookPath, number: EventNumber, by: str, reason: str = "", ids: RequestIds | None = None
    ) -> TriggerEventDocument:
        """Send an event again, as a new one."""

    @verb("DELETE", "/triggers/{path}", "deleteTrigger", "author")
    async def delete(self, path: PlaybookPath, by: str, reason: str = "") -> None:
        """Forget a trigger and its events. What it has started goes on.

        All versions of its document are deleted.
        """

    @verb("POST", "/hooks/{path}")
    async def deliver(self, path: str, delivery: WebhookDelivery, ids: RequestIds) -> DeliveredDocument:
        """Takes an event for a webhook, once its sender is known.

        Raises:
            NotFound: there is no such webhook, or the delivery is not believed: nobody is told which.
            Unreachable: no server answers.
        """
