"""``/api/v1/bulk``: verbs for many executions in one call, each with an outcome of its own."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from noetl_stream.gateway.http.bodies import Keys, PriorityKept, RequestModel
from noetl_stream.gateway.http.parameters import Cursor, Explained, Label, Moment, labels_in, ms_of
from noetl_stream.gateway.http.routes import Call, Routes
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.operations.executions import ExecutionFilter, RerunOptions
from noetl_stream.ports.operations.selections import MAX_SELECTED, BulkDocument, BulkOrder, BulkVerb
from noetl_stream.ports.operations.verbs import API

BULK: Final = f"{API}/bulk"

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


async def _act(call: Call[Explained, Any], verb: BulkVerb, **changes: Any) -> BulkDocument:
    sent: SelectionRequest = call.body
    chosen = ExecutionFilter(
        status=sent.status,
        path=sent.path,
        labels=labels_in(sent.label),
        started_from_ms=ms_of(sent.started_from),
        started_before_ms=ms_of(sent.started_before),
        error=sent.error,
    )
    why = call.parameters
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


@routes("POST", f"{BULK}/cancel", "cancelExecutions", "operator")
async def cancel(call: Call[Explained, SelectionRequest]) -> BulkDocument:
    """Cancel executions, and those they have called."""
    return await _act(call, "cancel")


@routes("POST", f"{BULK}/pause", "pauseExecutions", "operator")
async def pause(call: Call[Explained, SelectionRequest]) -> BulkDocument:
    """Pause executions."""
    return await _act(call, "pause")


@routes("POST", f"{BULK}/resume", "resumeExecutions", "operator")
async def resume(call: Call[Explained, SelectionRequest]) -> BulkDocument:
    """Resume executions after a pause or a quarantine."""
    return await _act(call, "resume")


@routes("POST", f"{BULK}/retry", "retryExecutions", "operator", adds_work=True)
async def retry(call: Call[Explained, BulkRetryRequest]) -> BulkDocument:
    """Run failed executions again, each from the step run that failed."""
    return await _act(call, "retry", ctx=call.body.ctx, args=call.body.args)


@routes("POST", f"{BULK}/rerun", "rerunExecutions", "operator", adds_work=True)
async def rerun(call: Call[Explained, BulkRerunRequest]) -> BulkDocument:
    """Run ended executions again from one of their steps."""
    return await _act(call, "rerun", step=call.body.step, ctx=call.body.ctx, args=call.body.args)


@routes("POST", f"{BULK}/delete", "deleteExecutions", "admin")
async def delete(call: Call[Explained, SelectionRequest]) -> BulkDocument:
    """Delete ended executions."""
    return await _act(call, "delete")
