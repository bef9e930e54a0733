"""The documents of the HTTP API, as msgspec structs. Made by scripts/client_code.py: do not edit."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from noetl_stream_client.open_values import AnyText


class Document(Struct, frozen=True, kw_only=True):
    """Base of what a gateway answers. Keys that it does not know are ignored."""


class Accepted(Document, frozen=True, kw_only=True):
    """Committed, at this position of the journal. `already`: it was so before."""

    execution_id: str
    position: int | None = None
    already: bool = False


class Activity(Document, frozen=True, kw_only=True):
    """How many with this status were going on, as `[column, columns, count]` wherever any were."""

    status: Literal["cancelled", "done", "failed", "reused", "running", "skipped", "waiting"]
    columns: list[list[int]]


class ApiToken(Document, frozen=True, kw_only=True):
    """What may be shown of a token; `last_used` is exact to the minute."""

    id: str
    name: str
    role: Literal["admin", "author", "operator", "viewer"]
    paths: list[str]
    created: datetime
    created_by: str
    expires: datetime | None
    last_used: datetime | None
    revoked: datetime | None
    revoked_by: str | None


class ApiTokens(Document, frozen=True, kw_only=True):
    items: list[ApiToken]


class Arc(Document, frozen=True, kw_only=True):
    """An arc; `when` is null without a guard. `index` is its place among those of its step.

    `kind` is `always` (`is_else`: if none before it fires), `guarded`, `failure` if it fires only after one, or
    `never` if in no run.
    """

    from_: str = field(name="from")
    to: str
    when: str | None
    kind: str
    is_else: bool
    index: int
    line: int


class ArcActivity(Document, frozen=True, kw_only=True):
    """How often an arc fired, and how often it did not when the arcs of its step were chosen."""

    from_: str = field(name="from")
    to: str
    index: int
    fired: int
    skipped: int
    last: ArcDecision | None


class ArcDecision(Document, frozen=True, kw_only=True):
    """The last time that the arcs of a step were chosen. `held` is null for a guard not evaluated. `guard` has what
    it read then; null without a guard, or if too much would have to be read for it.
    """

    position: int
    step_run_id: str
    fired: bool
    held: bool | None
    guard: Guard | None


class AuditCheck(Document, frozen=True, kw_only=True):
    """How many calls and answers of the audit were `checked`, and what is wrong. `unchained` are from a release
    without chains: nothing shows whether they were changed.
    """

    checked: int
    unchained: int
    faults: list[AuditFault]
    next: str | None


class AuditEntry(Document, frozen=True, kw_only=True):
    """A call that changed something, or was refused. `status` is null while it is under way, or if the gateway died
    meanwhile. `reason` is the caller's, or why it was refused, or the kind of its problem. `left_out` is how many
    more refusals of this caller the entry stands for. `method`, `role` and `remote` are empty where it was done
    without a gateway.
    """

    number: int
    at: datetime
    principal: str
    role: str
    method: str
    operation: str
    target: str
    correlation_id: str
    remote: str
    idempotency_key: str
    status: int | None
    reason: str
    made: str
    left_out: int


class AuditFault(Document, frozen=True, kw_only=True):
    """What is wrong at an entry of the audit, or with its answer. What is `missing` stood before or after it."""

    number: int
    part: Literal["answer", "call"]
    fault: Literal["changed", "inserted", "missing"]
    says: str


class AuditPage(Document, frozen=True, kw_only=True):
    """Newest first."""

    items: list[AuditEntry]
    next: str | None


class AwaitedChild(Document, frozen=True, kw_only=True):
    """A called execution; `status` is null where it was not asked for."""

    execution_id: str
    path: str
    status: str | None


class AwaitedJoin(Document, frozen=True, kw_only=True):
    """The steps whose tokens have `arrived` at a join, and what can still reach it."""

    tokens: Literal["all", "any"] | int | None
    arrived: list[str]
    coming: list[str]


class AwaitedPool(Document, frozen=True, kw_only=True):
    """The workers of the pool of a command, how many commands are `queued` there, and how many of them are `ahead`
    with a higher `priority` than its own; null where it was not asked for.
    """

    pool: str
    workers: int | None = None
    slots: int | None = None
    busy: int | None = None
    queued: int | None = None
    priority: int | None = None
    ahead: int | None = None


class AwaitedSlot(Document, frozen=True, kw_only=True):
    """A slot of a key in a `namespace` that is waited for. Only `why` gives more: its `place` among those that wait,
    how many these are, how many hold the key, and the first of them that the caller may see.
    """

    key: str
    namespace: str = ""
    place: int | None = None
    queued: int | None = None
    held: int | None = None
    concurrency: int | None = None
    next_at: datetime | None = None
    catching_up: bool = False
    holders: list[Slot] = field(default_factory=list)


class Backfill(Document, frozen=True, kw_only=True):
    """A backfill under way. `next`: the time of its next occurrence; `left` are to come."""

    next: datetime
    before: datetime
    overlap: Literal["allow", "cancel", "queue_all", "queue_one", "skip", "terminate"]
    left: int


class Backfilled(Document, frozen=True, kw_only=True):
    """`occurrences` are in the range; each is in the history once it is reached."""

    path: str
    occurrences: int


class Bulk(Document, frozen=True, kw_only=True):
    """What became of each, in the order of the ids or of the list. `counts` are by outcome."""

    items: list[BulkItem]
    counts: dict[str, int]
    next: str | None


class BulkItem(Document, frozen=True, kw_only=True):
    """What became of one execution. `outcome`: it `would` be done to it or would be `skipped` (a dry run); it is
    `done`, was so `already`, was `refused`, or is `left`, since time ran out. `path` and `status` are those it
    had before, `position` is where its journal has the request, `made` the new execution of a retry or rerun,
    `detail` why not, `hint` what to do about it.
    """

    execution_id: str
    outcome: Literal["already", "done", "left", "refused", "skipped", "would"]
    path: str | None = None
    status: (
        Literal[
            "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
        ]
        | None
    ) = None
    position: int | None = None
    made: str | None = None
    detail: str | None = None
    hint: str | None = None


class Bundle(Document, frozen=True, kw_only=True):
    """A stored bundle: the Python packages of a project. `name` is what playbooks have as `bundle`."""

    name: str
    files: int
    bytes: int


class Call(Document, frozen=True, kw_only=True):
    """An execution that a step run has called, in one of its iterations. `status` is null until it has begun, and
    once it is deleted.
    """

    execution_id: str
    path: str
    status: (
        Literal[
            "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
        ]
        | None
    )
    step_run_id: str
    iteration: list[int]


class CallPage(Document, frozen=True, kw_only=True):
    """In the order in which they were called."""

    items: list[Call]
    next: str | None


class Caller(Document, frozen=True, kw_only=True):
    """`paths`: the playbooks it may see, with all below them; empty: all. `operations`: those its role allows.
    `expires`: when its browser session or API token ends; null if it has no end that the gateway knows.
    """

    principal: str
    role: Literal["admin", "author", "operator", "viewer"]
    paths: list[str]
    operations: list[str]
    expires: datetime | None


class ChangedArc(Document, frozen=True, kw_only=True):
    """`change` is `added`, `removed` or `changed`. `was`: the `when` of the first text; both are null without a
    guard.
    """

    from_: str = field(name="from")
    to: str
    change: Literal["added", "changed", "removed"]
    when: str | None
    was: str | None


class ChangedNames(Document, frozen=True, kw_only=True):
    """Names that only the second text has, only the first has, and that mean something else in the second."""

    added: list[str]
    removed: list[str]
    changed: list[str]


class Check(Document, frozen=True, kw_only=True):
    """`says` is a sentence: what was found; of a skipped check, why nobody could look. `mend` is the command that
    mends it, or what to do; empty if there is nothing to do.
    """

    check: str
    verdict: Literal["ok", "skipped", "warning", "wrong"]
    says: str
    mend: str = ""


class Checked(Document, frozen=True, kw_only=True):
    """The diagnostics of a text. `path`, `version` and `digest` are null if it has errors. `graph` is null unless it
    was asked for, and if there is no step to draw; errors or not, it has what can be read.
    """

    ok: bool
    path: str | None
    version: str | None
    digest: str | None
    diagnostics: list[Diagnostic]
    graph: Graph | None = None


class Checks(Document, frozen=True, kw_only=True):
    items: list[Check]


class ChildUse(Document, frozen=True, kw_only=True):
    """The child processes of a tool kind: `busy` of at most `most` run a task, and `waiting` tasks want one."""

    busy: int
    most: int
    waiting: int


class Column(Document, frozen=True, kw_only=True):
    """A column of a table: its name, and its type in DuckDB's words, such as `BIGINT` or `VARCHAR[]`."""

    name: str
    type: str


