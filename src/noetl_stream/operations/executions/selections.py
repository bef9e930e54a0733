"""Many executions at once: verbs on each of them, and counts by status."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from noetl_stream.concurrency import for_each
from noetl_stream.errors import NoetlError, NotReady, Unreachable, UsageError
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import CancelRequested, InterventionFact, PauseRequested, ResumeRequested
from noetl_stream.model.ids import derive, first_uuid7, id_beside, is_valid_id, uuid7
from noetl_stream.model.json import codec
from noetl_stream.model.status import ENDED, STATUSES, ExecutionStatus
from noetl_stream.operations.executions.reading.known import listing_of
from noetl_stream.operations.paging import MAX_PAGE, cursor_of
from noetl_stream.operations.recording import OnRecord
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations import selections as documents
from noetl_stream.ports.operations.executions import ExecutionFilter, Executions, ListedExecutionDocument, RequestIds
from noetl_stream.ports.stores.store import ListingFilter, Store
from noetl_stream.ports.stores.tallies import ExecutionTally, TallyKey

BEGUN_WITHIN_S: Final = 15.0
"""The time after which no further execution is begun, so that a call is answered in time."""

_FACTS: Final[dict[documents.BulkVerb, type[InterventionFact]]] = {
    "cancel": CancelRequested,
    "pause": PauseRequested,
    "resume": ResumeRequested,
}


class _Subject(msgspec.Struct, frozen=True, gc=False):
    """An execution with its known row; without one if it does not exist, or was named and not looked up."""

    execution_id: str
    path: str | None = None
    status: ExecutionStatus | None = None

    def became(self, outcome: documents.BulkOutcome, **more: Any) -> documents.BulkItemDocument:
        return documents.BulkItemDocument(self.execution_id, outcome, self.path, self.status, **more)


class DirectSelections:
    """:class:`~noetl_stream.ports.operations.selections.Selections`, where each method is described.

    Args:
        record: Records each deletion of an execution: a call is recorded as a whole.
    """

    def __init__(self, executions: Executions, store: Store, clock: Clock, record: OnRecord) -> None:
        self._executions = executions
        self._store = store
        self._clock = clock
        self._record = record

    async def act(self, wanted: documents.BulkOrder, by: str, ids: RequestIds | None = None) -> documents.BulkDocument:
        if (wanted.options.step is not None) != (wanted.verb == "rerun"):
            raise UsageError("a rerun, and nothing else, starts from a step", hint="`retry` starts where it failed")
        subjects, following = await self._subjects(wanted)
        if wanted.dry_run:
            items = [_tried(wanted.verb, subject) for subject in subjects]
        else:
            ids = ids or RequestIds(self._new_id(), self._new_id())
            items = await self._acted(wanted, subjects, by, ids)
        return documents.BulkDocument(items, dict(Counter(item.outcome for item in items)), following)

    async def histogram(self, chosen: ExecutionFilter, bars: int) -> documents.ExecutionHistogramDocument:
        tallies = self._tallies(chosen, shown=chosen.searches_values)
        return await histogram_of(tallies, chosen, bars, self._clock.now_ms())

    async def groups(self, chosen: ExecutionFilter, key: str) -> documents.ExecutionGroupsDocument:
        shown = chosen.searches_values or key != "path"
        most = MOST_SHOWN if shown else MOST_LOOKED_UP
        return await groups_of(self._tallies(chosen, shown=shown), chosen, key, most, in_all=shown)

    def _tallies(self, chosen: ExecutionFilter, *, shown: bool) -> Tallies:
        return _ShownTallies(self._executions, chosen) if shown else self._store

    async def _subjects(self, wanted: documents.BulkOrder) -> tuple[list[_Subject], str | None]:
        if wanted.ids is None:
            page = await self._executions.page(
                wanted.selected, min(wanted.limit, documents.MAX_SELECTED), wanted.cursor
            )
            return [_Subject(one.execution_id, one.path, one.status) for one in page.items], page.next
        named = list(dict.fromkeys(wanted.ids))
        if len(named) > documents.MAX_SELECTED:
            raise UsageError(f"{len(named)} ids are too many", hint=f"send at most {documents.MAX_SELECTED} at once")
        rows = await self._store.listed_executions([one for one in named if is_valid_id(one)])
        known = {one: _Subject(one, row.path, row.status) for one, row in rows.items()}
        return [known.get(one) or _Subject(one) for one in named], None

    async def _acted(
        self, wanted: documents.BulkOrder, subjects: list[_Subject], by: str, ids: RequestIds
    ) -> list[documents.BulkItemDocument]:
        items: dict[str, documents.BulkItemDocument] = {}
        until_s = self._clock.monotonic_s() + BEGUN_WITHIN_S

        async def one(subject: _Subject) -> None:
            if self._clock.monotonic_s() >= until_s:
                item = subject.became("left", detail="the time had passed")
            else:
                item = await self._outcome(wanted, subject, by, ids)
            items[subject.execution_id] = item

        await for_each(subjects, one)
        return [items[subject.execution_id] for subject in subjects]

    async def _outcome(
        self, wanted: documents.BulkOrder, subject: _Subject, by: str, ids: RequestIds
    ) -> documents.BulkItemDocument:
        try:
            return await self._done(wanted, subject, by, ids)
        except (Unreachable, NotReady):
            raise  # the others would fail alike
        except NoetlError as error:
            return subject.became("refused", detail=error.message, hint=error.hint)

    async def _done(
        self, wanted: documents.BulkOrder, subject: _Subject, by: str, ids: RequestIds
    ) -> documents.BulkItemDocument:
        execution_id, options = subject.execution_id, wanted.options
        request_id = derive(ids.request_id, wanted.verb, execution_id)
        match wanted.verb:
            case "delete":
                async with self._record("deleteExecution", execution_id, by):
                    await self._executions.delete(execution_id, by)
                return subject.became("done")
            case "retry" | "rerun":
                new_ids = RequestIds(id_beside(ids.execution_id, request_id), request_id)
                made = await self._executions.rerun(execution_id, options, by, new_ids)
                return subject.became("done", made=made.execution_id)
        fact = _FACTS[wanted.verb](request_id, by, options.reason, options.correlation_id)
        answer = await self._executions.ask(execution_id, fact)
        return subject.became("already" if answer.already else "done", position=answer.position)

    def _new_id(self) -> str:
        return uuid7(self._clock.now_ms(), self._clock.random_bytes(10))


def _tried(verb: documents.BulkVerb, subject: _Subject) -> documents.BulkItemDocument:
    """The expected outcome, by its status."""
    status = subject.status
    if status is None:
        why: str | None = f"execution {subject.execution_id} not found"
    elif status in documents.APPLIES_TO[verb]:
        why = None
    elif status in ENDED:
        why = f"it has ended ({status})"
    elif documents.APPLIES_TO[verb] == ENDED or verb == "retry":
        why = f"it has not ended ({status})"
    else:
        why = f"it is {status}"
    return subject.became("would" if why is None else "skipped", detail=why)


MOST_BY_INDEX: Final = 4_000_000
"""The most executions of a status that are counted from an index alone, in all bars together."""

MOST_LOOKED_UP: Final = 20_000
"""The most executions of a status that are counted by looking up each."""

MOST_SHOWN: Final = 5_000
"""The most executions that are counted by examining what each shows."""


class Tallies(Protocol):
    """A counter of executions: a store, or one that examines each."""

    async def tally_executions(self, wanted: ListingFilter, key: TallyKey, limit: int) -> list[ExecutionTally]: ...


class _ShownTallies:
    """Counts the executions that show what was searched for: a store would also find hidden values."""

    def __init__(self, executions: Executions, chosen: ExecutionFilter) -> None:
        self._executions = executions
        self._chosen = chosen

    async def tally_executions(self, wanted: ListingFilter, key: TallyKey, limit: int) -> list[ExecutionTally]:
        """Returns counts of the newest, up to ``limit`` in all."""
        listed, cursor = self._chosen, None
        if key.edges:
            listed, cursor = replace(listed, started_from_ms=None, started_before_ms=None), cursor_of(key.edges[-1])
        found: Counter[tuple[ExecutionStatus, str | None]] = Counter()
        while found.total() < limit:
            page = await self._executions.page(listed, min(MAX_PAGE, limit - found.total()), cursor)
            items = [one for one in page.items if not key.edges or one.execution_id >= key.edges[0]]
            found.update((one.status, _tally_key(one, key)) for one in items)
            cursor = page.next
            if cursor is None or len(items) < len(page.items):
                break
        return [ExecutionTally(status, value, count) for (status, value), count in found.items()]


DAY_MS: Final = 86_400_000
LATEST_MS: Final = 253_370_764_800_000

BAR_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600),
    *(7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000),
)
"""The lengths of bars: bars keep their places as time passes."""


async def histogram_of(
    tallies: Tallies, chosen: ExecutionFilter, bars: int, now_ms: int
) -> documents.ExecutionHistogramDocument:
    until_ms = now_ms if chosen.started_before_ms is None else chosen.started_before_ms
    since_ms = until_ms - DAY_MS if chosen.started_from_ms is None else chosen.started_from_ms
    if not 0 <= since_ms < until_ms <= LATEST_MS:
        raise UsageError("the range is empty", hint="`started_from` must be before `started_before`")
    bar_ms = _bar_ms(until_ms - since_ms, max(1, min(bars, documents.MAX_BARS)))
    first_ms = since_ms // bar_ms * bar_ms
    count = -(-(until_ms - first_ms) // bar_ms)
    edges = [max(since_ms, first_ms + bar_ms * number) for number in range(count)]
    wanted = listing_of(chosen)
    most = MOST_LOOKED_UP if wanted.terms else MOST_BY_INDEX // count
    most = min(most, MOST_SHOWN) if chosen.searches_values else most
    key = TallyKey(edges=[first_uuid7(at_ms) for at_ms in (*edges, until_ms)])
    found = await tallies.tally_executions(wanted, key, most)
    columns: defaultdict[ExecutionStatus, list[int]] = defaultdict(lambda: [0] * count)
    for tally in found:
        columns[tally.status][int(tally.key or 1) - 1] += tally.executions
    counts = _by_status(found)
    complete = max((one.executions for one in found), default=0) < most
    if wanted.terms:
        complete = sum(counts.values()) < most
    shown = {status: columns[status] for status in STATUSES if status in columns}
    return documents.ExecutionHistogramDocument(
        since=iso(since_ms),
        until=iso(until_ms),
        first=iso(first_ms),
        bar_s=bar_ms // 1000,
        bars=shown,
        counts=counts,
        complete=complete,
    )


async def groups_of(
    tallies: Tallies, chosen: ExecutionFilter, by: str, most: int = MOST_LOOKED_UP, *, in_all: bool = False
) -> documents.ExecutionGroupsDocument:
    """
    Args:
        in_all: Whether ``most`` bounds all executions together, instead of those of each status.
    """
    kind, _, label = by.partition(":")
    if by != "path" and (kind != "label" or not label):
        raise UsageError(f"{by!r} is nothing to group by", hint="use `path`, or `label:` and the name of a label")
    wanted = listing_of(chosen)
    found = await tallies.tally_executions(wanted, TallyKey(label=label or None), most)
    by_key: defaultdict[str | None, list[ExecutionTally]] = defaultdict(list)
    for tally in found:
        by_key[tally.key].append(tally)
    groups = [documents.ExecutionGroupDocument(key, _by_status(tallies)) for key, tallies in by_key.items()]
    groups.sort(key=lambda group: (-sum(group.counts.values()), group.value is None, group.value or ""))
    counts = _by_status(found).values()
    complete = (sum(counts) if in_all or wanted.terms else max(counts, default=0)) < most
    return documents.ExecutionGroupsDocument(
        groups[: documents.MAX_GROUPS], max(0, len(groups) - documents.MAX_GROUPS), complete
    )


def _tally_key(shown: ListedExecutionDocument, key: TallyKey) -> str | None:
    if key.edges:
        return str(bisect_right(key.edges, shown.execution_id))
    if key.label is None:
        return shown.path
    value = shown.labels.get(key.label)
    return value if value is None or isinstance(value, str) else codec.encode(value).decode()


def _bar_ms(span_ms: int, bars: int) -> int:
    """The length of each of at most ``bars`` bars: aligning the first may take one more."""
    for seconds in BAR_S:
        if seconds * 1000 * max(1, bars - 1) >= span_ms:
            return seconds * 1000
    return -(-span_ms // (max(1, bars - 1) * DAY_MS)) * DAY_MS


def _by_status(found: list[ExecutionTally]) -> dict[ExecutionStatus, int]:
    counted: Counter[ExecutionStatus] = Counter()
    for tally in found:
        counted[tally.status] += tally.executions
    return {status: counted[status] for status in STATUSES if counted[status]}
