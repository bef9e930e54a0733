"""``/api/v1/triggers`` and ``/api/v1/hooks``: what starts executions on events. A path's slashes are written ``%2F``,
but behind ``/hooks/``, where senders write them as they are.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec.structs import replace
from pydantic import Field

from noetl_stream.gateway.http.bodies import raw_body
from noetl_stream.gateway.http.parameters import InPath, Parameters, WaitS
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes
from noetl_stream.gateway.http.verbs import routes_of
from noetl_stream.gateway.resources.executions import location, waited
from noetl_stream.model.status import ENDED
from noetl_stream.ports.operations.starters.triggers import DeliveredDocument, Triggers
from noetl_stream.ports.operations.verbs import address_of
from noetl_stream.trigger.signatures import WebhookDelivery

DELIVERED: Final = {
    200: Answer("It starts nothing, or what it started has ended within `wait`", DeliveredDocument, ("Location",)),
    202: Answer("It is recorded, and has started an execution", DeliveredDocument, ("Location",)),
}

routes = Routes(routes_of("triggers"))


class Delivering(Parameters):
    takes_more: ClassVar[bool] = True

    path: Annotated[
        str, InPath(), Field(min_length=1, max_length=512, description="Of the trigger, slashes as they are.")
    ]
    wait: WaitS = 0.0


@routes(
    *address_of(Triggers.deliver),
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
