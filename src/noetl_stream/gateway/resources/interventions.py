"""Interventions in an execution: tokens, signals, cancel, pause, resume, rerun and retry; and ``/api/v1/bulk``: verbs
for many executions in one call, each with its own outcome.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, get_args

from pydantic import Field, create_model

from noetl_stream.errors import UsageError
from noetl_stream.gateway.http import inputs
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes, field_of, value_of
from noetl_stream.gateway.resources.executions import EXECUTIONS, STARTED, begun, location
from noetl_stream.model import events as facts
from noetl_stream.model.rights import Role
from noetl_stream.ports.operations.executions import AcceptedDocument, Executions, RerunOptions
from noetl_stream.ports.operations.selections import MAX_SELECTED, BulkDocument, BulkOrder, BulkVerb
from noetl_stream.ports.operations.verbs import API, arguments_of, parameters_of

ONE: Final = EXECUTIONS + "/{execution_id}"
ACCEPTED: Final = {
    200: Answer("It was so already", AcceptedDocument, ("Location",)),
    202: Answer("It is committed", AcceptedDocument, ("Location",)),
}
CONFLICT: Final = ("conflict",)

routes = Routes()


class TokenRequest(inputs.RequestModel):
    """A token to put in front of a step."""

    step: str
    args: inputs.Keys


class SignalRequest(inputs.RequestModel):
    """What a wait for the signal gives as its result."""

    payload: Any = None


class RerunRequest(inputs.RequestModel):
    """A new execution from one step: from its last run, or from `step_run_id`. `args` replace those it had."""

    step: str | None = None
    step_run_id: str | None = None
    ctx: inputs.Keys
    args: dict[str, Any] | None = None
    priority: inputs.PriorityKept = None


class RetryRequest(inputs.RequestModel):
    """A new execution from the step run that failed, with changes if there are any."""

    ctx: inputs.Keys
    args: dict[str, Any] | None = None
    priority: inputs.PriorityKept = None


class CancelRequest(inputs.RequestModel):
    """`now`: it ends without undoing anything more, which needs a reason."""

    now: bool = False


class SignalAt(inputs.Intervention):
    name: Annotated[str, inputs.InPath(), Field(min_length=1, max_length=256, description="The signal's name.")]


class RunningAgain(inputs.Intervention):
    wait: inputs.WaitS = 0.0


def who_and_why(call: Call[Any, Any]) -> dict[str, Any]:
    """The fields of every requested fact."""
    return {
        "request_id": call.ids.request_id,
        "principal": call.caller.principal,
        "reason": call.parameters.reason,
        "correlation_id": call.parameters.correlation_id,
    }


async def _ask(call: Call[Any, Any], fact: facts.InterventionFact) -> Reply:
    execution_id = call.parameters.execution_id
    answer = await call.operations.executions.ask(execution_id, fact)
    return Reply(answer, 200 if answer.already else 202, location(execution_id))


TOKEN: Final = inputs.numbered_body(TokenRequest)


@routes("POST", f"{ONE}/tokens", "injectToken", "operator", ACCEPTED, TOKEN, refuses=CONFLICT, adds_work=True)
async def inject(call: Call[inputs.Intervention, inputs.Numbered[TokenRequest]]) -> Reply:
    """Inject a token at a step."""
    given, lost = call.body
    fact = facts.TokenInjected(**who_and_why(call), step=given.step, args=given.args, digits_lost=lost)
    return await _ask(call, fact)


SIGNAL: Final = inputs.numbered_body(SignalRequest, required=False)


@routes("POST", f"{ONE}/signals/{{name}}", "sendSignal", "operator", ACCEPTED, SIGNAL, refuses=CONFLICT, adds_work=True)
async def signal(call: Call[SignalAt, inputs.Numbered[SignalRequest]]) -> Reply:
    """Send a signal to the waits for it."""
    given, lost = call.body
    fact = facts.SignalReceived(
        **who_and_why(call), signal=call.parameters.name, payload=given.payload, digits_lost=lost
    )
    return await _ask(call, fact)


CANCEL: Final = inputs.json_body(CancelRequest, required=False)


@routes("POST", f"{ONE}/cancel", "cancelExecution", "operator", ACCEPTED, CANCEL, refuses=CONFLICT)
async def cancel(call: Call[inputs.Intervention, CancelRequest]) -> Reply:
    """Cancel it, and the executions it has called."""
    return await _ask(call, facts.CancelRequested(**who_and_why(call), now=call.body.now))


def serve(kind: type[facts.InterventionFact]) -> None:
    """Makes the route of a request without a body."""

    async def ask(call: Call[inputs.Intervention, None]) -> Reply:
        return await _ask(call, kind(**who_and_why(call)))

    form = kind.form
    ask.__doc__ = form.summary
    routes("POST", f"{ONE}/{form.path}", form.operation, "operator", ACCEPTED, refuses=CONFLICT)(ask)


for _kind in get_args(facts.InterventionFact):
    if _kind.form.operation:
        serve(_kind)


async def _rerun(call: Call[RunningAgain, Any]) -> Reply:
    given = call.parameters
    wanted = RerunOptions(**dict(call.body), reason=given.reason, correlation_id=given.correlation_id)
    execution = await call.operations.executions.rerun(given.execution_id, wanted, call.caller.principal, call.ids)
    return await begun(call, execution, given.wait)


@routes("POST", f"{ONE}/rerun", "rerunExecution", "operator", STARTED, refuses=CONFLICT, adds_work=True)
async def rerun(call: Call[RunningAgain, RerunRequest]) -> Reply:
    """Run an ended execution again from one of its steps."""
    if call.body.step is None and call.body.step_run_id is None:
        raise UsageError("name a step or a step_run_id to start from", hint="`retry` starts from the run that failed")
    return await _rerun(call)


RETRY: Final = inputs.json_body(RetryRequest, required=False)


@routes("POST", f"{ONE}/retry", "retryExecution", "operator", STARTED, RETRY, refuses=CONFLICT, adds_work=True)
async def retry(call: Call[RunningAgain, RetryRequest]) -> Reply:
    """Run an ended execution again from the step run that failed."""
    return await _rerun(call)


@routes("POST", f"{ONE}/compensate", "compensateExecution", "operator", STARTED, refuses=CONFLICT, adds_work=True)
async def compensate(call: Call[RunningAgain, None]) -> Reply:
    """Undo what is left to undo of an execution that failed or was cancelled, in a new one."""
    given = call.parameters
    wanted = RerunOptions(undoes=True, reason=given.reason, correlation_id=given.correlation_id)
    execution = await call.operations.executions.rerun(given.execution_id, wanted, call.caller.principal, call.ids)
    return await begun(call, execution, given.wait)


FILTER: Final = [one for one in parameters_of(Executions.page) if one.argument == "chosen"]
"""The fields by which executions are found: the parameters of a list."""

_FIELDS: Final[dict[str, Any]] = {one.name: field_of(one) for one in FILTER}
Filtered: Any = create_model("Filtered", __base__=inputs.RequestModel, **_FIELDS)


class SelectionRequest(Filtered):  # type: ignore[misc]  # made of the table
    """Which executions: `ids`, or `limit` of those that match all of the others, newest first. Without `status` those
    that the verb is for. `dry_run`: only say what it would be done to.
    """

    ids: Annotated[tuple[Annotated[str, Field(max_length=64)], ...] | None, Field(max_length=MAX_SELECTED)] = None
    dry_run: bool = False
    limit: Annotated[int, Field(ge=1, le=MAX_SELECTED)] = 100
    cursor: inputs.Cursor | None = None


class BulkRetryRequest(SelectionRequest):
    """Which executions, and changes if there are any."""

    ctx: inputs.Keys
    args: dict[str, Any] | None = None
    priority: inputs.PriorityKept = None


class BulkRerunRequest(BulkRetryRequest):
    """Which executions, and the step from whose last run each starts again."""

    step: str


def _serve(verb: BulkVerb, role: Role, sent: type[SelectionRequest], summary: str) -> None:
    async def act(call: Call[inputs.Explained, Any]) -> BulkDocument:
        sent, why = call.body, call.parameters
        chosen = arguments_of(FILTER, lambda one: value_of(one, getattr(sent, one.name)))["chosen"]
        changes = sent.model_dump(exclude=set(SelectionRequest.model_fields))
        options = RerunOptions(**changes, reason=why.reason, correlation_id=why.correlation_id)
        page = {"dry_run": sent.dry_run, "limit": sent.limit, "cursor": sent.cursor}
        wanted = BulkOrder(verb, sent.ids, chosen, options=options, **page)
        return await call.operations.selections.act(wanted, call.caller.principal, call.ids)

    act.__doc__ = summary
    adds_work = issubclass(sent, BulkRetryRequest)
    routes("POST", f"{API}/bulk/{verb}", f"{verb}Executions", role, body=inputs.json_body(sent), adds_work=adds_work)(
        act
    )


_serve("cancel", "operator", SelectionRequest, "Cancel executions, and those they have called.")
_serve("pause", "operator", SelectionRequest, "Pause executions.")
_serve("resume", "operator", SelectionRequest, "Resume executions after a pause or a quarantine.")
_serve("retry", "operator", BulkRetryRequest, "Run failed executions again, each from the step run that failed.")
_serve("rerun", "operator", BulkRerunRequest, "Run ended executions again from one of their steps.")
_serve("delete", "admin", SelectionRequest, "Delete ended executions.")
