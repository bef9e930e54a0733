"""The tools that change something. Each takes a request id: a call repeated with it has no second effect."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeVar

from pydantic import Field

from noetl_stream.errors import UsageError
from noetl_stream.mcp.answers import ToolAnswer, part_of
from noetl_stream.mcp.reading import MAX_SOURCE, Version
from noetl_stream.mcp.tools import AgentCall, ExecutionId, Keys, OfChange, Tools
from noetl_stream.model.events import CancelRequested, CtxPatched, InterventionFact, SignalReceived
from noetl_stream.model.labels import MAX_KEY_CHARS, MAX_LABELS
from noetl_stream.model.priorities import HIGHEST_PRIORITY, LOWEST_PRIORITY
from noetl_stream.ports.operations.executions import ExecutionDocument, RerunOptions, Start

MAX_WAIT_S: Final = 50.0
"""The longest wait of a tool: clients give up after a minute."""

Wanted = TypeVar("Wanted", Start, RerunOptions)
WaitS = Annotated[
    float,
    Field(ge=0, le=MAX_WAIT_S, strict=False, description="Wait so many seconds for its end, before this answers."),
]

changing_tools = Tools()


class ToStart(OfChange):
    path: Annotated[str | None, Field(max_length=512, description="Of a registered playbook.")] = None
    version: Version = None
    playbook: Annotated[
        str | None,
        Field(max_length=MAX_SOURCE, description="A whole text, in place of a path: needs the role author."),
    ] = None
    workload: Annotated[Keys, Field(description="Input, merged deeply over the playbook's own.")]
    ctx: Annotated[Keys, Field(description="Set before the first step.")]
    labels: Annotated[
        dict[str, str | int | float | bool | None],
        Field(default_factory=dict, max_length=MAX_LABELS, description="Added to the playbook's own."),
    ]
    key: Annotated[str, Field(max_length=MAX_KEY_CHARS, description="Its business key, such as order=A-1005.")] = ""
    unique: Annotated[bool, Field(description="Answer with the execution that has the key, if there is one.")] = False
    priority: Annotated[
        int | None,
        Field(
            ge=LOWEST_PRIORITY,
            le=HIGHEST_PRIORITY,
            description="What waits in a pool comes from the highest. Default: the playbook's, else 5.",
        ),
    ] = None
    wait_s: WaitS = 0.0


@changing_tools("startExecution", "operator", changes=True, adds_work=True)
async def start(call: AgentCall, given: ToStart) -> ToolAnswer:
    """Start an execution.

    Of a registered playbook by path, or of a text that check_playbook has found ok. With wait_s the answer has the
    result of one that ends soon; else ask why, then get_result.
    """
    if (given.path is None) == (given.playbook is None):
        raise UsageError("one of path and playbook is needed", hint="list_playbooks shows the paths")
    if given.playbook is not None:
        call.require("author", "start a text that is not registered")
    begun = await call.operations.executions.start(_given_as(Start, given), call.by, call.ids)
    return await _started_answer(call, begun, given.wait_s)


class ToRerun(OfChange):
    execution_id: ExecutionId
    step: Annotated[
        str | None, Field(max_length=256, description="Where it begins; without it, at the run that failed.")
    ] = None
    step_run_id: Annotated[str | None, Field(max_length=128, description="Which run of the step.")] = None
    ctx: Annotated[Keys, Field(description="Keys of ctx that are set first.")]
    args: Annotated[dict[str, Any] | None, Field(description="In place of the arguments the step had.")] = None
    wait_s: WaitS = 0.0


@changing_tools("rerunExecution", "operator", changes=True, adds_work=True)
async def rerun(call: AgentCall, given: ToRerun) -> ToolAnswer:
    """Run an ended execution again from a step.

    A new execution with its own id: what ran before the step is reused, the step and what follows runs again, side
    effects too.
    """
    wanted = _given_as(RerunOptions, given)
    begun = await call.operations.executions.rerun(given.execution_id, wanted, call.by, call.ids)
    return await _started_answer(call, begun, given.wait_s)


class ToCompensate(OfChange):
    execution_id: ExecutionId
    wait_s: WaitS = 0.0


@changing_tools("compensateExecution", "operator", changes=True, adds_work=True, destructive=True)
async def compensate(call: AgentCall, given: ToCompensate) -> ToolAnswer:
    """Undo what is left to undo of an execution that failed or was cancelled.

    A new execution runs the compensations of its steps, the last that ended first. There is at most one.
    """
    wanted = RerunOptions(undoes=True, reason=given.reason)
    begun = await call.operations.executions.rerun(given.execution_id, wanted, call.by, call.ids)
    return await _started_answer(call, begun, given.wait_s)


class ToPatch(OfChange):
    execution_id: ExecutionId
    keys: Annotated[dict[str, Any], Field(min_length=1, description="Keys of ctx with their new values.")]
    merge: Annotated[bool, Field(description="Merge deeply; null deletes a key (RFC 7396).")] = False
    expected_version: Annotated[
        int | None, Field(ge=0, description="Only if ctx still has this version: then nobody's change is lost.")
    ] = None


@changing_tools("patchCtx", "operator", changes=True, destructive=True)
async def patch(call: AgentCall, given: ToPatch) -> ToolAnswer:
    """Change ctx of a running execution.

    What waits for those values goes on: why says which values would move it.
    """
    fact = CtxPatched(
        **_who_and_why(call, given), patch=given.keys, merge=given.merge, expected_version=given.expected_version
    )
    return await _ask(call, given.execution_id, fact)


class ToSignal(OfChange):
    execution_id: ExecutionId
    name: Annotated[str, Field(min_length=1, max_length=256, description="As why names it.")]
    payload: Annotated[Any, Field(description="The result of the wait.")] = None


@changing_tools("sendSignal", "operator", changes=True, adds_work=True)
async def signal(call: AgentCall, given: ToSignal) -> ToolAnswer:
    """Send a signal to an execution that waits for it.

    It ends the oldest wait for that name, or is kept for the next one.
    """
    fact = SignalReceived(**_who_and_why(call, given), signal=given.name, payload=given.payload)
    return await _ask(call, given.execution_id, fact)


class ToCancel(OfChange):
    execution_id: ExecutionId


@changing_tools("cancelExecution", "operator", changes=True, destructive=True)
async def cancel(call: AgentCall, given: ToCancel) -> ToolAnswer:
    """Cancel an execution, and those it has called.

    For good: running tasks are stopped.
    """
    return await _ask(call, given.execution_id, CancelRequested(**_who_and_why(call, given)))


def _given_as(kind: type[Wanted], given: OfChange) -> Wanted:
    """Makes a request from the arguments of a tool: each field is the argument of its name."""
    fields = set(kind.__struct_fields__) & set(type(given).model_fields)
    return kind(**{name: getattr(given, name) for name in fields})


async def _started_answer(call: AgentCall, begun: ExecutionDocument, wait_s: float) -> ToolAnswer:
    return part_of(await call.ended(begun.execution_id, wait_s) if wait_s else begun)


async def _ask(call: AgentCall, execution_id: str, fact: InterventionFact) -> ToolAnswer:
    return part_of(await call.operations.executions.ask(execution_id, fact))


def _who_and_why(call: AgentCall, given: OfChange) -> dict[str, Any]:
    return {"request_id": call.ids.request_id, "principal": call.by, "reason": given.reason}
