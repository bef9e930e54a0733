"""The graph of a playbook, and the same graph with an execution's progress. Bounded by the playbook."""

from __future__ import annotations

import msgspec

from noetl_stream.model.envelope import Time
from noetl_stream.model.status import RunStatus
from noetl_stream.ports.operations.verbs import Document
from noetl_stream.ports.operations.waits import GuardDocument


class ArcDocument(Document, frozen=True):
    """An arc; ``when`` is null without a guard. ``index`` is its place among those of its step.

    ``kind`` is ``always`` (``is_else``: if none before it fires), ``guarded``, ``failure`` if it fires only after one,
    or ``never`` if in no run.
    """

    source: str = msgspec.field(name="from")
    to: str
    when: str | None
    kind: str
    is_else: bool
    index: int
    line: int


class StepNodeDocument(Document, frozen=True):
    """A step. ``kinds``: of its tasks. ``loop``: its levels, outermost first, as ``city, parallel``. ``join``: the
    tokens it waits for, as written. ``waits``: where its tokens may wait: ``admission``, ``next``. ``routing``:
    whether one of its arcs fires or all whose guards hold. ``is_finally``: it runs at every end. ``undone_by``: the
    kinds of the tasks that undo it.
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
    undone_by: list[str] = msgspec.field(default_factory=list)


class GraphDocument(Document, frozen=True):
    """``steps`` are the names of the ``nodes``."""

    steps: list[str]
    arcs: list[ArcDocument]
    path: str
    digest: str
    nodes: list[StepNodeDocument]


class RunCountsDocument(Document, frozen=True):
    """Step runs, or iterations, by status. Iterations that are ``waiting`` have not begun."""

    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    reused: int = 0
    skipped: int = 0


class StepActivityDocument(Document, frozen=True):
    """What happened at a step or compensation. ``status`` is that of all its runs and tokens together; null if nothing
    has happened. ``places``: how many tokens are where now. ``iterations``: of the outermost loops of all its runs;
    null without a loop.
    """

    step: str
    runs: RunCountsDocument
    iterations: RunCountsDocument | None
    places: dict[str, int]
    status: RunStatus | None = None


class ArcDecisionDocument(Document, frozen=True):
    """The last time that the arcs of a step were chosen. ``held`` is null for a guard not evaluated. ``guard`` has what
    it read then; null without a guard, or if too much would have to be read for it.
    """

    position: int
    step_run_id: str
    fired: bool
    held: bool | None
    guard: GuardDocument | None


class ArcActivityDocument(Document, frozen=True):
    """How often an arc fired, and how often it did not when the arcs of its step were chosen."""

    source: str = msgspec.field(name="from")
    to: str
    index: int
    fired: int
    skipped: int
    last: ArcDecisionDocument | None


class ExecutionGraphDocument(Document, frozen=True):
    """The graph of its playbook, and what happened up to ``position``, by step and by arc in the same order."""

    execution_id: str
    position: int
    at: Time
    graph: GraphDocument
    steps: list[StepActivityDocument]
    arcs: list[ArcActivityDocument]