class ComparedExecution(Document, frozen=True, kw_only=True):
    """An execution that is compared, up to the event at `compared` of its `position` events."""

    execution_id: str
    path: str
    version: str | None
    digest: str
    status: Literal[
        "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
    ]
    started: datetime
    duration_s: float | None
    rerun_of: str | None
    position: int
    compared: int


class ComparedRun(Document, frozen=True, kw_only=True):
    """A step run; `position` is that of its token."""

    step_run_id: str | None
    status: Literal["cancelled", "done", "failed", "reused", "running", "waiting"]
    position: int
    duration_s: float | None


class ComparedStep(Document, frozen=True, kw_only=True):
    """The runs of a step, side by side. The durations are totals of the runs that have ended in both."""

    step: str
    same: int
    different: int
    only_a: int
    only_b: int
    duration_a_s: float
    duration_b_s: float


class Compensation(Document, frozen=True, kw_only=True):
    """Whether a step run that was to be undone at the end was, and else why not."""

    step: str
    step_run_id: str
    undone: bool
    reason: str


class Credential(Document, frozen=True, kw_only=True):
    """What may be shown of a credential; `version` counts its values."""

    name: str
    kind: str
    description: str
    tags: list[str]
    version: int
    key_id: str
    created: datetime
    updated: datetime


class Credentials(Document, frozen=True, kw_only=True):
    items: list[Credential]


class Ctx(Document, frozen=True, kw_only=True):
    """`version` is the position of the last change: what If-Match expects, in quotes."""

    ctx: dict[str, Any]
    version: int
    history: list[CtxChange]


class CtxChange(Document, frozen=True, kw_only=True):
    """One change of `ctx`: from outside with principal and reason, from within with step and task."""

    position: int
    at: datetime
    event: str
    keys: list[str]
    principal: str
    reason: str
    correlation_id: str
    step: str | None
    step_run_id: str | None
    task: str | None


class DataReference(Document, frozen=True, kw_only=True):
    """A reference to a file, or to a table, which is a Parquet file.

    Fields:
        key: The place of the data: `<execution>/<command>/<run>/<n>/parts-<count>`.
        size: Its bytes.
        checksum: `sha256:<hex>` over all bytes.
        seal: The key of the data, sealed for one execution; empty in a mere description.
        name: The file's name, without folders; empty for a table.
        columns: The columns of a table, in order; `None` for a file.
        rows: The number of rows of a table.
        first: The first row in the stored table: a part of a table is a reference with the same key and seal.
    """

    key: str
    size: int
    checksum: str
    seal: str = ""
    name: str = ""
    media_type: str = ""
    columns: list[Column] | None = None
    rows: int | None = None
    first: int = 0


class DataUse(Document, frozen=True, kw_only=True):
    """The files and tables that an attempt of a task has read and written, without their seals, and the data
    elsewhere that its tool knows of. `at` is when it had ended.
    """

    position: int
    at: datetime
    step: str
    step_run_id: str
    iteration: list[int]
    task: str
    attempt: int
    read: list[DataReference]
    written: list[DataReference]
    datasets: list[Dataset] = field(default_factory=list)


class Dataset(Document, frozen=True, kw_only=True):
    """Data elsewhere that a task has read or `written`, by the names of OpenLineage: `postgres://host:5432` and
    `sales.public.orders`. `columns` are those that were loaded, where the tool knows them.
    """

    namespace: str
    name: str
    written: bool = False
    columns: list[str] = field(default_factory=list)


class DeadLetter(Document, frozen=True, kw_only=True):
    """A message that could not be folded, or a command that was given up."""

    id: str
    at: datetime
    source: Literal["command", "events", "inbox"]
    partition: int
    execution_id: str
    subject: str
    reason: str
    size: int
    sequence: int | None
    state: Literal["discarded", "requeued", "waiting"]
    settled_at: datetime | None
    settled_by: str | None


class DeadLetterPage(Document, frozen=True, kw_only=True):
    """Newest first, without their bodies."""

    items: list[DeadLetter]
    next: str | None


class DeadLetterWithBody(Document, frozen=True, kw_only=True):
    """`body` as it is where it is text, else in base64."""

    id: str
    at: datetime
    source: Literal["command", "events", "inbox"]
    partition: int
    execution_id: str
    subject: str
    reason: str
    size: int
    sequence: int | None
    state: Literal["discarded", "requeued", "waiting"]
    settled_at: datetime | None
    settled_by: str | None
    body: str
    encoding: Literal["base64", "text"]


class Delivered(Document, frozen=True, kw_only=True):
    """The answer to the sender of an event. An answer to a challenge has only `challenge`."""

    number: int | None = None
    status: Literal["ignored", "repeated", "started", "waiting"] | None = None
    execution_id: str | None = None
    execution_status: (
        Literal[
            "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
        ]
        | None
    ) = None
    challenge: str | None = None


class Described(Document, frozen=True, kw_only=True):
    """An OpenAPI 3.1 document."""

    openapi: str
    paths: dict[str, Any]


class Diagnostic(Document, frozen=True, kw_only=True):
    """One problem of one file. `line` and `column` start at 1; `pointer` is a JSON pointer into the document.

    `path` is a shortest sequence of firings that shows the problem, where one does.
    """

    severity: Literal["error", "warning"]
    code: str
    message: str
    hint: str | None
    file: str
    line: int
    column: int
    pointer: str
    path: list[Firing] = field(default_factory=list)


class DiffRow(Document, frozen=True, kw_only=True):
    """A step run of A beside that of B, or with `iteration` one of its iterations that differs.

    `iterations` counts those that differ, and `difference` is the first one.
    """

    step: str
    iteration: list[int] | None
    state: Literal["different", "only_a", "only_b", "same"]
    a: ComparedRun | None
    b: ComparedRun | None
    iterations: int
    difference: Divergence | None


