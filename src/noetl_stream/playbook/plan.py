"""The compiled plan of a playbook for engine and worker: immutable, checked, with every template compiled.

What follows from its fields is computed once for all executions: a cached property.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from noetl_stream.model.events import ALL_SHARED, Boundary, KeyScope, OnLimit, Quotas, Rate, SharedOperation
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.messages import FORMAT
from noetl_stream.model.placement import Placement

if TYPE_CHECKING:  # reading plans needs neither the compiler nor Jinja
    from noetl_stream.playbook.results.result_schema import ResultSchema
    from noetl_stream.playbook.workload import WorkloadSchema
    from noetl_stream.template import Guard, Template

Directive = Literal["continue", "retry", "jump", "break", "fail"]
FailureMode = Literal["fail_fast", "best_effort"]
Backoff = Literal["none", "fixed", "linear", "exponential"]
Join = Literal["all", "any"] | int
OnTimeout = Literal["fail", "discard"]
Routing = Literal["exclusive", "inclusive"]
UndoneEnd = Literal["failed", "cancelled", "timeout"]
"""An end at which compensations may run; ``timeout`` is a failure of that kind, and not part of ``failed``."""

_COMPENSATION: Final = "__compensation"


class AdmitRule(msgspec.Struct, frozen=True):
    """A rule of an admission; ``guard`` is ``None`` for ``else``. ``value`` renders to the metadata that it adds to the
    token; ``None`` without any.
    """

    guard: Guard | None
    allow: bool
    value: Template | None = None

    @property
    def label(self) -> str:
        """The metadata of the rule, for messages."""
        return "`token` of a rule of the admission"

    @property
    def steps(self) -> frozenset[str | None]:
        """The steps whose results the rule reads; ``None`` among them for all."""
        return frozenset(step for read in (self.guard, self.value) if read is not None for step in read.steps)


class WaitPlan(msgspec.Struct, frozen=True):
    """The time for which a held token or resting branch keeps the execution alive, and the consequence (LANGUAGE §4,
    §7).
    """

    timeout_s: float
    on_timeout: OnTimeout = "fail"


class AdmitPlan(msgspec.Struct, frozen=True):
    """Admission rules: ``exclusive`` takes the first that holds, ``inclusive`` each that does, and ``else`` if none
    does. With ``wait`` a token that they deny keeps the execution alive. ``sets_token``: a rule adds metadata to it.
    """

    rules: tuple[AdmitRule, ...]
    wait: WaitPlan | None = None
    mode: Routing = "exclusive"
    sets_token: bool = False


class LimitPlan(msgspec.Struct, frozen=True):
    """A limit: a ``key`` has slots, ``concurrency`` of them, granted at this ``rate`` (LANGUAGE §15)."""

    key: Template
    concurrency: int | None = None
    rate: Rate | None = None
    on_limit: OnLimit = "queue"


class SharedPlan(msgspec.Struct, frozen=True):
    """A contribution to a shared key; ``value`` is ``None`` for ``count``."""

    op: SharedOperation
    value: Template | None


class RulePlan(msgspec.Struct, frozen=True):
    """One rule of a task policy; ``guard`` is ``None`` for ``else``. ``attempts`` renders to all runs (LANGUAGE §5)."""

    guard: Guard | None
    do: Directive
    line: int
    attempts: Template | None = None
    backoff: Backoff = "none"
    delay_s: Template | None = None
    max_delay_s: float = 300.0
    to: str | None = None
    set_ctx: Mapping[str, Template] = msgspec.field(default_factory=dict)
    set_iter: Mapping[str, Template] = msgspec.field(default_factory=dict)
    set_vars: Mapping[str, Template] = msgspec.field(default_factory=dict)
    set_shared: Mapping[str, SharedPlan] = msgspec.field(default_factory=dict)
    set_label: Mapping[str, Template] = msgspec.field(default_factory=dict)


class PolicyPlan(msgspec.Struct, frozen=True):
    rules: tuple[RulePlan, ...]
    on_unmatched: Literal["continue", "fail"] = "continue"


class Timeouts(msgspec.Struct, frozen=True):
    """The timeouts of a task in seconds; ``None``: the tool's default. ``total`` bounds an attempt (LANGUAGE §5
    *Timeouts*).
    """

    total: float | None = None
    connect: float | None = None
    read: float | None = None


class Tolerated(msgspec.Struct, frozen=True):
    """The iterations of a level, or rows of a table, that may fail: a number, or a percentage (``percent``)."""

    most: Decimal
    percent: bool = False

    def is_exceeded(self, failed: int, count: int) -> bool:
        return failed * 100 > self.most * count if self.percent else failed > self.most

    def __str__(self) -> str:
        return f"{self.most}%" if self.percent else str(self.most)


class ColumnPlan(msgspec.Struct, frozen=True):
    """A column that the table of a result must have. An empty ``type`` allows any type; ``minimum`` and ``maximum``
    are SQL literals.
    """

    name: str
    type: str = ""
    nullable: bool = True
    unique: bool = False
    minimum: str = ""
    maximum: str = ""


class TablePlan(msgspec.Struct, frozen=True):
    """The columns that the table of a result must have, and the tolerated number of bad rows."""

    columns: tuple[ColumnPlan, ...]
    tolerated: Tolerated


class TaskPlan(msgspec.Struct, frozen=True):
    """A task. ``inputs`` renders to a mapping; ``verbatim`` holds inputs that are never rendered (python ``code``).

    ``schema`` is that of the result, ``table`` the checks of its table. Each attempt has a slot of its ``limit``.
    ``timeout_template`` renders to those of its ``timeouts`` that are templates.
    ``origin`` names the construct or workbook entry a generated task comes from; ``""`` for a task in the file.
    """

    name: str
    kind: str
    inputs: Template
    line: int
    verbatim: Mapping[str, Any] = msgspec.field(default_factory=dict)
    knobs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    timeouts: Timeouts = Timeouts()
    policy: PolicyPlan | None = None
    schema: ResultSchema | None = None
    table: TablePlan | None = None
    origin: str = ""
    limit: LimitPlan | None = None
    timeout_template: Template | None = None
    tracing: Mapping[str, Template] = msgspec.field(default_factory=dict)

    @property
    def label(self) -> str:
        """The task's name and origin, for messages."""
        return f"{self.name} ({self.origin})" if self.origin else self.name


