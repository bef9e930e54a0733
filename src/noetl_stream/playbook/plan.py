"""The compiled plan of a playbook: immutable, checked, with every template compiled. What engine and worker read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.template import Guard, Template

Directive = Literal["continue", "retry", "jump", "break", "fail"]
FailureMode = Literal["fail_fast", "best_effort"]
Backoff = Literal["none", "fixed", "linear", "exponential"]


@dataclass(frozen=True, slots=True)
class AdmitRule:
    """``guard`` is ``None`` for ``else``."""

    guard: Guard | None
    allow: bool


@dataclass(frozen=True, slots=True)
class RulePlan:
    """One rule of a task policy; ``guard`` is ``None`` for ``else``. ``attempts`` counts all runs (LANGUAGE §5)."""

    guard: Guard | None
    do: Directive
    line: int
    attempts: int | None = None
    backoff: Backoff = "none"
    delay_s: Template | None = None
    max_delay_s: float = 300.0
    to: str | None = None
    set_ctx: Mapping[str, Template] = field(default_factory=dict)
    set_iter: Mapping[str, Template] = field(default_factory=dict)
    set_vars: Mapping[str, Template] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PolicyPlan:
    rules: tuple[RulePlan, ...]
    on_unmatched: Literal["continue", "fail"] = "continue"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; ``None`` leaves it to the tool. ``total`` bounds one attempt (LANGUAGE §5 *Timeouts*)."""

    total: float | None = None
    connect: float | None = None
    read: float | None = None


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A task: ``inputs`` renders to a mapping; ``verbatim`` are inputs that are never rendered (python ``code``)."""

    name: str
    kind: str
    inputs: Template
    line: int
    verbatim: Mapping[str, Any] = field(default_factory=dict)
    knobs: Mapping[str, Any] = field(default_factory=dict)
    timeouts: Timeouts = Timeouts()
    policy: PolicyPlan | None = None


@dataclass(frozen=True, slots=True)
class LoopPlan:
    items: Template
    iterator: str
    mode: Literal["sequential", "parallel"]
    placement: Literal["local", "distributed"]
    failure_mode: FailureMode
    max_in_flight: Template


@dataclass(frozen=True, slots=True)
class ArcPlan:
    """An arc. ``handles_failure``: its guard reads ``event.name``, ``.status`` or ``.error`` (LANGUAGE §7)."""

    step: str
    guard: Guard | None
    args: Template
    handles_failure: bool
    line: int


@dataclass(frozen=True, slots=True)
class Reads:
    """Top-level keys the templates of a step read on the worker; ``None`` means all of that namespace."""

    workload: frozenset[str] | None = frozenset()
    ctx: frozenset[str] | None = frozenset()
    steps: frozenset[str] | None = frozenset()


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A step. ``admit`` is ``None`` without an admission policy; ``tasks`` is empty for a step that only routes."""

    name: str
    pool: str
    line: int
    admit: tuple[AdmitRule, ...] | None = None
    loop: LoopPlan | None = None
    tasks: tuple[TaskPlan, ...] = ()
    arcs: tuple[ArcPlan, ...] = ()
    routing: Literal["exclusive", "inclusive"] = "exclusive"
    reads: Reads = Reads()
    desc: str = ""

    def task_index(self, name: str) -> int:
        """Position of the task called ``name`` in the pipeline."""
        return next(index for index, task in enumerate(self.tasks) if task.name == name)


@dataclass(frozen=True, slots=True)
class Plan:
    """A playbook, ready to run. ``steps`` keeps the order of the file."""

    digest: str
    name: str
    path: str
    version: str | None
    entry: str
    steps: Mapping[str, StepPlan]
    workload: Mapping[str, Any] = field(default_factory=dict)
    result: Template | None = None
    failure_mode: FailureMode = "fail_fast"
    limits: Limits = DEFAULT_LIMITS