class DiscardedToken(Document, frozen=True, kw_only=True):
    """A token that went no further (LANGUAGE §4)."""

    token: str
    step: str
    reason: str


class Divergence(Document, frozen=True, kw_only=True):
    """A place where two executions part. `text` says it in a sentence, `differences` are those of what was recorded
    there: outcome and patches of a task, arguments of a token, and so on. `step` is null if it is about the
    execution as a whole.
    """

    kind: Literal[
        "admission",
        "arc",
        "cancel",
        "end",
        "finish",
        "iteration",
        "loop",
        "loop_end",
        "patch",
        "signal",
        "task",
        "token",
        "workload",
    ]
    text: str
    step: str | None
    task: str | None
    iteration: list[int] | None
    a: DivergenceSide
    b: DivergenceSide
    differences: ValueDifferences


class DivergenceSide(Document, frozen=True, kw_only=True):
    """What one execution did there; `position` and what follows are null if it did nothing.

    `guards` are those that were evaluated, with what they read: only where the executions part first. If an
    execution is not that far yet, `place` is where its token is, as in a state, and `waiting_on` what it needs.
    """

    position: int | None
    at: datetime | None
    event: str | None
    step_run_id: str | None
    guards: list[Guard]
    place: str | None
    waiting_on: WaitingOn | None


class Durations(Document, frozen=True, kw_only=True):
    """Percentiles of durations, in seconds: each is one that was measured (the nearest rank)."""

    count: int
    p50: float
    p90: float
    p99: float
    longest: float


class ErrorInfo(Document, frozen=True, kw_only=True):
    """The error of a task, a step or an execution. `kind` is one of `ERROR_KINDS` or a plugin's own."""

    kind: str
    message: str
    retryable: bool = False
    retry_after_s: float | None = None
    task: str | None = None
    index: int | None = None
    code: str | None = None


class EvaluatedGuard(Document, frozen=True, kw_only=True):
    """A guard that was evaluated: its text, its value, and its index (`else` has no text).

    `waits_for` is the key of `ctx` that it needs and that is still missing (LANGUAGE §4).
    """

    when: str
    value: bool
    rule: int
    waits_for: str = ""


class Event(Document, frozen=True, kw_only=True):
    """An entry of a journal (`docs/reference/events.md`). Every event has every field, null where it does not apply:
    `task` in an event that is not about a task, or `iteration` outside loops.
    """

    event_id: str
    execution_id: str
    position: int
    ts: datetime
    source: Literal["client", "server", "worker"]
    name: str
    entity: Literal["ctx", "loop", "next", "playbook", "step", "task", "token", "workflow"]
    entity_id: str
    status: Literal["error", "in_progress", "paused", "success"]
    step_run_id: str | None
    report_id: str | None
    cause_id: str | None
    trace_id: str
    actor: str
    task: str | None
    attempt: int | None
    iteration: list[int] | None
    tokens_consumed: list[str] | None
    tokens_produced: list[str] | None
    guards: list[EvaluatedGuard] | None
    digest: str
    data: dict[str, Any]


class EventPage(Document, frozen=True, kw_only=True):
    """Entries by position. `next` is the `after` of the page after this one, `previous` the `before` of the one
    before it, where the page was asked for by `before`. A page may be short, or empty, and not the last.
    """

    items: list[ListedEvent]
    next: int | None
    previous: int | None = None


class Execution(Document, frozen=True, kw_only=True):
    """An execution. A `result` that is kept by reference is `{"$reference": …}`: `…/result` has it. `steps` and
    `waits` are null where the journal is long, and `waits` may be in the answer to a start: `…/steps` and `…/why`
    have them. `discarded` and `warnings` have the first 100 each, and are null where the journal is long and the
    execution has not ended. Without a start `priority` is the one asked for, and `workload` null. A large
    `workload` is `{"$large": …}`: the event `execution.started` has it. `already`: a start with a unique key
    found it, and started nothing. `undoes` are the steps whose runs can be undone.
    """

    execution_id: str
    path: str
    version: str | None
    digest: str
    status: Literal[
        "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
    ]
    started: datetime
    updated: datetime
    finished: datetime | None
    duration_s: float | None
    labels: dict[str, Any]
    error: ErrorInfo | None
    key: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    failed_step: str | None = None
    workers: list[str] = field(default_factory=list)
    due: str | None = None
    result: Any
    ctx: dict[str, Any]
    ctx_version: int
    position: int
    discarded_tokens: int
    discarded: list[DiscardedToken] | None
    warnings: list[Warning] | None
    trace_id: str
    principal: str
    rerun_of: str | None
    parent: ParentExecution | None
    steps: list[StepSummary] | None
    waits: list[Wait] | None
    priority: int | None = None
    origin: Origin | None = None
    already: bool = False
    workload: Any = None
    compensations: list[Compensation] = field(default_factory=list)
    undoes: list[str] = field(default_factory=list)


class ExecutionDiff(Document, frozen=True, kw_only=True):
    """Two executions side by side.

    `first` is where they part first, in the order of their journals; null if nowhere. `first_choice` is where
    they first do something else: another arc, rule, status or number of items. Times and ids do not count.
    `workload`, `ctx`, `results` (by step) and `result` compare what there was at last. `rows` are a page.
    """

    a: ComparedExecution
    b: ComparedExecution
    first: Divergence | None
    first_choice: Divergence | None
    workload: ValueDifferences
    ctx: ValueDifferences
    results: list[StepDifferences]
    result: ValueDifferences
    steps: list[ComparedStep]
    rows: list[DiffRow]
    row_count: int
    next: str | None


class ExecutionGraph(Document, frozen=True, kw_only=True):
    """The graph of its playbook, and what happened up to `position`, by step and by arc in the same order."""

    execution_id: str
    position: int
    at: datetime
    graph: Graph
    steps: list[StepActivity]
    arcs: list[ArcActivity]


class ExecutionGroup(Document, frozen=True, kw_only=True):
    """Executions of a path, or with this `value` of a label; null: without it."""

    value: str | None
    counts: dict[str, int]


class ExecutionGroups(Document, frozen=True, kw_only=True):
    """The largest first; `more` counts those that are left out. Not `complete`: of a status with very many
    executions only the newest are counted.
    """

    items: list[ExecutionGroup]
    more: int
    complete: bool


class ExecutionHistogram(Document, frozen=True, kw_only=True):
    """When executions were started, by the times in their ids, from `since` to `until`: how many of each status are
    in each bar. Bars are `bar_s` seconds long; the first begins at `first`. `counts` are totals. Not `complete`:
    of a status with very many only the newest are counted.
    """

    since: datetime
    until: datetime
    first: datetime
    bar_s: int
    bars: dict[str, list[int]]
    counts: dict[str, int]
    complete: bool


class ExecutionPage(Document, frozen=True, kw_only=True):
    """Newest first."""

    items: list[ListedExecution]
    next: str | None