class LoopPlan(msgspec.Struct, frozen=True):
    """One level of a loop; ``inner`` is the level inside. Levels inside a ``local`` one are local (LANGUAGE §6).

    ``tolerated`` is ``None`` if any number may fail, and in a level that stops at the first failure. With ``batch``,
    the items are tables of that many rows of what the first task of the step returns.
    """

    items: Template
    iterator: str
    mode: Literal["sequential", "parallel"]
    placement: Literal["local", "distributed"]
    failure_mode: FailureMode
    max_in_flight: Template
    inner: LoopPlan | None = None
    tolerated: Tolerated | None = None
    batch: int | None = None

    def levels(self) -> list[LoopPlan]:
        """This level of the loop and those inside it, outermost first."""
        return [self, *(self.inner.levels() if self.inner else [])]


class ArcSpecPlan(msgspec.Struct, frozen=True):
    """The effects of an arc beyond its guard. ``value`` renders to the ``args``, and the keys by their names.

    Of the tokens with one ``dedupe`` key it sends only the first. ``priority`` is that of the step run, by default the
    execution's. Step runs with one ``partition`` key run one after another.
    """

    value: Template
    dedupe: Template | None = None
    priority: int | None = None
    partition: Template | None = None


class ArcPlan(msgspec.Struct, frozen=True, dict=True):
    """An arc. ``handles_failure``: its guard reads ``event.name``, ``.status`` or ``.error`` (LANGUAGE §7)."""

    step: str
    guard: Guard | None
    args: Template
    handles_failure: bool
    line: int
    spec: ArcSpecPlan | None = None

    @cached_property
    def value(self) -> Template:
        """The template that is rendered if the arc fires."""
        return self.args if self.spec is None else self.spec.value

    @cached_property
    def condition(self) -> str:
        """The text of the guard; ``true`` without one."""
        return "true" if self.guard is None else self.guard.source

    @cached_property
    def label(self) -> str:
        """The ``args`` of the arc, for messages."""
        return f"args of the arc to {self.step}"

    @cached_property
    def steps(self) -> frozenset[str | None]:
        """The steps whose results the arc reads; ``None`` among them for all."""
        value = self.args if self.spec is None else self.spec.value
        return frozenset((*value.steps, *(self.guard.steps if self.guard is not None else ())))


class EmitPlan(msgspec.Struct, frozen=True):
    """An event that a step emits ``on`` these boundaries of a run if ``guard`` holds, with ``value`` as its data."""

    event: str
    on: frozenset[Boundary]
    guard: Guard | None
    value: Template
    line: int

    @property
    def label(self) -> str:
        """The ``data`` of the event, for messages."""
        return f"data of the event {self.event}"

    @property
    def steps(self) -> frozenset[str | None]:
        """The steps whose results it reads; ``None`` among them for all."""
        return frozenset((*self.value.steps, *(self.guard.steps if self.guard is not None else ())))


ReadBy = Literal["", "code", "template"]
"""The reader of a namespace: none, Python code that names it, or a template, which servers of version 0.3 refuse."""


