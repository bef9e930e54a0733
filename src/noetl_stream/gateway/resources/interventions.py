"""What is asked of an execution: tokens, signals, cancel, pause, resume; and to run a part of it again."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from noetl_stream.errors import UsageError
from noetl_stream.gateway.http.bodies import Keys, RequestModel, json_body
from noetl_stream.gateway.http.parameters import InPath, Intervention, WaitS
from noetl_stream.gateway.http.routes import Answer, AnyRoute, Call, Reply, Route
from noetl_stream.gateway.resources.executions import ONE, address_of, begun
from noetl_stream.model.events import (
    CancelRequested,
    InterventionFact,
    PauseRequested,
    ResumeRequested,
    SignalReceived,
    TokenInjected,
)
from noetl_stream.ports.operations.executions import AcceptedDocument, ExecutionDocument, RerunOptions


class TokenRequest(RequestModel):
    """A token to put in front of a step."""

    step: str
    args: Keys


class SignalRequest(RequestModel):
    """What a wait for the signal gives as its result."""

    payload: Any = None


class RerunRequest(RequestModel):
    """A new execution from one step: from its last run, or from `step_run_id`. `args` replace those it had."""

    step: str | None = None
    step_run_id: str | None = None
    ctx: Keys
    args: dict[str, Any] | None = None


class RetryRequest(RequestModel):
    """A new execution from the step run that failed, with changes if there are any."""

    ctx: Keys
    args: dict[str, Any] | None = None


class SignalAt(Intervention):
    name: Annotated[str, InPath(), Field(min_length=1, max_length=256, description="The signal's name.")]


class RunningAgain(Intervention):
    wait: WaitS = 0.0


def who_and_why(call: Call[Any, Any]) -> dict[str, Any]:
    """What every fact says that somebody asks for."""
    return {
        "request_id": call.ids.request_id,
        "principal": call.caller.principal,
        "reason": call.parameters.reason,
        "correlation_id": call.parameters.correlation_id,
    }


async def _ask(call: Call[Any, Any], fact: InterventionFact) -> Reply:
    execution_id = call.parameters.execution_id
    answer = await call.operations.executions.ask(execution_id, fact)
    return Reply(answer, 200 if answer.already else 202, {"Location": address_of(execution_id)})


async def inject(call: Call[Intervention, TokenRequest]) -> Reply:
    return await _ask(call, TokenInjected(**who_and_why(call), step=call.body.step, args=call.body.args))


async def signal(call: Call[SignalAt, SignalRequest]) -> Reply:
    return await _ask(call, SignalReceived(**who_and_why(call), signal=call.parameters.name, payload=call.body.payload))


async def cancel(call: Call[Intervention, None]) -> Reply:
    return await _ask(call, CancelRequested(**who_and_why(call)))


async def pause(call: Call[Intervention, None]) -> Reply:
    return await _ask(call, PauseRequested(**who_and_why(call)))


async def resume(call: Call[Intervention, None]) -> Reply:
    return await _ask(call, ResumeRequested(**who_and_why(call)))


async def _run_again(call: Call[RunningAgain, Any], wanted: RerunOptions) -> Reply:
    given = call.parameters
    wanted = wanted._replace(reason=given.reason, correlation_id=given.correlation_id)
    execution = await call.operations.executions.rerun(given.execution_id, wanted, call.caller.principal, call.ids)
    return await begun(call, execution, given.wait)


async def rerun(call: Call[RunningAgain, RerunRequest]) -> Reply:
    if call.body.step is None and call.body.step_run_id is None:
        raise UsageError("say from where: by step or by step_run_id", hint="`retry` goes on from the run that failed")
    return await _run_again(call, RerunOptions(**dict(call.body)))


async def retry(call: Call[RunningAgain, RetryRequest]) -> Reply:
    return await _run_again(call, RerunOptions(**dict(call.body)))


ASKED: Final = {
    200: Answer("It was so already", AcceptedDocument, ("Location",)),
    202: Answer("It is committed, and goes on", AcceptedDocument, ("Location",)),
}
AGAIN: Final = {
    200: Answer("It has ended within `wait`", ExecutionDocument, ("Location",)),
    202: Answer("It goes on", ExecutionDocument, ("Location",)),
}

INTERVENTION_ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route(
        "POST",
        f"{ONE}/tokens",
        "injectToken",
        "Put a token in front of a step",
        role="operator",
        handler=inject,
        answers=ASKED,
        parameters=Intervention,
        body=json_body(TokenRequest),
        refuses=("conflict",),
        adds_work=True,
    ),
    Route(
        "POST",
        f"{ONE}/signals/{{name}}",
        "sendSignal",
        "Send a signal to what waits for it",
        role="operator",
        handler=signal,
        answers=ASKED,
        parameters=SignalAt,
        body=json_body(SignalRequest, required=False),
        refuses=("conflict",),
        adds_work=True,
    ),
    Route(
        "POST",
        f"{ONE}/cancel",
        "cancelExecution",
        "Cancel it, and what it has called",
        role="operator",
        handler=cancel,
        answers=ASKED,
        parameters=Intervention,
        refuses=("conflict",),
    ),
    Route(
        "POST",
        f"{ONE}/pause",
        "pauseExecution",
        "Let nothing new begin",
        role="operator",
        handler=pause,
        answers=ASKED,
        parameters=Intervention,
        refuses=("conflict",),
    ),
    Route(
        "POST",
        f"{ONE}/resume",
        "resumeExecution",
        "Go on after a pause",
        role="operator",
        handler=resume,
        answers=ASKED,
        parameters=Intervention,
        refuses=("conflict",),
    ),
    Route(
        "POST",
        f"{ONE}/rerun",
        "rerunExecution",
        "Run an ended execution again from one of its steps",
        role="operator",
        handler=rerun,
        answers=AGAIN,
        parameters=RunningAgain,
        body=json_body(RerunRequest),
        refuses=("conflict",),
        adds_work=True,
    ),
    Route(
        "POST",
        f"{ONE}/retry",
        "retryExecution",
        "Run an ended execution again from the step run that failed",
        role="operator",
        handler=retry,
        answers=AGAIN,
        parameters=RunningAgain,
        body=json_body(RetryRequest, required=False),
        refuses=("conflict",),
        adds_work=True,
    ),
)