class ExecutionState(Document, frozen=True, kw_only=True):
    """An execution after the event at `position`. `last` is the last position of its journal.

    `tokens` are the first 500; `more` counts those that are left out, `places` has all. Values of `ctx` are shown
    like results. `steps` is null where the journal is long and was not read for a graph or timeline before.
    `statuses` are those of the steps to which something has happened, as in the graph.
    """

    execution_id: str
    position: int
    last: int
    at: datetime
    status: Literal[
        "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
    ]
    error: ErrorInfo | None
    tokens: list[PlacedToken]
    more: int
    places: list[StepPlaces]
    steps: list[StepRunCounts] | None
    ctx: dict[str, Any]
    ctx_version: int
    results: list[StepResult]
    statuses: list[StepStatus] = field(default_factory=list)


class ExpectedKey(Document, frozen=True, kw_only=True):
    """A key of `ctx`, or of the payload of a signal, that the playbook reads. `path` is there for a key inside
    another: the keys that lead to it, for a merge patch; `key` has them joined by dots.
    """

    key: str
    values: list[ExpectedValue]
    path: list[str] = field(default_factory=list)


class ExpectedValue(Document, frozen=True, kw_only=True):
    """A value that a guard compares with. `moves`: whether it would end the wait; null in a payload. `to`: the steps
    that would follow.
    """

    value: Any
    moves: bool | None = None
    to: list[str] = field(default_factory=list)


class Failure(Document, frozen=True, kw_only=True):
    """Where an execution failed. What is not known, or does not apply, is null or empty: an expression of an arc has
    no task. `attempt` is the one that failed, of the `attempts` that its policy allows. `error` is that of the
    task itself; `traceback` the one of its code, of a long one the end.
    """

    execution_id: str
    path: str
    status: Literal[
        "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
    ]
    step: str | None
    step_run_id: str | None
    task: str | None
    iteration: list[int]
    attempt: int | None
    attempts: int | None
    worker: str
    error: ErrorInfo | None
    traceback: str