class Reads(msgspec.Struct, frozen=True):
    """Top-level keys that a step's templates read on the worker; ``None`` means the whole namespace. ``execution`` is
    carried as a whole if anything reads it.
    """

    workload: frozenset[str] | None = frozenset()
    ctx: frozenset[str] | None = frozenset()
    steps: frozenset[str] | None = frozenset()
    execution: ReadBy = ""


class StepPlan(msgspec.Struct, frozen=True, dict=True):
    """A step. ``admit`` is ``None`` without an admission policy; ``tasks`` is empty for a step that only routes.

    ``timeout_s`` is rendered at the first ``step.started`` and runs from there, ``deadline_s`` from when the token was
    enqueued. With ``next_wait`` a branch rests at ``next`` until an arc fires. ``failure_mode`` decides on a failure
    that no arc handles; that of iterations is in ``loop`` (LANGUAGE §7). ``schemas`` are the addresses of those of its
    tasks that are in the catalog. A step run holds a slot of its ``limit`` from before its first command to its end;
    ``has_limited_tasks``: so does an attempt of one of its tasks. With a ``placement``, its pool is chosen at a start.
    ``has_arc_specs``: an arc has a ``spec``.
    """

    name: str
    pool: str
    line: int
    admit: AdmitPlan | None = None
    loop: LoopPlan | None = None
    tasks: tuple[TaskPlan, ...] = ()
    arcs: tuple[ArcPlan, ...] = ()
    routing: Routing = "exclusive"
    next_wait: WaitPlan | None = None
    failure_mode: FailureMode = "fail_fast"
    reads: Reads = Reads()
    desc: str = ""
    join: Join | None = None
    timeout_s: Template | None = None
    deadline_s: float | None = None
    schemas: frozenset[str] = frozenset()
    limit: LimitPlan | None = None
    has_limited_tasks: bool = False
    placement: Placement | None = None
    has_arc_specs: bool = False
    emits: tuple[EmitPlan, ...] = ()
    tracing: Mapping[str, Template] = msgspec.field(default_factory=dict)

    @cached_property
    def admits_at_once(self) -> bool:
        """Whether the step admits tokens without evaluation and its tasks then run on a worker, without a loop."""
        asks = self.admit is not None or self.join is not None or self.deadline_s is not None
        tells = self.emits or self.tracing
        return bool(self.tasks) and self.loop is None and self.limit is None and not (asks or tells)

    @cached_property
    def sets_token(self) -> bool:
        """Whether templates of the step read ``token``: its admission adds metadata."""
        return self.admit is not None and self.admit.sets_token

    @cached_property
    def arcs_have_templates(self) -> bool:
        """Whether an arc has a guard, ``args`` or a ``spec``."""
        return any(arc.guard is not None or arc.args.source or arc.spec for arc in self.arcs)

    @cached_property
    def read_by_arcs(self) -> frozenset[str | None]:
        """The steps whose results the arcs read; ``None`` among them for all."""
        return frozenset(step for arc in self.arcs for step in arc.steps)

    @cached_property
    def has_newer_commands(self) -> bool:
        """Whether its commands, too, name features that workers of version 0.3 do not know."""
        return self.has_limited_tasks or self.sets_token or self.queries or self.reads.execution == "template"

    @cached_property
    def queries(self) -> bool:
        """Whether the first task makes the rows over which the others loop."""
        return self.loop is not None and self.loop.batch is not None

    @cached_property
    def _split(self) -> tuple[StepPlan, StepPlan]:
        return replace(self, tasks=self.tasks[1:]), replace(self, tasks=self.tasks[:1])

    def run_by(self, *, paging: bool) -> StepPlan:
        """The step with the tasks alone that a command runs: of a loop over rows either the iterations' or, before it
        pages the items out, the one that makes the rows.
        """
        return self._split[paging] if self.queries else self

    def task_index(self, name: str) -> int:
        """Index of the task ``name`` in the pipeline."""
        return next(index for index, task in enumerate(self.tasks) if task.name == name)


class CompensationPlan(msgspec.Struct, frozen=True):
    """The ends ``on`` which an execution undoes its work, within ``timeout_s`` (LANGUAGE §9 *Undoing*)."""

    on: frozenset[UndoneEnd]
    timeout_s: float


class Steps(dict[str, StepPlan]):
    """The steps of a playbook, by name. A compensation can be found by its name too, but is neither listed nor ``in``
    them: no arc leads to it.
    """

    def __init__(self, steps: Mapping[str, StepPlan], compensations: Mapping[str, StepPlan]) -> None:
        super().__init__(steps)
        self.compensations: Final = {compensation_of(name): one for name, one in compensations.items()}

    def __missing__(self, name: str) -> StepPlan:
        return self.compensations[name]

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name) or self.compensations.get(name, default)


