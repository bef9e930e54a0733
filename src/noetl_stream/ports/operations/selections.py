"""Many executions at once: verbs on them, each with an outcome of its own (LANGUAGE §9), and counts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from noetl_stream.errors import UsageError
from noetl_stream.model.envelope import Time
from noetl_stream.model.status import ENDED, ExecutionStatus
from noetl_stream.ports.operations.executions import ExecutionFilter, RequestIds, RerunOptions
from noetl_stream.ports.operations.verbs import Default, Document, Named, Next, verb

MAX_SELECTED: Final = 1_000
"""The most executions of one call."""

MAX_BARS: Final = 500
MAX_GROUPS: Final = 200

BulkVerb = Literal["cancel", "pause", "resume", "retry", "rerun", "delete"]

APPLIES_TO: Final[Mapping[BulkVerb, Sequence[ExecutionStatus]]] = {
    "cancel": ("pending", "running", "waiting", "paused", "quarantined"),
    "pause": ("pending", "running", "waiting"),
    "resume": ("paused", "quarantined"),
    "retry": ("failed",),
    "rerun": ENDED,
    "delete": ENDED,
}
"""The statuses of executions to which a verb applies: a filter without statuses selects these."""

BulkOutcome = Literal["would", "skipped", "done", "already", "refused", "left"]


class BulkOrder(msgspec.Struct, frozen=True, gc=False):
    """A verb for several executions.

    Attributes:
        ids: Which ones, at most :data:`MAX_SELECTED`; ``None``: those that ``chosen`` finds, newest first.
        dry_run: Only say which it would be done to, and what would be skipped.
        limit: Of those that ``chosen`` finds; ``cursor`` is where to go on.
        options: Reason and correlation id of all verbs; the changes of ``retry`` and ``rerun``, and its step.
    """

    verb: BulkVerb
    ids: Sequence[str] | None = None
    chosen: ExecutionFilter = ExecutionFilter()
    dry_run: bool = False
    limit: int = 100
    cursor: str | None = None
    options: RerunOptions = RerunOptions()

    @property
    def selected(self) -> ExecutionFilter:
        """``chosen``, with the statuses that the verb is for if it has none.

        Raises:
            UsageError: it has no condition at all.
        """
        if self.chosen == ExecutionFilter():
            raise UsageError("nothing is selected", hint="name ids, or a status, path, label, error or time")
        if self.chosen.status:
            return self.chosen
        return msgspec.structs.replace(self.chosen, status=APPLIES_TO[self.verb])


class BulkItemDocument(Document, frozen=True, omit_defaults=True):
    """What became of one execution. ``outcome``: it ``would`` be done to it or would be ``skipped`` (a dry run); it is
    ``done``, was so ``already``, was ``refused``, or is ``left``, since time ran out. ``path`` and ``status`` are those
    it had before, ``position`` is where its journal has the request, ``made`` the new execution of a retry or rerun,
    ``detail`` why not, ``hint`` what to do about it.
    """

    execution_id: str
    outcome: BulkOutcome
    path: str | None = None
    status: ExecutionStatus | None = None
    position: int | None = None
    made: str | None = None
    detail: str | None = None
    hint: str | None = None


class BulkDocument(Document, frozen=True):
    """What became of each, in the order of the ids or of the list. ``counts`` are by outcome."""

    items: list[BulkItemDocument]
    counts: dict[BulkOutcome, int]
    next: Next


class ExecutionHistogramDocument(Document, frozen=True):
    """When executions were started, by the times in their ids, from ``since`` to ``until``: how many of each status are
    in each bar. Bars are ``bar_s`` seconds long; the first begins at ``first``. ``counts`` are totals. Not
    ``complete``: of a status with very many only the newest are counted.
    """

    since: Time
    until: Time
    first: Time
    bar_s: int
    bars: dict[ExecutionStatus, list[int]]
    counts: dict[ExecutionStatus, int]
    complete: bool


class ExecutionGroupDocument(Document, frozen=True):
    """Executions of a path, or with this ``value`` of a label; null: without it."""

    value: str | None
    counts: dict[ExecutionStatus, int]


class ExecutionGroupsDocument(Document, frozen=True):
    """The largest first; ``more`` counts those that are left out. Not ``complete``: of a status with very many
    executions only the newest are counted.
    """

    items: list[ExecutionGroupDocument]
    more: int
    complete: bool


OF_A_DAY: Final = "Of the last 24 hours, unless `started_from` and `started_before` say otherwise."


class Selections(Protocol):
    """``by`` is the principal that acts, as shown in the events, or in the audit of deletions."""

    @verb("POST", "/bulk", scope="special")
    async def act(self, wanted: BulkOrder, by: str, ids: RequestIds | None = None) -> BulkDocument:
        """Asked again with the same ``ids``, nothing is done twice.

        Raises:
            UsageError: too many ids, an empty filter, or a rerun without a step.
            Unreachable, NotReady: the others could not be done either. Some may be done.
        """

    @verb(
        "GET",
        "/executions/histogram",
        "countExecutions",
        scope="special",
        replica=True,
        heavy=True,
        description=OF_A_DAY,
    )
    async def histogram(
        self,
        chosen: ExecutionFilter,
        bars: Annotated[int, Default(60), Meta(ge=1, le=MAX_BARS, description="At most so many.")],
    ) -> ExecutionHistogramDocument:
        """Count executions by status over the time of their start."""

    @verb("GET", "/executions/groups", "groupExecutions", scope="special", replica=True, heavy=True)
    async def groups(
        self,
        chosen: ExecutionFilter,
        key: Annotated[
            str, Named("by"), Meta(pattern=r"^(path|label:.+)$", max_length=256, description="`path`, or `label:NAME`.")
        ],
    ) -> ExecutionGroupsDocument:
        """Count executions by status and by path or a label.

        Args:
            key: ``path``, or ``label:NAME``.
        """