class Fault(Document, frozen=True, kw_only=True):
    """One fault of a request: in a parameter, or at a JSON pointer into its body."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None


class Firing(Document, frozen=True, kw_only=True):
    """One firing on a path that shows a problem: how a run of a step ended, and where tokens went.

    Fields:
        step: The step.
        event: `step.done`, `loop.done`, `step.failed`, `next.timed_out`, or `token.joined` for its join.
        line: Of the step.
        to: The steps that got a token.
        repeats: Whether it belongs to the part of the path that may repeat for ever.
    """

    step: str
    event: str
    line: int
    to: list[str]
    repeats: bool = False


class Grants(Document, frozen=True, kw_only=True):
    """Grants as they are written. `origin` says where: in the `file` of the operator, `registered`, or nowhere.

    `revision` is that of registered grants, which count from 1; otherwise 0.
    """

    origin: Literal["file", "none", "registered"]
    revision: int
    source: str
    registered: datetime | None = None
    registered_by: str | None = None


class Graph(Document, frozen=True, kw_only=True):
    """`steps` are the names of the `nodes`."""

    steps: list[str]
    arcs: list[Arc]
    path: str
    digest: str
    nodes: list[StepNode]


class Guard(Document, frozen=True, kw_only=True):
    """A guard that would end a wait, with what it reads now: `values` by path, and the paths that are `missing`.

    `holds` is null if it cannot be evaluated, or only at too high a cost. `to` is the step that an arc leads to.
    """

    when: str
    holds: bool | None
    values: dict[str, Any]
    missing: list[str]
    to: str | None


class Idle(Document, frozen=True, kw_only=True):
    """A time in which nothing ran and nothing happened. `ms` is null for one that goes on."""

    offset_ms: int
    ms: int | None


class Iteration(Document, frozen=True, kw_only=True):
    """One iteration of a loop. `path`: its index, in each level of nested loops."""

    path: list[int]
    status: Literal["cancelled", "done", "failed", "reused", "running", "waiting"]
    started: datetime | None
    finished: datetime | None
    worker: str
    attempts: int
    result: Any
    error: ErrorInfo | None


class IterationPage(Document, frozen=True, kw_only=True):
    """By path."""

    items: list[Iteration]
    next: str | None


class IterationSummaries(Document, frozen=True, kw_only=True):
    """By index. `next` is the `first` of the page after this one."""

    items: list[IterationSummary]
    next: int | None


class IterationSummary(Document, frozen=True, kw_only=True):
    """One iteration. `error` is shortened, and null for those after the 10,000th that failed."""

    path: list[int]
    status: Literal["cancelled", "done", "failed", "reused", "running", "skipped", "waiting"]
    started: datetime | None
    duration_s: float | None
    attempts: int
    error: ErrorInfo | None


class KeyChange(Document, frozen=True, kw_only=True):
    """A change of a key of `ctx`, from outside with principal and reason, from within with step and task.

    `had` and `has`: whether the key was there before and is after it; `before` and `after` its values, a large
    one `{"$large": …}`.
    """

    key: str
    position: int
    at: datetime
    event: str
    principal: str
    reason: str
    correlation_id: str
    step: str | None
    step_run_id: str | None
    task: str | None
    iteration: list[int] | None
    had: bool
    before: Any
    has: bool
    after: Any


class KeyChangePage(Document, frozen=True, kw_only=True):
    """By position. A page may be short and not the last."""

    items: list[KeyChange]
    next: str | None


class LastExecution(Document, frozen=True, kw_only=True):
    """The execution of a playbook, of any of its versions, that started last."""

    execution_id: str
    status: Literal[
        "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
    ]
    started: datetime
    finished: datetime | None


class Limit(Document, frozen=True, kw_only=True):
    """A key that is held or waited for.

    Fields:
        namespace: Whose it is: a path, or empty if namespaces share it.
        concurrency: How many may hold it at once; null if only its rate is limited.
        set_by: The playbook that last said how much it allows, at `set_at`; empty if the caller may not see it.
        replaced: What it was before, if another playbook said otherwise; else empty.
        next_at: When its rate gives the next slot to who waits; null if it is not the rate that they wait for.
        catching_up: Whether it gives out nothing, since Postgres was restored and not all who hold it are known yet.
        used_by: The playbooks that asked for it, the newest last: a bounded number, of those that the caller may see.
    """

    key: str
    namespace: str
    concurrency: int | None
    rate: Rate | None
    held: int
    queued: int
    set_by: str
    set_at: datetime
    replaced: str
    next_at: datetime | None
    catching_up: bool
    used_by: list[str]


class LimitPage(Document, frozen=True, kw_only=True):
    """By key and namespace."""

    items: list[Limit]
    next: str | None


class LimitWithSlots(Document, frozen=True, kw_only=True):
    """With those that have held it longest, and the first that wait, in order: a bounded number of each, of which
    the caller sees those that it may see. `held` and `queued` count all.
    """

    key: str
    namespace: str
    concurrency: int | None
    rate: Rate | None
    held: int
    queued: int
    set_by: str
    set_at: datetime
    replaced: str
    next_at: datetime | None
    catching_up: bool
    used_by: list[str]
    holders: list[Slot]
    waiting: list[Slot]


class LineagePage(Document, frozen=True, kw_only=True):
    """In the order in which the attempts ended."""

    items: list[DataUse]
    next: str | None


class ListedEvent(Document, frozen=True, kw_only=True):
    """An event, or the requested ones of its fields: those of `EventDocument`, and `step` only if requested."""

    event_id: str | UnsetType = UNSET
    execution_id: str | UnsetType = UNSET
    position: int | UnsetType = UNSET
    ts: datetime | UnsetType = UNSET
    source: Literal["client", "server", "worker"] | UnsetType = UNSET
    name: str | UnsetType = UNSET
    entity: Literal["ctx", "loop", "next", "playbook", "step", "task", "token", "workflow"] | UnsetType = UNSET
    entity_id: str | UnsetType = UNSET
    status: Literal["error", "in_progress", "paused", "success"] | UnsetType = UNSET
    step_run_id: str | UnsetType | None = UNSET
    report_id: str | UnsetType | None = UNSET
    cause_id: str | UnsetType | None = UNSET
    trace_id: str | UnsetType = UNSET
    actor: str | UnsetType = UNSET
    task: str | UnsetType | None = UNSET
    attempt: int | UnsetType | None = UNSET
    iteration: list[int] | UnsetType | None = UNSET
    tokens_consumed: list[str] | UnsetType | None = UNSET
    tokens_produced: list[str] | UnsetType | None = UNSET
    guards: list[EvaluatedGuard] | UnsetType | None = UNSET
    digest: str | UnsetType = UNSET
    data: dict[str, Any] | UnsetType = UNSET
    step: str | UnsetType | None = UNSET


class ListedExecution(Document, frozen=True, kw_only=True):
    """An execution in a list. `due` is the time of the occurrence that it is for, as its schedule has it."""

    execution_id: str
    path: str
    version: str | None
    digest: str
    status: Literal[
        "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
    ]
    started: datetime
    updated: datetime
    finished: datetime | None
    duration_s: float | None
    labels: dict[str, Any]
    error: ErrorInfo | None
    key: str | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    failed_step: str | None = None
    workers: list[str] = field(default_factory=list)
    due: str | None = None


class ListedPlaybook(Document, frozen=True, kw_only=True):
    """`last` is null if none has started, or it was not asked for."""

    path: str
    version: str | None
    revision: int
    digest: str
    name: str
    description: str | None
    labels: dict[str, Any]
    tags: list[str]
    registered_by: str
    registered: datetime
    known_as: str
    kind: str = "Playbook"
    last: LastExecution | None = None


class Liveness(Document, frozen=True, kw_only=True):
    status: str


class LogLine(Document, frozen=True, kw_only=True):
    """A line. `id`: where to go on after it. `task` is empty for what is said of the whole step."""

    id: str
    at: datetime
    step: str
    step_run_id: str
    task: str
    attempt: int
    iteration: list[int]
    stream: Literal["stderr", "stdout", "worker"]
    text: str
    pool: str
    worker: str


class LogPage(Document, frozen=True, kw_only=True):
    """Lines in the order in which they were stored. `next`: the `after` of what follows.

    `state`: `more` lines are stored already; the execution is `live`, more may come; or it has `ended`.
    """

    items: list[LogLine]
    next: str
    state: Literal["ended", "live", "more"]


class LoopCounts(Document, frozen=True, kw_only=True):
    """How the iterations of a loop ended. `failed_leaves` counts failures at any depth, each where it began."""

    count: int
    ok: int
    failed: int
    skipped: int
    failed_leaves: int


class LoopStrip(Document, frozen=True, kw_only=True):
    """The iterations from `first` to before `end` in buckets of `size` each, the last of what is left. `count` and
    `totals` are of the whole level. `strips` has the statuses that there are.
    """

    execution_id: str
    step_run_id: str
    position: int
    within: list[int]
    count: int
    totals: RunCounts
    first: int
    end: int
    size: int
    strips: list[StripCounts]


class NewApiToken(Document, frozen=True, kw_only=True):
    """`secret` is the token itself. It is shown this once; the answer to a repeated call does not have it."""

    id: str
    name: str
    role: Literal["admin", "author", "operator", "viewer"]
    paths: list[str]
    created: datetime
    created_by: str
    expires: datetime | None
    last_used: datetime | None
    revoked: datetime | None
    revoked_by: str | None
    secret: str | None = None


class Occurrence(Document, frozen=True, kw_only=True):
    """What became of an occurrence. `scheduled` is its time, `due` the same with its jitter.

    `cause`: `timetable`, `trigger` or `backfill`. `reason` says why it was skipped or waits, or how its execution
    failed.
    """

    number: int
    status: Literal["cancelled", "completed", "failed", "skipped", "started", "waiting"]
    scheduled: datetime
    due: datetime
    cause: str
    execution_id: str | None
    started: datetime | None
    ended: datetime | None
    reason: str


class OccurrencePage(Document, frozen=True, kw_only=True):
    """Newest first. The newest 10,000 of a schedule are kept."""

    items: list[Occurrence]
    next: str | None


class OneVariable(Document, frozen=True, kw_only=True):
    execution_id: str
    var_name: str
    value: Any


class Origin(Document, frozen=True, kw_only=True):
    """What has started it: a schedule or trigger by its `path`, with the `number` of the start in its history; or
    the execution with this id, by a call or as the original of a rerun.
    """

    kind: Literal["call", "client", "rerun", "schedule", "trigger"]
    path: str | None
    number: int | None
    execution_id: str | None


class ParentExecution(Document, frozen=True, kw_only=True):
    """Which step run of which execution has called this one."""

    execution_id: str
    step_run_id: str


class Partition(Document, frozen=True, kw_only=True):
    """`behind` messages of EVENTS are not folded yet."""

    partition: int
    owner: str | None
    epoch: int
    live: bool
    folded: int
    behind: int


class Partitions(Document, frozen=True, kw_only=True):
    items: list[Partition]


class Pause(Document, frozen=True, kw_only=True):
    """Why it starts nothing, and since when."""

    reason: str
    since: datetime


class PlacedToken(Document, frozen=True, kw_only=True):
    """A token, or the step run that has consumed it. `count`: how many of its commands, or iterations, are there;
    `task`, `iteration`, `since` and `waiting_on` are those of the first.
    """

    place: Literal[
        "admission",
        "child",
        "claimed",
        "held",
        "join",
        "limit",
        "next",
        "queued",
        "retry",
        "routing",
        "running",
        "signal",
        "suspended",
        "timer",
        "token",
    ]
    step: str
    token_id: str
    step_run_id: str | None
    from_step: str | None
    count: int
    task: str | None
    iteration: list[int]
    since: datetime | None
    loop: LoopCounts | None
    waiting_on: WaitingOn | None


class Playbook(Document, frozen=True, kw_only=True):
    """A registered version of a playbook, or of a document of another `kind`.

    `known_as` is what follows the `@`: its version, or its revision if it has none.
    """

    path: str
    version: str | None
    revision: int
    digest: str
    name: str
    description: str | None
    labels: dict[str, Any]
    tags: list[str]
    registered_by: str
    registered: datetime
    known_as: str
    kind: str = "Playbook"


class PlaybookDiff(Document, frozen=True, kw_only=True):
    """What differs between two texts. Layout and comments do not count as changes of steps and arcs.

    Fields:
        same: Whether the texts are equal.
        before: The entry of the first text; null if there is no earlier one.
        after: The entry of the second text; null if it is not registered.
        text: A unified diff; empty if the texts are equal.
    """

    same: bool
    before: Playbook | None
    after: Playbook | None
    text: str
    steps: ChangedNames
    arcs: list[ChangedArc]


class PlaybookGrants(Document, frozen=True, kw_only=True):
    """What a playbook may use, by sort, as names that may hold `*`. `limits` are keys shared with others."""

    path: str
    namespace: str
    credentials: list[str]
    calls: list[str]
    pools: list[str]
    kinds: list[str]
    limits: list[str]


class PlaybookPage(Document, frozen=True, kw_only=True):
    """The latest entry of each path, by path."""

    items: list[ListedPlaybook]
    next: str | None


class PlaybookStatistics(Document, frozen=True, kw_only=True):
    """Statistics of the executions of a path, all versions, that started from `since` on.

    Fields:
        until: When it was asked.
        executions: How many are counted: the newest.
        is_sample: Whether there may be older ones, which are not counted.
        statuses: Executions by status.
        failure_rate: Failed ones among those that completed or failed, from 0 to 1; null if there are none.
        duration: Of those that completed; null if there are none.
        buckets: The same over time, in stretches of one length.
        sampled_executions: How many journals, of the newest that have ended, were read for `steps`.
        steps: In the order in which they first ran in the newest of them.
    """

    path: str
    since: datetime
    until: datetime
    executions: int
    is_sample: bool
    statuses: dict[str, int]
    failure_rate: float | None
    duration: Durations | None
    buckets: list[StatisticsBucket]
    sampled_executions: int
    steps: list[StepStatistics]


class PlaybookVersions(Document, frozen=True, kw_only=True):
    """Newest first."""

    items: list[Playbook]


class PlaybookWithSource(Document, frozen=True, kw_only=True):
    source: str
    path: str
    version: str | None
    revision: int
    digest: str
    name: str
    description: str | None
    labels: dict[str, Any]
    tags: list[str]
    registered_by: str
    registered: datetime
    known_as: str
    kind: str = "Playbook"


class Pool(Document, frozen=True, kw_only=True):
    """`queued` commands wait for a worker, `running` ones were delivered to one, `again` of them more than once.
    `oldest` is since when the longest of the queued ones waits; null if none waits, or no server says.
    `by_priority` are the queued ones, highest priority first, without those at which none waits. `unreadable` is
    why NATS gives out none of its commands; null if it does. `labels` are those that the operator has given it.
    """

    pool: str
    workers: int
    slots: int
    busy: int
    queued: int
    running: int
    again: int
    oldest: datetime | None = None
    by_priority: dict[str, int] = field(default_factory=dict)
    unreadable: str | None = None
    labels: dict[str, str] = field(default_factory=dict)


class Pools(Document, frozen=True, kw_only=True):
    items: list[Pool]


class Problem(Document, frozen=True, kw_only=True):
    """An error (RFC 9457). `type` is stable: branch on it. The address in `type` has a page about it. `left_out` is
    how many more faults there are than `errors` lists.
    """

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    diagnostics: list[Diagnostic] | None = None
    errors: list[Fault] | None = None
    left_out: int = 0
    instance: str


class Rate(Document, frozen=True, kw_only=True):
    """`per_s` on average, `burst` at once after a rest."""

    per_s: float
    burst: int


class ReadinessReport(Document, frozen=True, kw_only=True):
    """`missing` names what the gateway needs and lacks, each in one sentence."""

    ready: bool
    missing: list[str]


class Reason(Document, frozen=True, kw_only=True):
    """`kind` is stable; `sentence` describes it, `moves` says what would move it, `waiting_on` the same for
    programs; null for what has ended.
    """

    kind: str
    sentence: str
    moves: str
    since: datetime | None
    until: datetime | None
    step: str | None
    task: str | None
    iteration: list[int]
    details: dict[str, Any]
    waiting_on: WaitingOn | None = None


class Registered(Document, frozen=True, kw_only=True):
    """`created`: whether it is new."""

    created: bool
    path: str
    version: str | None
    revision: int
    digest: str
    name: str
    description: str | None
    labels: dict[str, Any]
    tags: list[str]
    registered_by: str
    registered: datetime
    known_as: str
    kind: str = "Playbook"


class RegisteredSchedule(Document, frozen=True, kw_only=True):
    """A schedule as it is.

    `registered_by` is whose rights it acts with. `revision` and `digest` are those of its document in the
    catalog. `next` is when it starts next, with its jitter; null if it is paused or over. `failures` counts
    executions that failed since the last that did not. `running` are its executions, `waiting` occurrences of it.
    With `files`, `playbook` is that which looks for them, and `calls` what it calls for each.
    """

    path: str
    playbook: str
    version: str | None
    revision: int
    digest: str
    registered_by: str
    registered: datetime
    timetable: Timetable
    jitter_s: int
    overlap: Literal["allow", "cancel", "queue_all", "queue_one", "skip", "terminate"]
    missed: Literal["all", "last", "none"]
    missed_within_s: int | None
    pause_after_failures: int | None
    next: datetime | None
    paused: Pause | None
    failures: int
    running: list[str]
    waiting: int
    backfill: Backfill | None
    occurrences: int
    calls: str | None = None


class Result(Document, frozen=True, kw_only=True):
    """How an execution has ended. A result over 16 MiB stays `{"$reference": …}`."""

    execution_id: str
    status: Literal[
        "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
    ]
    result: Any
    error: ErrorInfo | None


class Rotated(Document, frozen=True, kw_only=True):
    """Those that are under the current key now, and why others are not."""

    rotated: list[str]
    problems: list[str]


class RunCounts(Document, frozen=True, kw_only=True):
    """Step runs, or iterations, by status. Iterations that are `waiting` have not begun."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    reused: int = 0
    skipped: int = 0


