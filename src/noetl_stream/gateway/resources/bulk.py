"""``/api/v1/bulk``: verbs for many executions in one call, each with an outcome of its own."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from noetl_stream.gateway.http.bodies import Keys, PriorityKept, RequestModel, json_body
from noetl_stream.gateway.http.parameters import Cursor, Explained, Label, Moment, labels_in, ms_of
from noetl_stream.gateway.http.routes import Call, Routes
from noetl_stream.model.rights import Role
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.operations.executions import ExecutionFilter, RerunOptions
from noetl_stream.ports.operations.selections import MAX_SELECTED, BulkDocument, BulkOrder, BulkVerb
from noetl_stream.ports.operations.verbs import API

routes = Routes()


class SelectionRequest(RequestModel):
    """Which executions: `ids`, or `limit` of those that match all of the others, newest first. Without `status` those
    that the verb is for. `dry_run`: only say what it would be done to.
    """

    ids: Annotated[tuple[Annotated[str, Field(max_length=64)], ...] | None, Field(max_length=MAX_SELECTED)] = None
    status: tuple[ExecutionStatus, ...] = ()
    path: str | None = None
    label: tuple[Label, ...] = ()
    started_from: Moment | None = None
    started_before: Moment | None = None
    error: Annotated[str | None, Field(max_length=512)] = None
    dry_run: bool = False
    limit: Annotated[int, Field(ge=1, le=MAX_SELECTED)] = 100
    cursor: Cursor | None = None


class BulkRetryRequest(SelectionRequest):
    """Which executions, and changes if there are any."""

    ctx: Keys
    args: dict[str, Any] | None = None
    priority: PriorityKept = None


class BulkRerunRequest(BulkRetryRequest):
    """Which executions, and the step from whose last run each starts again."""

    step: str


async def _act(call: Call[Explained, Any], verb: BulkVerb) -> BulkDocument:
    sent: SelectionRequest = call.body
    chosen = ExecutionFilter(
        status=sent.status,
        path=sent.path,
        labels=labels_in(sent.label),
        started_from_ms=ms_of(sent.started_from),
        started_before_ms=ms_of(sent.started_before),
        error=sent.error,
    )
    why, changes = call.parameters, sent.model_dump(exclude=set(SelectionRequest.model_fields))
    options = RerunOptions(**changes, reason=why.reason, correlation_id=why.correlation_id)
    wanted = BulkOrder(
        verb,
        sent.ids,
        chosen,
        dry_run=sent.dry_run,
        limit=sent.limit,
        cursor=sent.cursor,
        options=options,
    )
    return await call.operations.selections.act(wanted, call.caller.principal, call.ids)


def _serve(verb: BulkVerb, role: Role, sent: type[SelectionRequest], summary: str) -> None:
    async def act(call: Call[Explained, Any]) -> BulkDocument:
        return await _act(call, verb)

    act.__doc__ = summary
    adds_work = issubclass(sent, BulkRetryRequest)
    routes("POST", f"{API}/bulk/{verb}", f"{verb}Executions", role, body=json_body(sent), adds_work=adds_work)(act)


_serve("cancel", "operator", SelectionRequest, "Cancel executions, and those they have called.")
_serve("pause", "operator", SelectionRequest, "Pause executions.")
_serve("resume", "operator", SelectionRequest, "Resume executions after a pause or a quarantine.")
_serve("retry", "operator", BulkRetryRequest, "Run failed executions again, each from the step run that failed.")
_serve("rerun", "operator", BulkRerunRequest, "Run ended executions again from one of their steps.")
_serve("delete", "admin", SelectionRequest, "Delete ended executions.")
