"""Comparisons of two executions, A and B: where they diverge first, and what differs."""

from __future__ import annotations

from typing import Any, Final, Literal

from noetl_stream.model.envelope import Time
from noetl_stream.model.status import ExecutionStatus, RunStatus
from noetl_stream.ports.operations.verbs import Document, Next
from noetl_stream.ports.operations.waits import GuardDocument, WaitingOnDocument

VALUES_SHOWN: Final = 50
"""The most differences that one comparison of values shows; further ones are only counted."""

MAX_ROWS: Final = 200
"""The most rows of one answer."""

DivergenceKind = Literal[
    "workload",
    "patch",  # of ctx, from outside
    "signal",
    "cancel",
    "finish",  # of the execution
    "token",  # with its arguments
    "admission",
    "loop",  # its items
    "task",  # its outcome and what its policy did
    "iteration",
    "loop_end",
    "end",  # of a step run
    "arc",
]
RowState = Literal["same", "different", "only_a", "only_b"]
RowChoice = Literal["different", "all"]


class ValueDifferenceDocument(Document, frozen=True):
    """A value that differs, by JSON pointer. ``in_a`` and ``in_b``: whether it is there. ``is_volatile``: times or ids,
    which differ in every execution. A large value is ``{"$large": …}``.
    """

    pointer: str
    in_a: bool
    a: Any
    in_b: bool
    b: Any
    is_volatile: bool


class ValueDifferencesDocument(Document, frozen=True):
    """The first differences, those that are volatile last; ``left_out`` counts the others."""

    items: list[ValueDifferenceDocument]
    left_out: int


class DivergenceSideDocument(Document, frozen=True):
    """What one execution did there; ``position`` and what follows are null if it did nothing.

    ``guards`` are those that were evaluated, with what they read: only where the executions part first. If an execution
    is not that far yet, ``place`` is where its token is, as in a state, and ``waiting_on`` what it needs.
    """

    position: int | None
    at: Time | None
    event: str | None
    step_run_id: str | None
    guards: list[GuardDocument]
    place: str | None
    waiting_on: WaitingOnDocument | None


class DivergenceDocument(Document, frozen=True):
    """A place where two executions part. ``text`` says it in a sentence, ``differences`` are those of what was recorded
    there: outcome and patches of a task, arguments of a token, and so on. ``step`` is null if it is about the execution
    as a whole.
    """

    kind: DivergenceKind
    text: str
    step: str | None
    task: str | None
    iteration: list[int] | None
    a: DivergenceSideDocument
    b: DivergenceSideDocument
    differences: ValueDifferencesDocument


class ComparedExecutionDocument(Document, frozen=True):
    """An execution that is compared, up to the event at ``compared`` of its ``position`` events."""

    execution_id: str
    path: str
    version: str | None
    digest: str
    status: ExecutionStatus
    started: Time
    duration_s: float | None
    rerun_of: str | None
    position: int
    compared: int


class ComparedRunDocument(Document, frozen=True):
    """A step run; ``position`` is that of its token."""

    step_run_id: str | None
    status: RunStatus
    position: int
    duration_s: float | None


class DiffRowDocument(Document, frozen=True):
    """A step run of A beside that of B, or with ``iteration`` one of its iterations that differs.

    ``iterations`` counts those that differ, and ``difference`` is the first one.
    """

    step: str
    iteration: list[int] | None
    state: RowState
    a: ComparedRunDocument | None
    b: ComparedRunDocument | None
    iterations: int
    difference: DivergenceDocument | None


class ComparedStepDocument(Document, frozen=True):
    """The runs of a step, side by side. The durations are totals of the runs that have ended in both."""

    step: str
    same: int
    different: int
    only_a: int
    only_b: int
    duration_a_s: float
    duration_b_s: float


class StepDifferencesDocument(Document, frozen=True):
    """The differences of the last result of a step, or of its error."""

    step: str
    differences: ValueDifferencesDocument


class ExecutionDiffDocument(Document, frozen=True):
    """Two executions side by side.

    ``first`` is where they part first, in the order of their journals; null if nowhere. ``first_choice`` is where they
    first do something else: another arc, rule, status or number of items. Times and ids do not count. ``workload``,
    ``ctx``, ``results`` (by step) and ``result`` compare what there was at last. ``rows`` are a page.
    """

    a: ComparedExecutionDocument
    b: ComparedExecutionDocument
    first: DivergenceDocument | None
    first_choice: DivergenceDocument | None
    workload: ValueDifferencesDocument
    ctx: ValueDifferencesDocument
    results: list[StepDifferencesDocument]
    result: ValueDifferencesDocument
    steps: list[ComparedStepDocument]
    rows: list[DiffRowDocument]
    row_count: int
    next: Next
