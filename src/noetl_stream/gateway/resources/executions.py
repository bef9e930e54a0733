"""``/api/v1/executions``: start, list, look; ``/api/v1/triggers`` and ``/api/v1/hooks``: events that start them.
Slashes of a path are written ``%2F``, except after ``/hooks/``, where senders write them plainly.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import quote

from msgspec.structs import replace
from pydantic import Field

from noetl_stream.errors import NotFound
from noetl_stream.gateway.http import inputs
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes, route_of, routes_of
from noetl_stream.gateway.http.serving import waited
from noetl_stream.model.labels import MAX_KEY_CHARS
from noetl_stream.model.status import ENDED
from noetl_stream.ports.operations.executions import (
    ExecutionDocument,
    Executions,
    ResultDocument,
    Start,
    StepRunOrder,
    StepRunRange,
    StepRunsDocument,
)
from noetl_stream.ports.operations.selections import Selections
from noetl_stream.ports.operations.starters import DeliveredDocument, Triggers
from noetl_stream.ports.operations.verbs import API, address_of
from noetl_stream.sealing.data_references import DataReference
from noetl_stream.trigger.signatures import WebhookDelivery

EXECUTIONS: Final = f"{API}/executions"

OCTETS: Final = "application/octet-stream"

routes = Routes()


class StartRequest(inputs.RequestModel):
    """What to run: exactly one of `path` (with or without `version`), `digest`, and `playbook`, a whole text."""

    path: str | None = None
    version: str | None = None
    digest: str | None = None
    playbook: str | None = None
    workload: Annotated[inputs.Keys, Field(description="Merged deeply over the playbook's own.")]
    ctx: Annotated[inputs.Keys, Field(description="Set before the first step.")]
    labels: inputs.LabelsGiven
    key: Annotated[str, Field(max_length=MAX_KEY_CHARS, description="Its business key.")] = ""
    unique: Annotated[
        bool, Field(description="If an execution of the playbook has the key, answer with it, and start nothing.")
    ] = False
    priority: inputs.PriorityGiven = None


class Starting(inputs.Explained):
    wait: inputs.WaitS = 0.0
    traceparent: Annotated[
        str,
        inputs.InHeader("traceparent"),
        Field(description="W3C Trace Context: the execution joins the caller's trace."),
    ] = ""


class ExecutionQuery(inputs.ExecutionAt):
    wait: inputs.WaitS = 0.0


def location(execution_id: str) -> dict[str, str]:
    return {"Location": f"{EXECUTIONS}/{execution_id}"}


async def begun(call: Call[Any, Any], execution: ExecutionDocument, wait_s: float) -> Reply:
    """A new execution: 200 if it has ended within the requested wait, else 202, even if Postgres loses it meanwhile."""
    if wait_s:
        with suppress(NotFound):
            execution = await waited(call.operations.executions, call.ending, execution.execution_id, wait_s)
    status = 200 if wait_s and execution.status in ENDED else 202
    return Reply(execution, status, location(execution.execution_id))


STARTED: Final = {
    200: Answer("It has ended within `wait`", ExecutionDocument, ("Location",)),
    202: Answer("It is started", ExecutionDocument, ("Location",)),
}


START_REFUSED: Final = ("playbook-refused", "not-found", "conflict")
STARTING: Final = inputs.numbered_body(StartRequest)


@routes("POST", EXECUTIONS, "startExecution", "operator", STARTED, refuses=START_REFUSED, adds_work=True, body=STARTING)
async def start(call: Call[Starting, inputs.Numbered[StartRequest]]) -> Reply:
    """Start an execution.

    The request is committed when this answers. A text of your own, `playbook`, takes an author.
    """
    if call.body.request.playbook is not None:
        call.require("author", "start a text that is not registered")
    given = call.parameters
    wanted = Start(
        **dict(call.body.request),
        reason=given.reason,
        correlation_id=given.correlation_id,
        traceparent=call.traceparent or given.traceparent,
        digits_lost=call.body.digits_lost,
    )
    started = await call.operations.executions.start(wanted, call.caller.principal, call.ids)
    return await begun(call, started, given.wait)


routes += (
    route_of("executions", Executions.page),
    route_of("selections", Selections.histogram),
    route_of("selections", Selections.groups),
)


@routes(*address_of(Executions.get), "getExecution", "viewer")
async def get(call: Call[ExecutionQuery, None]) -> ExecutionDocument:
    """Get an execution, as it is or as it is after `wait`."""
    given = call.parameters
    return await waited(call.operations.executions, call.ending, given.execution_id, given.wait)


@routes(
    *address_of(Executions.result),
    "getResult",
    "viewer",
    {200: Answer("OK", ResultDocument)},
    refuses=("conflict",),
    heavy=True,
)
async def result(call: Call[inputs.ExecutionAt, None]) -> Reply:
    """Get the result of an ended execution, whole.

    A result kept by reference is loaded unless it is very large.
    """
    return Reply(await call.operations.executions.result_pieces(call.parameters.execution_id))


class FileAt(inputs.ExecutionAt):
    """The fields of the reference, as the execution shows them."""

    key: Annotated[str, Field(max_length=512)]
    size: Annotated[int, Field(ge=0)]
    checksum: Annotated[str, Field(max_length=128)]
    seal: Annotated[str, Field(max_length=256)]
    name: Annotated[str, Field(max_length=255, description="What the download is called.")] = ""


@routes(*address_of(Executions.file), "getFile", "viewer", {200: Answer("Its bytes", media=OCTETS)}, heavy=True)
async def file(call: Call[FileAt, None]) -> Reply:
    """Download a file or table that an execution holds.

    The parameters are fields of its reference. A response that is shorter than its `Content-Length` is not whole.
    """
    given = call.parameters
    reference = DataReference(given.key, given.size, given.checksum, given.seal, given.name)
    pieces = await call.operations.executions.file(given.execution_id, reference)
    called = f"attachment; filename*=UTF-8''{quote(given.name or 'file', safe='')}"
    headers = {"Content-Disposition": called, "Content-Length": str(given.size)}
    return Reply(pieces, headers=headers, media=OCTETS)


class StepRunsOf(inputs.ExecutionAt):
    limit: Annotated[
        int | None, Field(ge=1, le=inputs.MAX_PAGE, description="Of a page; without it the answer has all of them.")
    ] = None
    first: Annotated[int, Field(ge=0, le=inputs.MAX_POSITION, description="Where the page begins.")] = 0
    step: Annotated[inputs.Name | None, Field(description="Only runs of this step, in a page.")] = None
    step_run_id: Annotated[inputs.Name | None, Field(description="Only this one, in a page.")] = None
    order: Annotated[
        StepRunOrder,
        Field(
            description="Of a page: by when they began, or the longest first, before them those that have not ended."
        ),
    ] = "began"


@routes(
    *address_of(Executions.steps), "listSteps", "viewer", {200: Answer("OK", StepRunsDocument, ("Link",))}, heavy=True
)
async def steps(call: Call[StepRunsOf, None]) -> Reply:
    """List its step runs, in the order they began.

    Without `limit` all of them, else a page, by `order`.
    """
    given = call.parameters
    if given.limit is None:
        return Reply(StepRunsDocument(await call.operations.executions.steps(given.execution_id)))
    wanted = StepRunRange(given.first, given.limit, given.step, given.step_run_id, given.order)
    page = await call.operations.executions.runs(given.execution_id, wanted)
    return Reply(page, headers=call.link_to(first=page.next))


routes += routes_of("executions", routes)


DELIVERED: Final = {
    200: Answer("It starts nothing, or what it started has ended within `wait`", DeliveredDocument, ("Location",)),
    202: Answer("It is recorded, and has started an execution", DeliveredDocument, ("Location",)),
}

trigger_routes = Routes(routes_of("triggers"))


class Delivering(inputs.Parameters):
    takes_more: ClassVar[bool] = True

    path: Annotated[
        str, inputs.InPath(), Field(min_length=1, max_length=512, description="Of the trigger, slashes as they are.")
    ]
    wait: inputs.WaitS = 0.0


@trigger_routes(
    *address_of(Triggers.deliver),
    "deliverEvent",
    None,
    DELIVERED,
    body=inputs.raw_body(),
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
        with suppress(NotFound):  # the event is recorded, and servers make good what Postgres has lost
            execution = await waited(call.operations.executions, call.ending, execution_id, given.wait)
            found = replace(found, execution_status=execution.status)
            status = 200 if execution.status in ENDED else 202
    return Reply(found, status, location(execution_id))
