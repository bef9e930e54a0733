"""Triggers, which start executions on events (LANGUAGE §15 *Trigger*)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol, get_args

from msgspec import Meta

from noetl_stream.model.aggregates import EventSource
from noetl_stream.model.envelope import Time
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.operations.documents import Document, DocumentPage
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.verbs import MAX_POSITION, Cursor, ItemsBelow, Limit, PlaybookPath, Prefix, verb
from noetl_stream.trigger.signatures import WebhookDelivery

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
