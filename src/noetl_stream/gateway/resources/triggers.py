"""``/api/v1/triggers`` and ``/api/v1/hooks``: what starts executions on events. A path's slashes are written ``%2F``,
but behind ``/hooks/``, where senders write them as they are.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec.structs import replace
from pydantic import Field

from noetl_stream.gateway.http.bodies import raw_body
from noetl_stream.gateway.http.parameters import MAX_POSITION, Explained, InPath, Paged, Parameters, WaitS
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes
from noetl_stream.gateway.resources.executions import location, waited
from noetl_stream.model.status import ENDED
from noetl_stream.ports.operations.triggers import (
    DeliveredDocument,
    EventStatus,
    TriggerEventDocument,
    TriggerEventPage,
    TriggerPage,
    Triggers,
    TriggerStateDocument,
)
from noetl_stream.ports.operations.verbs import API, address_of
from noetl_stream.trigger.signatures import WebhookDelivery

HOOKS: Final = f"{API}/hooks/{{path}}"
DELIVERED: Final = {
    200: Answer("It starts nothing, or what it started has ended within `wait`", DeliveredDocument, ("Location",)),
    202: Answer("It is recorded, and has started an execution", DeliveredDocument, ("Location",)),
}

routes = Routes()


class TriggersQuery(Paged):
    prefix: Annotated[str, Field(max_length=256, description="What the path begins with.")] = ""


class TriggerAt(Parameters):
    path: Annotated[str, InPath(), Field(min_length=1, max_length=512, description="Slashes are written `%2F`.")]


class TriggerChange(Explained, TriggerAt):
    """A change of one."""


class TriggerEventsQuery(Paged, TriggerAt):
    status: Annotated[EventStatus | None, Field(description="What became of them.")] = None


class TriggerEventAt(TriggerAt):
    number: Annotated[int, InPath(), Field(ge=1, le=MAX_POSITION)]


class TriggerEventChange(Explained, TriggerEventAt):
    """A change of one."""


@routes(*address_of(Triggers.page), "listTriggers", "viewer")
async def page(call: Call[TriggersQuery, None]) -> TriggerPage:
    """List triggers by path."""
    given = call.parameters
    return await call.operations.triggers.page(given.prefix, given.limit, given.cursor)


@routes(*address_of(Triggers.get), "getTrigger", "viewer")
async def get(call: Call[TriggerAt, None]) -> TriggerStateDocument:
    """Get a trigger as it is now."""
    return await call.operations.triggers.get(call.parameters.path)


@routes(*address_of(Triggers.pause), "pauseTrigger", "operator")
async def pause(call: Call[TriggerChange, None]) -> TriggerStateDocument:
    """Ignore events until the trigger is resumed."""
    given = call.parameters
    return await call.operations.triggers.pause(given.path, call.caller.principal, given.reason, call.ids)


@routes(*address_of(Triggers.resume), "resumeTrigger", "operator")
async def resume(call: Call[TriggerChange, None]) -> TriggerStateDocument:
    """Start executions on events again."""
    given = call.parameters
    return await call.operations.triggers.resume(given.path, call.caller.principal, given.reason, call.ids)


@routes(*address_of(Triggers.history), "listTriggerEvents", "viewer")
async def history(call: Call[TriggerEventsQuery, None]) -> TriggerEventPage:
    """List events and what became of them, newest first."""
    given = call.parameters
    return await call.operations.triggers.history(given.path, given.limit, given.cursor, given.status)


@routes(*address_of(Triggers.event), "getTriggerEvent", "viewer")
async def event(call: Call[TriggerEventAt, None]) -> TriggerEventDocument:
    """Get an event in full."""
    return await call.operations.triggers.event(call.parameters.path, call.parameters.number)


@routes(*address_of(Triggers.resend), "resendTriggerEvent", "operator", adds_work=True)
async def resend(call: Call[TriggerEventChange, None]) -> TriggerEventDocument:
    """Send an event again, as a new one."""
    given = call.parameters
    return await call.operations.triggers.resend(
        given.path, given.number, call.caller.principal, given.reason, call.ids
    )


@routes(*address_of(Triggers.delete), "deleteTrigger", "author")
async def delete(call: Call[TriggerChange, None]) -> None:
    """Forget a trigger and its events. What it has started goes on."""
    given = call.parameters
    await call.operations.triggers.delete(given.path, call.caller.principal, given.reason)


class Delivering(Parameters):
    takes_more: ClassVar[bool] = True

    path: Annotated[
        str, InPath(), Field(min_length=1, max_length=512, description="Of the trigger, slashes as they are.")
    ]
    wait: WaitS = 0.0


@routes(
    "POST",
    HOOKS,
    "deliverEvent",
    None,
    DELIVERED,
    body=raw_body(),
    refuses=("not-found", "too-busy"),
    adds_work=True,
    by_programs=True,
)
async def deliver(call: Call[Delivering, bytes]) -> Reply:
    """Send an event to a webhook.

    Its sender is known by what the trigger asks for: a signature, or a token. The event is committed when this answers.
    An unknown webhook and a wrong signature are answered alike.
    """
    given = call.parameters
    query = call.address.raw_query_string
    delivery = WebhookDelivery(method="POST", headers=call.headers, body=call.body, query=query)
    found = await call.operations.triggers.deliver(given.path, delivery, call.ids)
    execution_id, status = found.execution_id, 202
    if execution_id is None:
        return Reply(found)
    if given.wait:
        execution = await waited(call, execution_id, given.wait)
        found = replace(found, execution_status=execution.status)
        status = 200 if execution.status in ENDED else 202
    return Reply(found, status, location(execution_id))