class RunningCommand(Document, frozen=True, kw_only=True):
    """A command that a worker holds; `delivered` counts its deliveries. `waits_for` says what keeps the worker from
    reporting a finished result, such as a missing store; `task_waits_for` what its task waits for at the worker.
    """

    execution_id: str
    command_id: str
    step: str
    delivered: int
    waits_for: str = ""
    task_waits_for: str = ""


class SchedulePage(Document, frozen=True, kw_only=True):
    """By path."""

    items: list[RegisteredSchedule]
    next: str | None


class Session(Document, frozen=True, kw_only=True):
    """`csrf_token` goes into `X-CSRF-Token` of whatever the session changes."""

    csrf_token: str
    expires: datetime


class SignInCode(Document, frozen=True, kw_only=True):
    """`code` opens one browser session until it `expires`. It is shown this once."""

    expires: datetime
    code: str | None = None


class Slot(Document, frozen=True, kw_only=True):
    """Who holds a key, or waits for it, `since` when: a run of `step`, or a whole execution if that is null; with a
    `task`, an attempt of it.
    """

    execution_id: str
    path: str
    step: str | None
    step_run_id: str | None
    task: str | None
    since: datetime


class Span(Document, frozen=True, kw_only=True):
    """`offset_ms` from the beginning of the range, less than 0 if it began before; `ms`: how long, null while it
    goes on. `position`: the event with which it began.
    """

    offset_ms: int
    ms: int | None
    status: Literal["cancelled", "done", "failed", "reused", "running", "skipped", "waiting"]
    position: int
    step_run_id: str | None


class StatisticsBucket(Document, frozen=True, kw_only=True):
    """Executions that started from `start` on and before the next bucket, by status."""

    start: datetime
    statuses: dict[str, int]
    duration: Durations | None


