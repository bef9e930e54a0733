"""``/api/v1/executions/{execution_id}/…``: what an execution looked like."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from noetl_stream.gateway.http.parameters import MAX_POSITION, Cursor, ExecutionAt, InPath, Limit, Moment, Paged, ms_of
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes
from noetl_stream.gateway.resources.logs import Iteration, Name
from noetl_stream.ports.operations.changes import KeyChangePage
from noetl_stream.ports.operations.diffs import MAX_ROWS, ExecutionDiffDocument, RowChoice
from noetl_stream.ports.operations.events import MAX_TEXT, EventField, EventFilter, EventPage
from noetl_stream.ports.operations.executions import Executions
from noetl_stream.ports.operations.graphs import ExecutionGraphDocument
from noetl_stream.ports.operations.timelines import (
    MAX_BUCKETS,
    MAX_WIDTH,
    IterationRange,
    IterationSummariesDocument,
    LoopStripDocument,
    SpanStatus,
    TimelineDocument,
    TimeRange,
)
from noetl_stream.ports.operations.verbs import API, address_of
from noetl_stream.ports.operations.views import ExecutionStateDocument, Views

routes = Routes()

ONE: Final = f"{API}/executions/{{execution_id}}"


SoFar = Annotated[
    bool,
    Field(
        description="Answer with what is read of a long journal by now, and read on: `position` says how far. "
        "Ask again while it is below that of the execution."
    ),
]


class GraphOf(ExecutionAt):
    so_far: SoFar = False


class StateAt(ExecutionAt):
    position: Annotated[
        int | None, Field(ge=1, le=MAX_POSITION, description="After the event there; as it is without it.")
    ] = None


class EventsOf(ExecutionAt):
    after: Annotated[int, Field(ge=0, le=MAX_POSITION, description="A position: those above it, the first ones.")] = 0
    before: Annotated[
        int | None,
        Field(ge=1, le=MAX_POSITION, description="A position: those below it; without `after` the last ones."),
    ] = None
    name: Annotated[tuple[Name, ...], Field(max_length=100, description="Only events of these names.")] = ()
    step: Annotated[Name | None, Field(description="Only events of this step.")] = None
    task: Annotated[Name | None, Field(description="Only events of this task.")] = None
    iteration: Iteration | None = None
    text: Annotated[
        str | None,
        Field(min_length=1, max_length=MAX_TEXT, description="What `data` contains, in any case; no pattern."),
    ] = None
    field: Annotated[
        tuple[EventField, ...], Field(max_length=100, description="Only these fields; all without it.")
    ] = ()
    limit: Limit = 100


@routes(*address_of(Executions.events), "listEvents", "viewer", {200: Answer("OK", EventPage, ("Link",))})
async def events(call: Call[EventsOf, None]) -> Reply:
    """List its journal, by position.

    Events are searched as they are shown, at most 10,000 for a page. A page ends after 1 MiB.
    """
    at = call.parameters
    chosen = EventFilter(
        after=at.after,
        before=at.before,
        names=at.name,
        step=at.step,
        task=at.task,
        iteration=at.iteration,
        text=at.text,
        fields=at.field,
    )
    page = await call.operations.views.events(at.execution_id, chosen, at.limit)
    return Reply(page, headers=call.link_to(after=page.next))


@routes(*address_of(Views.state), "getState", "viewer")
async def state(call: Call[StateAt, None]) -> ExecutionStateDocument:
    """Get its state at a position of its journal: tokens, `ctx`, results."""
    return await call.operations.views.state(call.parameters.execution_id, call.parameters.position)


@routes(*address_of(Views.graph), "getExecutionGraph", "viewer", refuses=("playbook-refused",))
async def graph(call: Call[GraphOf, None]) -> ExecutionGraphDocument:
    """Get the graph of its playbook, with what happened at each step and arc."""
    return await call.operations.views.graph(call.parameters.execution_id, call.parameters.so_far)


class DiffOf(ExecutionAt):
    other: Annotated[str, InPath(), Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="The id of the other.")]
    rows: Annotated[RowChoice, Field(description="All rows, or those that differ.")] = "different"
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="Maximum number of rows.")] = 50
    cursor: Cursor | None = None


@routes(*address_of(Views.diff), "diffExecutions", "viewer")
async def diff(call: Call[DiffOf, None]) -> ExecutionDiffDocument:
    """Compare it (A) with another (B): where they part first, and what differs."""
    given = call.parameters
    return await call.operations.views.diff(given.execution_id, given.other, given.rows, given.limit, given.cursor)


class TimelineOf(ExecutionAt):
    since: Annotated[Moment | None, Field(description="Where it begins; without it with the first event.")] = None
    until: Annotated[Moment | None, Field(description="Where it ends; without it with the last event.")] = None
    width: Annotated[int, Field(ge=1, le=MAX_WIDTH, description="Columns.")] = 500
    step: Annotated[Name | None, Field(description="Only this step.")] = None
    so_far: SoFar = False


Index = Annotated[int, Field(ge=0, le=MAX_POSITION)]


class LoopRange(ExecutionAt):
    step_run_id: Annotated[str, InPath(), Field(max_length=128)]
    first: Annotated[Index, Field(description="The index of an iteration.")] = 0
    end: Annotated[Index | None, Field(description="Iterations before this one; without it to the last.")] = None
    within: Annotated[Iteration | None, Field(description="The iteration around a loop inside a loop.")] = None


class StripOf(LoopRange):
    buckets: Annotated[int, Field(ge=1, le=MAX_BUCKETS)] = 200


class SummariesOf(LoopRange):
    status: Annotated[SpanStatus | None, Field(description="Only iterations with this status.")] = None
    limit: Limit = 100


@routes("GET", f"{ONE}/timeline", "getTimeline", "viewer")
async def timeline(call: Call[TimelineOf, None]) -> TimelineDocument:
    """Get what went on when: step runs, iterations, attempts, waits."""
    given = call.parameters
    wanted = TimeRange(ms_of(given.since), ms_of(given.until), given.width, given.step)
    return await call.operations.views.timeline(given.execution_id, wanted, given.so_far)


@routes("GET", f"{ONE}/steps/{{step_run_id}}/strip", "getStrip", "viewer")
async def strip(call: Call[StripOf, None]) -> LoopStripDocument:
    """Get the iterations of a loop by status, in buckets."""
    given = call.parameters
    chosen = IterationRange(given.first, given.end, given.within or ())
    return await call.operations.views.strip(given.execution_id, given.step_run_id, chosen, given.buckets)


SUMMARIES: Final = {200: Answer("OK", IterationSummariesDocument, ("Link",))}


@routes("GET", f"{ONE}/steps/{{step_run_id}}/iterations/summaries", "listIterationSummaries", "viewer", SUMMARIES)
async def summaries(call: Call[SummariesOf, None]) -> Reply:
    """List the iterations of a loop in a range, without their results."""
    given = call.parameters
    chosen = IterationRange(given.first, given.end, given.within or (), given.status)
    page = await call.operations.views.iterations(given.execution_id, given.step_run_id, chosen, given.limit)
    return Reply(page, headers=call.link_to(first=page.next))


class ChangesOf(ExecutionAt, Paged):
    key: Annotated[str | None, Field(min_length=1, max_length=1024, description="Only this key.")] = None


@routes(*address_of(Views.changes), "listCtxChanges", "viewer")
async def changes(call: Call[ChangesOf, None]) -> KeyChangePage:
    """List the changes of its `ctx` by key, with the values before and after."""
    given = call.parameters
    return await call.operations.views.changes(given.execution_id, given.key, given.limit, given.cursor)
