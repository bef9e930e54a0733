"""Shapes of what is read and written of executions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from noetl_stream.gateway.documents.common import Document, ErrorInfo, Event, Next, Time
from noetl_stream.gateway.http.bodies import RequestModel

RunStatus = Literal["waiting", "running", "done", "failed", "cancelled"]
Status = Literal["pending", "running", "waiting", "paused", "completed", "failed", "cancelled", "quarantined"]


Keys = Annotated[dict[str, Any], Field(default_factory=dict)]


class StartRequest(RequestModel):
    """What to run: exactly one of `path` (with or without `version`), `digest`, and `playbook`, a whole text."""

    path: str | None = None
    version: str | None = None
    digest: str | None = None
    playbook: str | None = None
    workload: Annotated[Keys, Field(description="Merged deeply over the playbook's own.")]
    ctx: Annotated[Keys, Field(description="Set before the first step.")]


class ListedExecution(Document):
    """An execution in a list."""

    execution_id: str
    path: str
    version: str | None
    digest: str
    status: Status
    started: Time
    updated: Time
    finished: Time | None
    duration_s: float | None
    labels: dict[str, Any]
    error: ErrorInfo | None


class ExecutionPage(Document):
    items: list[ListedExecution]
    next: Next


class ParentExecution(Document):
    """Which step run of which execution has called this one."""

    execution_id: str
    step_run_id: str


class StepSummary(Document):
    """All runs of a step together."""

    step: str
    runs: int
    status: RunStatus
    duration_s: float
    retries: int


class Wait(Document):
    """Something it waits for. `until`: when that ends by itself."""

    step: str
    task: str | None
    iteration: list[int]
    what: Annotated[str, Field(alias="for")]
    until: Time | None


class Execution(ListedExecution):
    """An execution. A `result` that is kept by reference is `{"$reference": …}`: `…/result` has it. `steps` and `waits`
    are null where the journal is long: `…/steps` and `…/why` have them.
    """

    result: Any
    ctx: dict[str, Any]
    ctx_version: int
    position: int
    discarded_tokens: int
    trace_id: str
    principal: str
    parent: ParentExecution | None
    rerun_of: str | None
    steps: list[StepSummary] | None
    waits: list[Wait] | None


class Result(Document):
    """How an execution has ended. A result over 16 MiB stays `{"$reference": …}`."""

    execution_id: str
    status: Status
    result: Any
    error: ErrorInfo | None


class Token(Document):
    """What has brought a step to run."""

    token_id: str
    cause: Literal["start", "arc", "join", "injected", "rerun"]
    args: dict[str, Any]
    from_step: str | None
    from_step_run_id: str | None


class LoopCounts(Document):
    count: int
    ok: int
    failed: int
    skipped: int


class StepRun(Document):
    """One run of a step. A `result` that is long or kept elsewhere is `{"$large": …}` or `{"$reference": …}`."""

    step_run_id: str
    step: str
    token: Token
    status: RunStatus
    claimed: Time
    started: Time | None
    finished: Time | None
    duration_s: float | None
    worker: str
    attempts: int
    retries: int
    loop: LoopCounts | None
    result: Any
    error: ErrorInfo | None


class StepRuns(Document):
    items: list[StepRun]


class Iteration(Document):
    """One iteration of a loop. `path`: its index, in each level of nested loops."""

    path: list[int]
    status: RunStatus
    started: Time | None
    finished: Time | None
    worker: str
    attempts: int
    result: Any
    error: ErrorInfo | None


class IterationPage(Document):
    items: list[Iteration]
    next: Next


class EventPage(Document):
    """Entries by position. `next` is the `after` of the page after this one."""

    items: list[Event]
    next: int | None


class CtxChange(Document):
    """One change of `ctx`: by whom and why if from outside, by which step and task if from within."""

    position: int
    at: Time
    event: str
    keys: list[str]
    principal: str
    reason: str
    correlation_id: str
    step: str | None
    step_run_id: str | None
    task: str | None


class Ctx(Document):
    """`version` is the position of the last change: what If-Match expects, in quotes."""

    ctx: dict[str, Any]
    version: int
    history: list[CtxChange]


class Accepted(Document):
    """Committed, at this position of the journal. `already`: it was so before."""

    execution_id: str
    position: int | None = None
    already: bool = False


class Reason(Document):
    """`kind` is stable; `sentence` says what is, `moves` what would move it."""

    kind: str
    sentence: str
    moves: str
    since: Time | None
    until: Time | None
    step: str | None
    task: str | None
    iteration: list[int]
    details: dict[str, Any]


class Why(Document):
    """Why an execution is where it is. `more` counts reasons that are left out."""

    execution_id: str
    status: Status
    summary: str
    since: Time
    reasons: list[Reason]
    more: int


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


class Variable(Document):
    value: Any


class Variables(Document):
    """`ctx`, as older clients read it."""

    execution_id: str
    variables: dict[str, Variable]
    count: int


class OneVariable(Document):
    execution_id: str
    var_name: str
    value: Any


class VariablesRequest(RequestModel):
    """Keys of `ctx` to set, as older clients say it; `var_type` and `source_step` mean nothing any more."""

    variables: dict[str, Any]
    var_type: str = "user_defined"
    source_step: str | None = None


class VariablesSet(Document):
    execution_id: str
    variables_set: int
    var_names: list[str]
