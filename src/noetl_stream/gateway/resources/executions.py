"""``/api/v1/executions``: start, list, look."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import Field

from noetl_stream.concurrency import result_until
from noetl_stream.gateway.http.bodies import Keys, RequestModel, json_body
from noetl_stream.gateway.http.parameters import (
    ExecutionAt,
    Explained,
    InPath,
    Label,
    Limit,
    Moment,
    Paged,
    WaitS,
    labels_in,
)
from noetl_stream.gateway.http.routes import API, Answer, AnyRoute, Call, Reply, Route
from noetl_stream.model.status import ENDED, ExecutionStatus
from noetl_stream.ports.operations.executions import (
    EventPage,
    ExecutionDocument,
    ExecutionFilter,
    ExecutionPage,
    IterationPage,
    ResultDocument,
    Start,
    StepRunsDocument,
    WhyDocument,
)

EXECUTIONS: Final = f"{API}/executions"


class StartRequest(RequestModel):
    """What to run: exactly one of `path` (with or without `version`), `digest`, and `playbook`, a whole text."""

    path: str | None = None
    version: str | None = None
    digest: str | None = None
    playbook: str | None = None
    workload: Annotated[Keys, Field(description="Merged deeply over the playbook's own.")]
    ctx: Annotated[Keys, Field(description="Set before the first step.")]


class Starting(Explained):
    wait: WaitS = 0.0


class ExecutionQuery(ExecutionAt):
    wait: WaitS = 0.0


class ExecutionsQuery(Paged):
    status: Annotated[tuple[ExecutionStatus, ...], Field(description="Any of these.")] = ()
    path: Annotated[str | None, Field(description="Of this playbook, or of playbooks below it.")] = None
    label: tuple[Label, ...] = ()
    started_from: Moment | None = None
    started_before: Moment | None = None
    error: Annotated[str | None, Field(description="Words that the error has.", max_length=512)] = None


class StepRunAt(ExecutionAt, Paged):
    step_run_id: Annotated[str, InPath(), Field(max_length=128)]


class EventsFrom(ExecutionAt):
    after: Annotated[int, Field(ge=0, le=2**31 - 1, description="A position.")] = 0
    limit: Limit = 100


def address_of(execution_id: str) -> str:
    return f"{EXECUTIONS}/{execution_id}"


async def waited(call: Call[Any, Any], execution_id: str, wait_s: float) -> ExecutionDocument:
    """The execution when it has ended, the time is over, or the gateway ends."""
    executions = call.operations.executions
    if not wait_s:
        return await executions.get(execution_id)
    waited = await result_until(executions.wait(execution_id, wait_s), call.ending.wait())
    return waited if waited is not None else await executions.get(execution_id)


async def begun(call: Call[Any, Any], execution: ExecutionDocument, wait_s: float) -> Reply:
    """What has been started: 202 while it goes on, 200 when it has ended in time."""
    if wait_s:
        execution = await waited(call, execution.execution_id, wait_s)
    status = 200 if execution.status in ENDED else 202
    return Reply(execution, status, {"Location": address_of(execution.execution_id)})


async def start(call: Call[Starting, StartRequest]) -> Reply:
    if call.body.playbook is not None:
        call.require("author", "start a text that is not registered")
    given = call.parameters
    wanted = Start(**dict(call.body), reason=given.reason, correlation_id=given.correlation_id)
    started = await call.operations.executions.start(wanted, call.caller.principal, call.ids)
    return await begun(call, started, given.wait)


async def page(call: Call[ExecutionsQuery, None]) -> Reply:
    given = call.parameters
    chosen = ExecutionFilter(
        status=given.status,
        path=given.path,
        labels=labels_in(given.label),
        started_from_ms=_ms(given.started_from),
        started_before_ms=_ms(given.started_before),
        error=given.error,
    )
    return call.page(await call.operations.executions.page(chosen, given.limit, given.cursor))


async def get(call: Call[ExecutionQuery, None]) -> Reply:
    return Reply(await waited(call, call.parameters.execution_id, call.parameters.wait))


async def result(call: Call[ExecutionAt, None]) -> Reply:
    return Reply(await call.operations.executions.result(call.parameters.execution_id))


async def steps(call: Call[ExecutionAt, None]) -> Reply:
    return Reply(StepRunsDocument(await call.operations.executions.steps(call.parameters.execution_id)))


async def iterations(call: Call[StepRunAt, None]) -> Reply:
    at = call.parameters
    executions = call.operations.executions
    return call.page(await executions.iterations(at.execution_id, at.step_run_id, at.limit, at.cursor))


async def events(call: Call[EventsFrom, None]) -> Reply:
    at = call.parameters
    found = await call.operations.executions.events(at.execution_id, at.after, at.limit)
    last = found[-1].position if len(found) == at.limit else None
    return Reply(EventPage(found, last), headers=call.link_to(after=last))


async def why(call: Call[ExecutionAt, None]) -> Reply:
    return Reply(await call.operations.executions.why(call.parameters.execution_id))


async def delete(call: Call[ExecutionAt, None]) -> Reply:
    await call.operations.executions.delete(call.parameters.execution_id, call.caller.principal)
    return Reply(None, 204)


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)


ONE: Final = EXECUTIONS + "/{execution_id}"
PAGE: Final = ("Link",)

EXECUTION_ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route(
        "POST",
        EXECUTIONS,
        "startExecution",
        "Start an execution",
        role="operator",
        handler=start,
        answers={
            200: Answer("It has ended within `wait`", ExecutionDocument, ("Location",)),
            202: Answer("It goes on", ExecutionDocument, ("Location",)),
        },
        parameters=Starting,
        body=json_body(StartRequest),
        refuses=("playbook-refused", "not-found", "conflict"),
        adds_work=True,
        description="The request is committed when this answers. A text of your own, `playbook`, takes an author.",
    ),
    Route(
        "GET",
        EXECUTIONS,
        "listExecutions",
        "List executions, newest first",
        role="viewer",
        handler=page,
        answers={200: Answer("A page of them", ExecutionPage, PAGE)},
        parameters=ExecutionsQuery,
    ),
    Route(
        "GET",
        ONE,
        "getExecution",
        "Look at an execution",
        role="viewer",
        handler=get,
        answers={200: Answer("As it is, or as it is after `wait`", ExecutionDocument)},
        parameters=ExecutionQuery,
    ),
    Route(
        "GET",
        f"{ONE}/result",
        "getResult",
        "The result of an ended execution, whole",
        role="viewer",
        handler=result,
        answers={200: Answer("How it has ended", ResultDocument)},
        parameters=ExecutionAt,
        refuses=("conflict",),
    ),
    Route(
        "GET",
        f"{ONE}/steps",
        "listSteps",
        "Its step runs, in the order they began",
        role="viewer",
        handler=steps,
        answers={200: Answer("All of them", StepRunsDocument)},
        parameters=ExecutionAt,
    ),
    Route(
        "GET",
        f"{ONE}/steps/{{step_run_id}}/iterations",
        "listIterations",
        "The iterations of a loop step's run",
        role="viewer",
        handler=iterations,
        answers={200: Answer("A page of them", IterationPage, PAGE)},
        parameters=StepRunAt,
    ),
    Route(
        "GET",
        f"{ONE}/events",
        "listEvents",
        "Its journal, by position",
        role="viewer",
        handler=events,
        answers={200: Answer("A page of it", EventPage, PAGE)},
        parameters=EventsFrom,
    ),
    Route(
        "GET",
        f"{ONE}/why",
        "explainExecution",
        "Why it is where it is, and what would move it",
        role="viewer",
        handler=why,
        answers={200: Answer("In sentences", WhyDocument)},
        parameters=ExecutionAt,
    ),
    Route(
        "DELETE",
        ONE,
        "deleteExecution",
        "Forget an ended execution",
        role="admin",
        handler=delete,
        answers={204: Answer("It is forgotten")},
        parameters=ExecutionAt,
        refuses=("conflict",),
    ),
)