def compensation_of(step: str) -> str:
    """The name of the step that undoes runs of ``step``."""
    return f"{step}{_COMPENSATION}"


def undone_by(step: str) -> str | None:
    """The name of the step whose runs ``step`` undoes; ``None`` if it is not a compensation."""
    return step.removesuffix(_COMPENSATION) if step.endswith(_COMPENSATION) else None


class KeychainPlan(msgspec.Struct, frozen=True):
    """An entry of the root ``keychain``; ``settings`` are its keys without ``name`` and ``kind`` (LANGUAGE §11)."""

    name: str
    kind: str
    settings: Mapping[str, Any]
    line: int


class Plan(msgspec.Struct, frozen=True, dict=True):
    """A playbook, ready to run. ``steps`` are in file order.

    ``reaches`` maps each step to the joining steps reachable from it by one or more arcs, guards ignored; empty if no
    step joins. ``reference_first`` sends every result over 1 KiB to the object store. ``labels`` are
    ``metadata.labels``, scalars by name, as written; ``label_templates`` those that are rendered at a start,
    ``set_labels`` the names of those that rules set. ``schemas`` are the digests, by address, of the schemas it names
    in the catalog; empty until an execution is about to start. From then on, ``keys`` names the owner of the keys of
    its limits. ``priority`` is that of its executions by default. ``format`` is that in which the execution is written.
    An execution holds a slot of ``concurrency`` from before its first step to its end. ``undoes`` are the steps whose
    runs can be undone, by a compensation of their own or by undoing the executions they called, at the ends that
    ``compensation`` names. ``finally_step`` runs at every end. ``quotas`` bound an execution. ``pools`` are those of
    steps with a placement; empty until an execution is about to start. ``reads_execution`` is the reader of
    ``execution``. ``emits``: whether a step emits events. ``tracing`` are attributes of the spans of executions;
    ``traces``: whether anything in it names such attributes. ``bundle`` names the packages that its Python tasks can
    import. ``newer`` names a feature that servers of version 0.3 do not know.
    """

    digest: str
    name: str
    path: str
    version: str | None
    entry: str
    steps: Mapping[str, StepPlan]
    workload: Mapping[str, Any] = msgspec.field(default_factory=dict)
    workload_schema: WorkloadSchema | None = None
    result: Template | None = None
    failure_mode: FailureMode = "fail_fast"
    limits: Limits = DEFAULT_LIMITS
    timeout_s: float | None = None
    reference_first: bool = False
    keychain: Mapping[str, KeychainPlan] = msgspec.field(default_factory=dict)
    reaches: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    labels: Mapping[str, Any] = msgspec.field(default_factory=dict)
    label_templates: Mapping[str, Template] = msgspec.field(default_factory=dict)
    set_labels: frozenset[str] = frozenset()
    schemas: Mapping[str, str] = msgspec.field(default_factory=dict)
    priority: int | None = None
    format: int = FORMAT
    concurrency: LimitPlan | None = None
    keys: KeyScope = ALL_SHARED
    undoes: Mapping[str, bool] = msgspec.field(default_factory=dict)
    compensation: CompensationPlan | None = None
    finally_step: str | None = None
    quotas: Quotas | None = None
    pools: Mapping[str, str] = msgspec.field(default_factory=dict)
    reads_execution: ReadBy = ""
    newer: str = ""
    emits: bool = False
    tracing: Mapping[str, Template] = msgspec.field(default_factory=dict)
    traces: bool = False
    bundle: str = ""

    @cached_property
    def every_step(self) -> tuple[StepPlan, ...]:
        """The steps, and the compensations of steps."""
        hidden = self.steps.compensations if isinstance(self.steps, Steps) else {}
        return (*self.steps.values(), *hidden.values())

    @cached_property
    def has_limits(self) -> bool:
        """Whether the playbook is limited by a key, or one of its steps or tasks is."""
        limited = any(step.limit is not None or step.has_limited_tasks for step in self.every_step)
        return self.concurrency is not None or limited

    @cached_property
    def closes(self) -> bool:
        """Whether compensations or ``finally`` may have to run before an execution ends."""
        return self.compensation is not None or self.finally_step is not None

    @cached_property
    def has_newer_commands(self) -> bool:
        """Whether all commands name features that workers of version 0.3 do not know."""
        return self.closes or self.emits or self.traces or self.quotas is not None or bool(self.bundle)

    @cached_property
    def has_placement(self) -> bool:
        """Whether the pool of a step is chosen when an execution starts."""
        return any(step.placement is not None for step in self.every_step)

    @cached_property
    def named_schemas(self) -> frozenset[str]:
        """The addresses of the schemas in the catalog that the playbook names."""
        return frozenset(address for step in self.every_step for address in step.schemas)