class StepActivity(Document, frozen=True, kw_only=True):
    """What happened at a step or compensation. `status` is that of all its runs and tokens together; null if nothing
    has happened. `places`: how many tokens are where now. `iterations`: of the outermost loops of all its runs;
    null without a loop.
    """

    step: str
    runs: RunCounts
    iterations: RunCounts | None
    places: dict[str, int]
    status: Literal["cancelled", "done", "failed", "reused", "running", "waiting"] | None = None


class StepDifferences(Document, frozen=True, kw_only=True):
    """The differences of the last result of a step, or of its error."""

    step: str
    differences: ValueDifferences


class StepNode(Document, frozen=True, kw_only=True):
    """A step. `kinds`: of its tasks. `loop`: its levels, outermost first, as `city, parallel`. `join`: the tokens it
    waits for, as written. `waits`: where its tokens may wait: `admission`, `next`. `routing`: whether one of its
    arcs fires or all whose guards hold. `is_finally`: it runs at every end. `undone_by`: the kinds of the tasks
    that undo it.
    """

    step: str
    line: int
    kinds: list[str]
    loop: list[str]
    join: str | None
    admission: bool
    waits: list[str]
    routing: str
    is_entry: bool
    is_reached: bool
    is_finally: bool = False
    undone_by: list[str] = field(default_factory=list)


class StepPlaces(Document, frozen=True, kw_only=True):
    """How many tokens of a step are at each place (`TokenPlace`): of a loop its commands, or iterations."""

    step: str
    places: dict[str, int]


class StepResult(Document, frozen=True, kw_only=True):
    """What templates read of a step: its last result. A long one is `{"$large": …}` or `{"$reference": …}`."""

    step: str
    result: Any
    error: ErrorInfo | None


class StepRun(Document, frozen=True, kw_only=True):
    """One run of a step. A `result` that is long or kept elsewhere is `{"$large": …}` or `{"$reference": …}`."""

    step_run_id: str
    step: str
    token: Token
    status: Literal["cancelled", "done", "failed", "reused", "running", "waiting"]
    claimed: datetime
    started: datetime | None
    finished: datetime | None
    duration_s: float | None
    worker: str
    attempts: int
    retries: int
    loop: LoopCounts | None
    result: Any
    error: ErrorInfo | None


class StepRunCounts(Document, frozen=True, kw_only=True):
    """The runs of a step, by status."""

    step: str
    waiting: int
    running: int
    done: int
    failed: int
    cancelled: int
    reused: int


class StepRunResult(Document, frozen=True, kw_only=True):
    """The whole result of the last task of a step run. A result over 16 MiB stays `{"$reference": …}`."""

    execution_id: str
    step_run_id: str
    step: str
    result: Any


class StepRuns(Document, frozen=True, kw_only=True):
    """In the order they began. In a page, `count` says how many there are, and `next` is the `first` of the page
    after this one; both are null in a list of all.
    """

    items: list[StepRun]
    count: int | None = None
    next: int | None = None


class StepStatistics(Document, frozen=True, kw_only=True):
    """The runs of a step that ended `done` or `failed`. `failure_rate`: from 0 to 1. `duration` is from the claim of
    the token to the end, waits included.
    """

    step: str
    done: int
    failed: int
    failure_rate: float
    duration: Durations


class StepStatus(Document, frozen=True, kw_only=True):
    """The status of all runs and tokens of a step together."""

    step: str
    status: Literal["cancelled", "done", "failed", "reused", "running", "waiting"]


class StepSummary(Document, frozen=True, kw_only=True):
    """All runs of a step together."""

    step: str
    runs: int
    status: Literal["cancelled", "done", "failed", "reused", "running", "waiting"]
    duration_s: float
    retries: int


class Storage(Document, frozen=True, kw_only=True):
    items: list[Stored]


class Stored(Document, frozen=True, kw_only=True):
    """What takes room. `items` are the messages or rows in it, those of a table as Postgres estimates them; null
    where nobody counts. `max_bytes` is its bound; null without one. `account` is all that NATS stores, `objects`
    the stream with large results, `database` all of the database; a `table` has its indexes and partitions.
    """

    store: Literal["account", "database", "objects", "stream", "table"]
    name: str
    bytes: int
    max_bytes: int | None
    items: int | None


class StoredBundle(Document, frozen=True, kw_only=True):
    """A bundle with its bytes: a zip file, in base64."""

    name: str
    files: int
    bytes: int
    content: str


class StoredTable(Document, frozen=True, kw_only=True):
    """A table. `rows_read` are the rows that `counts` are of. `first_rows` are texts, of which long ones are cut.
    `columns_left_out` are behind the last one. `note` says what is not known, and why.
    """

    execution_id: str
    rows: int
    rows_read: int
    columns: list[TableColumn]
    columns_left_out: int
    first_rows: list[list[str | None]]
    note: str


class StripCounts(Document, frozen=True, kw_only=True):
    """How many iterations of each bucket have this status."""

    status: Literal["cancelled", "done", "failed", "reused", "running", "skipped", "waiting"]
    counts: list[int]


class TableColumn(Document, frozen=True, kw_only=True):
    """A column. `nulls`, `low` and `high` are of all rows if `whole` is true, else of those that were read; null
    where they are not known. `counts` are at most 20.
    """

    column: str
    type: str
    nulls: int | None
    low: str | None
    high: str | None
    whole: bool
    counts: list[ValueCount]


class Timeline(Document, frozen=True, kw_only=True):
    """`begun` and `last` are the times of the first and the last event, `since` and `until` the range in `width`
    columns. `runs` has the step runs of all rows, answered or not, `idle` the longest idle times.

    `first` counts the rows before those in `rows`, `more` all that are not in `rows`, those before included;
    `left_out` counts attempts and waits of a very long journal.
    """

    execution_id: str
    position: int
    begun: datetime
    last: datetime
    since: datetime
    until: datetime
    width: int
    runs: list[Activity]
    idle: list[Idle]
    first: int
    rows: list[TimelineRow]
    more: int
    left_out: int


class TimelineRow(Document, frozen=True, kw_only=True):
    """What a step, or a task of it, has of a kind (`RowKind`): `count` in the range, as `spans` if they are few,
    else as `activity`. Iterations have only `activity`.
    """

    kind: str
    step: str
    task: str
    count: int
    spans: list[Span] | None
    activity: list[Activity] | None


class Timer(Document, frozen=True, kw_only=True):
    """A timer that would end a wait. `on_timeout`: what follows at an admission or a `next`."""

    purpose: Literal["admission", "compensation", "deadline", "execution", "grace", "next", "step", "wait"]
    due: datetime
    on_timeout: Literal["discard", "fail"] | None


class Timetable(Document, frozen=True, kw_only=True):
    """When it is due, as the document says."""

    timezone: str
    cron: list[str]
    every_s: int | None
    at: list[datetime]


class Token(Document, frozen=True, kw_only=True):
    """The token that made a step run. `lineage`: by join step, the last firing that it descends from. `priority` and
    `partition` are those that its arc gave it.
    """

    token_id: str
    cause: Literal["arc", "compensation", "finally", "injected", "join", "rerun", "start"]
    args: dict[str, Any]
    from_step: str | None
    from_step_run_id: str | None
    trace_id: str
    lineage: dict[str, int]
    priority: int | None = None
    partition: str | None = None


