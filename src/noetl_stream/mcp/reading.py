"""The tools that change nothing."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, Field

from noetl_stream.errors import NotFound, UsageError
from noetl_stream.mcp.answers import ToolAnswer, list_answer, part_answer
from noetl_stream.mcp.tools import AgentCall, Arguments, ExecutionId, OfList, OfPart, Tools
from noetl_stream.model.labels import MAX_KEY_CHARS
from noetl_stream.model.status import ExecutionStatus
from noetl_stream.ports.operations.executions import Executions, StepRunRange
from noetl_stream.ports.operations.playbooks import Playbooks
from noetl_stream.ports.operations.reading.diffs import MAX_ROWS
from noetl_stream.ports.operations.reading.events import EVENT_FIELDS, MAX_TEXT, EventField, EventFilter
from noetl_stream.ports.operations.verbs import plain

MAX_POSITION: Final = 2**31 - 1
MAX_SOURCE: Final = 1024 * 1024

WITHOUT_PAYLOADS: Final[tuple[EventField, ...]] = (
    *("position", "ts", "name", "status", "step", "step_run_id", "task", "attempt", "iteration", "actor"),
)
"""The fields of events that ``list_events`` shows."""

WHOLE_EVENT: Final[tuple[EventField, ...]] = (*EVENT_FIELDS, "step")

PlaybookPath = Annotated[str, Field(min_length=1, max_length=512, description="Of a registered playbook.")]
Version = Annotated[str | None, Field(max_length=256, description="A version or revision; the latest without it.")]
Position = Annotated[int, Field(ge=1, le=MAX_POSITION, description="Of the event in the journal.")]
Moment = Annotated[AwareDatetime | None, Field(strict=False, description="ISO 8601 with its zone.")]

reading_tools = Tools()


@reading_tools.asks("playbooks", Playbooks.schema)
def get_schema(given: OfPart) -> None:
    """Get the JSON Schema of playbooks.

    What may stand in a playbook, with the tool kinds installed here. Read it before you write one; the parts that are
    cut have pointers.
    """


class PlaybooksWanted(OfList):
    prefix: Annotated[str, Field(max_length=256, description="What the path begins with.")] = ""


@reading_tools.asks("playbooks", Playbooks.page)
def list_playbooks(given: PlaybooksWanted) -> None:
    """List registered playbooks.

    By path, the latest version of each, without its text.
    """


class TextGiven(OfPart):
    playbook: Annotated[str, Field(min_length=1, max_length=MAX_SOURCE, description="The whole text, as YAML.")]


@reading_tools("checkPlaybook")
async def check_playbook(call: AgentCall, given: TextGiven) -> ToolAnswer:
    """Check a draft of a playbook.

    Nothing is stored or started. Each diagnostic has its line, what is wrong, and a hint: correct the draft and check
    it again until ok is true.
    """
    checked = await call.operations.playbooks.check(given.playbook.encode(), "playbook")
    return await part_answer(checked, given.pointer, given.cursor)


class PlaybookWanted(OfPart):
    path: PlaybookPath
    version: Version = None
    compiled: Annotated[bool, Field(description="Also the plan it compiles to: long.")] = False


@reading_tools("getPlaybook")
async def explain_playbook(call: AgentCall, given: PlaybookWanted) -> ToolAnswer:
    """Explain a registered playbook.

    Its text, and its graph: steps with their tasks, arcs with their guards.
    """
    playbooks = call.operations.playbooks
    found: dict[str, Any] = plain(await playbooks.get(given.path, given.version))
    found["graph"] = plain(await playbooks.graph(given.path, given.version))
    if given.compiled:
        found["compiled"] = await playbooks.plan(given.path, given.version)
    return await part_answer(found, given.pointer, given.cursor)


class ExecutionsWanted(OfList):
    status: Annotated[list[ExecutionStatus], Field(default_factory=list, max_length=20, description="Any of these.")]
    path: Annotated[
        str | None, Field(max_length=512, description="Of this playbook, or of playbooks below this path.")
    ] = None
    labels: Annotated[dict[str, str], Field(default_factory=dict, description="All of them must hold.")]
    key: Annotated[str | None, Field(max_length=MAX_KEY_CHARS, description="Its business key.")] = None
    inputs: Annotated[
        dict[str, str], Field(default_factory=dict, description="Of its start, by path: order.id. All must hold.")
    ]
    failed_step: Annotated[str | None, Field(max_length=256, description="The step that failed.")] = None
    worker: Annotated[str | None, Field(max_length=64, description="A worker that ran one of its steps.")] = None
    longer_than_s: Annotated[float | None, Field(ge=1, description="Ended, after at least so many seconds.")] = None
    due: Annotated[
        str | None, Field(max_length=64, description="Due then, by its schedule: 2026-12-20, 2026-12-01..2026-12-20.")
    ] = None
    started_from: Moment = None
    started_before: Moment = None
    error: Annotated[str | None, Field(max_length=512, description="Words that the error has.")] = None


@reading_tools.asks("executions", Executions.page)
def list_executions(given: ExecutionsWanted) -> None:
    """List executions.

    Newest first, with status and error. Of one that failed or does not go on, ask why.
    """


class ExecutionWanted(OfPart):
    execution_id: ExecutionId


@reading_tools.asks("executions", Executions.why)
def why(given: ExecutionWanted) -> None:
    """Explain why an execution is where it is.

    The first to ask about any execution: why it failed, or what it waits for and what would move it, with step, task
    and times.
    """


class EventsWanted(Arguments):
    execution_id: ExecutionId
    limit: Annotated[int, Field(ge=1, le=200, description="Events at most.")] = 50
    cursor: Annotated[str | None, Field(pattern="^[0-9]{1,10}$", description="`next` of the answer before.")] = None
    names: Annotated[
        list[str], Field(default_factory=list, max_length=50, description='Any of these, such as "task.failed".')
    ]
    step: Annotated[str | None, Field(max_length=256)] = None
    task: Annotated[str | None, Field(max_length=256)] = None
    text: Annotated[str | None, Field(min_length=1, max_length=MAX_TEXT, description="In the payload.")] = None


@reading_tools("listEvents")
async def list_events(call: AgentCall, given: EventsWanted) -> ToolAnswer:
    """List the events of an execution.

    By position, without their payloads: get_event has one whole. A page may be empty and not the last.
    """
    chosen = EventFilter(
        after=int(given.cursor or 0),
        names=tuple(given.names),
        step=given.step,
        task=given.task,
        text=given.text,
        fields=WITHOUT_PAYLOADS,
    )

    events = partial(call.operations.views.events, given.execution_id, chosen)
    return await list_answer(events, given.limit)


class EventWanted(ExecutionWanted):
    position: Position


@reading_tools("listEvents")
async def get_event(call: AgentCall, given: EventWanted) -> ToolAnswer:
    """Get one event of an execution, with its payload."""
    chosen = EventFilter(after=given.position - 1, fields=WHOLE_EVENT)
    page = await call.operations.views.events(given.execution_id, chosen, 1)
    if not page.items or page.items[0].position != given.position:
        raise NotFound(f"{given.execution_id} has no event {given.position}", hint="list_events shows the positions")
    return await part_answer(page.items[0], given.pointer, given.cursor)


class ResultWanted(ExecutionWanted):
    step: Annotated[
        str | None, Field(max_length=256, description="The result of the last run of this step, in place of the whole.")
    ] = None
    step_run_id: Annotated[str | None, Field(max_length=128, description="Of this step run.")] = None


@reading_tools("getResult")
async def get_result(call: AgentCall, given: ResultWanted) -> ToolAnswer:
    """Get a result.

    Of an execution that has ended: its status, result and error; or of one of its steps. Of a large result, ask for
    parts by pointer.
    """
    executions = call.operations.executions
    step_run_id = given.step_run_id
    if given.step is not None:
        if step_run_id is not None:
            raise UsageError("a step and a step run are given", hint="give one of step and step_run_id")
        step_run_id = await _last_run(call, given.execution_id, given.step)
    if step_run_id is not None:
        return await part_answer(
            await executions.run_result(given.execution_id, step_run_id), given.pointer, given.cursor
        )
    return await part_answer(await executions.result(given.execution_id), given.pointer, given.cursor)


class Compared(OfPart):
    execution_id: ExecutionId
    other: ExecutionId
    rows_after: Annotated[
        str | None,
        Field(max_length=4096, description='The further step runs: "next" within data of the answer before.'),
    ] = None


@reading_tools("diffExecutions")
async def diff_executions(call: AgentCall, given: Compared) -> ToolAnswer:
    """Compare two executions.

    Where they part first, and what differs in workload, steps, ctx and results: for one that failed beside one that
    did not.
    """
    found = await call.operations.views.diff(given.execution_id, given.other, "different", MAX_ROWS, given.rows_after)
    return await part_answer(found, given.pointer, given.cursor)


async def _last_run(call: AgentCall, execution_id: str, step: str) -> str:
    executions = call.operations.executions
    page = await executions.runs(execution_id, StepRunRange(0, 1, step))
    count = page.count or 0
    if count > 1:
        page = await executions.runs(execution_id, StepRunRange(count - 1, 1, step))
    if not page.items:
        raise NotFound(f"step {step!r} of {execution_id} has not run", hint="list_events shows which steps have")
    return page.items[-1].step_run_id
