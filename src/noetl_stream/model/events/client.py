"""Facts recorded for clients: requests to an execution (LANGUAGE §13)."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, cast

import msgspec

from noetl_stream.model.events.fact_parts import Fact, Kind, Origin, Parent, StartedBy, StartedByKind


class Rerun(msgspec.Struct, frozen=True, omit_defaults=True):
    """The point from which an ended execution, ``of``, runs again (LANGUAGE §9 *Rerun*).

    It is the last run of ``step``, or the named step run; with neither, a retry of the failed run. ``args`` replace
    those of its token; ``None`` keeps them. ``undoes``: nothing runs again; the original's work is undone.
    """

    of: str
    step: str | None = None
    step_run_id: str | None = None
    args: dict[str, Any] | None = None
    undoes: bool = False


class ExecutionRequested(Fact, frozen=True, tag="execution.requested"):
    """A request to run the playbook with this digest; ``parent`` is set if another execution makes it, ``origin`` if an
    aggregate does.

    ``rerun``: reuse the work of another run of the playbook; ``workload`` then overrides that run's. ``caller_span``:
    see :class:`noetl_stream.model.traces.Traceparent`; empty if the caller sent none. ``priority`` overrides the
    playbook's own; that of a calling execution does not. ``caller_keys`` are the keys whose slots the calling execution
    holds and shares, in its namespace; ``shared_keys`` those that namespaces share (LANGUAGE §15). ``digits_lost`` are
    the JSON pointers of numbers in the JSON text of the workload, or of the event, that no double can represent.
    ``labels`` are added to those of the playbook, and override them. ``key`` is the business key of the execution;
    ``unique``: the execution does not start if another one of the playbook holds the key. ``due`` is the time of the
    schedule's occurrence, its own or its caller's.
    """

    kind: ClassVar = Kind("playbook")

    request_id: str
    digest: str
    path: str = ""
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    principal: str = ""
    trace_id: str = ""
    parent: Parent | None = None
    rerun: Rerun | None = None
    reason: str = ""
    correlation_id: str = ""
    caller_span: str = ""
    priority: int | None = None
    origin: Origin | None = None
    shared_keys: list[str] = []
    digits_lost: list[str] = []
    caller_keys: list[str] = []
    labels: dict[str, Any] = {}
    key: str = ""
    unique: bool = False
    due: str = ""

    @property
    def started_by(self) -> StartedBy:
        """The origin of the request."""
        if self.parent is not None:
            return StartedBy("call", execution_id=self.parent.execution_id)
        if self.rerun is not None:
            return StartedBy("rerun", execution_id=self.rerun.of)
        if self.origin is not None:
            kind = cast(StartedByKind, self.origin.kind.lower())
            return StartedBy(kind, self.origin.path, self.origin.number)
        return StartedBy("client")


class RequestForm(NamedTuple):
    """The form of a request to an execution on HTTP, from which clients of a gateway and its route are made.

    Attributes:
        path: The address below that of the execution; a part in braces is a field of the fact.
        operation: The ``operationId`` of the route; empty for a route with a body and a handler of its own.
        summary: The summary of the route.
        body: The fields of the fact that are members of the body; empty if it has no body.
    """

    path: str
    operation: str = ""
    summary: str = ""
    body: tuple[str, ...] = ()


class ClientRequest(Fact, frozen=True):
    """Base of requests to an existing execution; ``digits_lost`` as in :class:`ExecutionRequested`."""

    form: ClassVar[RequestForm]

    request_id: str
    principal: str = ""
    reason: str = ""
    correlation_id: str = ""
    digits_lost: list[str] = []


class CtxPatched(ClientRequest, frozen=True, tag="ctx.patched"):
    """Keys of ``ctx`` set by a client (LANGUAGE §9): replaced, or merged if ``merge``, where ``null`` deletes.

    With ``expected_version`` the patch is rejected unless ``ctx`` last changed at that position.
    """

    kind: ClassVar = Kind("ctx", "success")
    form: ClassVar = RequestForm("ctx", body=("patch",))

    patch: dict[str, Any] = {}
    merge: bool = False
    expected_version: int | None = None


class TokenInjected(ClientRequest, frozen=True, tag="token.injected"):
    kind: ClassVar = Kind("token", through_halt=True)
    form: ClassVar = RequestForm("tokens", body=("step", "args"))

    step: str = ""
    args: dict[str, Any] = {}


class SignalReceived(ClientRequest, frozen=True, tag="signal.received"):
    kind: ClassVar = Kind("workflow", "success")
    form: ClassVar = RequestForm("signals/{signal}", body=("payload",))

    signal: str = ""
    payload: Any = None


class CancelRequested(ClientRequest, frozen=True, tag="execution.cancel_requested"):
    """The execution is to be cancelled; from here on nothing is routed, retried or patched (LANGUAGE §9), and with
    ``now`` nothing is undone either.
    """

    kind: ClassVar = Kind("workflow", through_halt=True)
    form: ClassVar = RequestForm("cancel", body=("now",))

    now: bool = False


class PauseRequested(ClientRequest, frozen=True, tag="execution.pause_requested"):
    """The execution is to pause: no command is issued until ``execution.resume_requested``."""

    kind: ClassVar = Kind("workflow", through_halt=True)
    form: ClassVar = RequestForm("pause", "pauseExecution", "Pause it: no step starts until it is resumed.")


class ResumeRequested(ClientRequest, frozen=True, tag="execution.resume_requested"):
    """The execution is to resume after a pause."""

    kind: ClassVar = Kind("workflow", through_halt=True)
    form: ClassVar = RequestForm("resume", "resumeExecution", "Resume it after a pause or a quarantine.")


class RetryNowRequested(ClientRequest, frozen=True, tag="execution.retry_now_requested"):
    """The waits of tasks for their next attempt are to end now (LANGUAGE §5)."""

    kind: ClassVar = Kind("workflow")
    form: ClassVar = RequestForm("retry-now", "retryNow", "Begin the next attempts of its tasks that wait for them.")


InterventionFact = (
    CtxPatched | TokenInjected | SignalReceived | CancelRequested | PauseRequested | ResumeRequested | RetryNowRequested
)
"""Requests to an existing execution."""

ClientFact = ExecutionRequested | InterventionFact