class TriggerEvent(Document, frozen=True, kw_only=True):
    """An event and what became of it: it started an execution; it waits to start one, since the trigger may not
    start more now; its key had started one before; or it was ignored, for a reason. `fault`: the trigger could
    not do with it what it says. `event` is what it was, in full; null in lists. `resent` is the number of the one
    that it repeats.
    """

    number: int
    at: datetime
    status: Literal["ignored", "repeated", "started", "waiting"]
    execution_id: str | None
    reason: str | None
    key: str | None
    resent: int | None
    depth: int | None
    fault: bool = False
    event: dict[str, Any] | None = None


class TriggerEventPage(Document, frozen=True, kw_only=True):
    """Events, newest first."""

    items: list[TriggerEvent]
    next: str | None


class TriggerFaults(Document, frozen=True, kw_only=True):
    """The events with which a trigger could not do what it says, since its text was registered: `count` of them, and
    the last one's `number`, time and `reason`.
    """

    count: int
    number: int
    at: datetime
    reason: str


class TriggerPage(Document, frozen=True, kw_only=True):
    """Triggers by path."""

    items: list[TriggerState]
    next: str | None


class TriggerState(Document, frozen=True, kw_only=True):
    """A trigger as it is now.

    `on`: what it is on, as registered. `address`: where a webhook's events are sent. `paused`: why it starts
    nothing; null if it does. `events`: how many there were. `waiting`: how many of them wait for their turn
    (`rate`). `faults`: those that it could not handle; null if there were none. `stream`: on NATS, how far it is
    read. It acts with the rights of `registered_by`.
    """

    path: str
    source: Literal["event", "execution", "nats", "webhook"]
    on: dict[str, Any]
    address: str | None
    playbook: str
    version: str | None
    when: str | bool
    workload: dict[str, Any]
    key: str | None
    revision: int
    digest: str
    registered: datetime
    registered_by: str
    paused: str | None
    events: int
    waiting: int = 0
    rate: dict[str, Any] | None = None
    faults: TriggerFaults | None = None
    stream: TriggerStream | None = None


class TriggerStream(Document, frozen=True, kw_only=True):
    """How far the stream of a trigger is read.

    `consumer`: its durable consumer on NATS. `sequence`: of the last message that it has taken. `pending`: how
    many were left behind that when it was last looked at. `running`: executions of its messages that have not
    ended; from 500 on it waits for some to end. `trouble`: why the stream cannot be read, `since` when; null if
    it can.
    """

    consumer: str
    sequence: int | None
    pending: int | None
    running: int
    trouble: str | None
    since: datetime | None


class Upcoming(Document, frozen=True, kw_only=True):
    """An occurrence to come. `note` says that the clocks were set since the one before.

    `at` is its time in the zone of the schedule, `utc` the same instant; `starts` is when it starts, with jitter.
    """

    at: str
    utc: datetime
    starts: datetime
    note: str = ""


class UpcomingOccurrences(Document, frozen=True, kw_only=True):
    items: list[Upcoming]


class ValueCount(Document, frozen=True, kw_only=True):
    """How many of the rows that were read have a value from `low` to `high`; they are the same where values are
    counted each by itself.
    """

    low: str
    high: str
    rows: int


class ValueDifference(Document, frozen=True, kw_only=True):
    """A value that differs, by JSON pointer. `in_a` and `in_b`: whether it is there. `is_volatile`: times or ids,
    which differ in every execution. A large value is `{"$large": …}`.
    """

    pointer: str
    in_a: bool
    a: Any
    in_b: bool
    b: Any
    is_volatile: bool


class ValueDifferences(Document, frozen=True, kw_only=True):
    """The first differences, those that are volatile last; `left_out` counts the others."""

    items: list[ValueDifference]
    left_out: int


class Variable(Document, frozen=True, kw_only=True):
    value: Any


class Variables(Document, frozen=True, kw_only=True):
    """`ctx`, in the form of older clients."""

    execution_id: str
    variables: dict[str, Variable]
    count: int


class VariablesSet(Document, frozen=True, kw_only=True):
    execution_id: str
    variables_set: int
    var_names: list[str]


class Wait(Document, frozen=True, kw_only=True):
    """Something it waits for. `until`: when the wait times out."""

    step: str
    task: str | None
    iteration: list[int]
    for_: str = field(name="for")
    until: datetime | None
    waiting_on: WaitingOn = field(default_factory=lambda: WaitingOn())


class WaitingOn(Document, frozen=True, kw_only=True):
    """What would end a wait; only what applies is there. `ctx` and `steps` are the keys and steps that the guards
    read, `commands` the commands that have to end, `request` what someone has to ask for, `choices` the tokens
    and step runs whose templates are evaluated by another process. Only `why` has `expects`, the answers that the
    playbook knows, and `schema`, the JSON Schema of a signal's payload. `slot` is that of a key.
    """

    guards: list[Guard] = field(default_factory=list)
    ctx: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    timer: Timer | None = None
    signal: str | None = None
    child: AwaitedChild | None = None
    join: AwaitedJoin | None = None
    commands: list[str] = field(default_factory=list)
    worker: str | None = None
    pool: AwaitedPool | None = None
    request: Literal["resume"] | None = None
    reference: str | None = None
    choices: list[str] = field(default_factory=list)
    execution: str | None = None
    partition: int | None = None
    expects: list[ExpectedKey] = field(default_factory=list)
    schema: Any = None
    slot: AwaitedSlot | None = None


class Warning(Document, frozen=True, kw_only=True):
    """Something that may not be what its author meant. `kind` is stable."""

    kind: str
    message: str
    step: str | None


class Why(Document, frozen=True, kw_only=True):
    """Why an execution is where it is. `more` counts reasons that are left out. `causes` lead from a failure into
    the executions that were called, to where it began.
    """

    execution_id: str
    status: Literal[
        "cancelled", "compensating", "completed", "failed", "paused", "pending", "quarantined", "running", "waiting"
    ]
    summary: str
    since: datetime
    reasons: list[Reason]
    more: int
    causes: list[Failure] = field(default_factory=list)


class Worker(Document, frozen=True, kw_only=True):
    """A worker that is alive. `running` has those of its commands that it has held longest; `children` are the child
    processes by kind, of kinds that have a bound of their own. `unfit` is why it could not begin a task; it takes
    no commands until a self-test passes. `labels` are those that the operator has given its pool.
    """

    name: str
    pool: str
    slots: int
    busy: int
    since: datetime
    kinds: list[str]
    draining: bool
    version: str
    running: list[RunningCommand]
    children: dict[str, ChildUse] = field(default_factory=dict)
    confinement: str = ""
    network: str = ""
    unfit: str = ""
    labels: dict[str, str] = field(default_factory=dict)


class Workers(Document, frozen=True, kw_only=True):
    items: list[Worker]


class FeedEvent(Event, frozen=True, kw_only=True):
    """An event of all executions. ``feed_id`` is its place among them: a reader goes on after it."""

    feed_id: str = ""


# A newer gateway may have more values: where documents are read, a Literal is any text.
globals()["Literal"] = AnyText
