"""Executions counted: by time and by path or label, each by status."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

from noetl_stream.errors import UsageError
from noetl_stream.model.envelope import iso
from noetl_stream.model.ids import first_uuid7
from noetl_stream.model.status import STATUSES, ExecutionStatus
from noetl_stream.operations.executions.reading.listing import listing_of
from noetl_stream.ports.operations.executions import ExecutionFilter
from noetl_stream.ports.operations.selections import (
    MAX_BARS,
    MAX_GROUPS,
    ExecutionGroupDocument,
    ExecutionGroupsDocument,
    ExecutionHistogramDocument,
)
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.stores.tallies import ExecutionTally, TallyKey

MOST_BY_INDEX: Final = 4_000_000
"""Executions of a status that are counted from an index alone, as many in each bar."""

MOST_LOOKED_UP: Final = 20_000
"""Executions of a status that are counted where each is looked up."""

DAY_MS: Final = 86_400_000
LATEST_MS: Final = 253_370_764_800_000

BAR_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600),
    *(7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000),
)
"""How long bars may be: bars stay where they are while time goes on."""


async def histogram_of(store: Store, chosen: ExecutionFilter, bars: int, now_ms: int) -> ExecutionHistogramDocument:
    until_ms = now_ms if chosen.started_before_ms is None else chosen.started_before_ms
    since_ms = until_ms - DAY_MS if chosen.started_from_ms is None else chosen.started_from_ms
    if not 0 <= since_ms < until_ms <= LATEST_MS:
        raise UsageError("the range is empty", hint="`started_from` must be before `started_before`")
    bar_ms = _bar_ms(until_ms - since_ms, max(1, min(bars, MAX_BARS)))
    first_ms = since_ms // bar_ms * bar_ms
    count = -(-(until_ms - first_ms) // bar_ms)
    edges = [max(since_ms, first_ms + bar_ms * number) for number in range(count)]
    wanted = listing_of(chosen)
    most = MOST_LOOKED_UP if wanted.terms else MOST_BY_INDEX // count
    key = TallyKey(edges=[first_uuid7(at_ms) for at_ms in (*edges, until_ms)])
    found = await store.tally_executions(wanted, key, most)
    columns: defaultdict[ExecutionStatus, list[int]] = defaultdict(lambda: [0] * count)
    for tally in found:
        columns[tally.status][int(tally.key or 1) - 1] += tally.executions
    counts = _by_status(found)
    complete = max((one.executions for one in found), default=0) < most
    if wanted.terms:
        complete = sum(counts.values()) < most
    shown = {status: columns[status] for status in STATUSES if status in columns}
    return ExecutionHistogramDocument(
        since=iso(since_ms),
        until=iso(until_ms),
        first=iso(first_ms),
        bar_s=bar_ms // 1000,
        bars=shown,
        counts=counts,
        complete=complete,
    )


async def groups_of(store: Store, chosen: ExecutionFilter, by: str) -> ExecutionGroupsDocument:
    kind, _, label = by.partition(":")
    if by != "path" and (kind != "label" or not label):
        raise UsageError(f"{by!r} is nothing to group by", hint="use `path`, or `label:` and the name of a label")
    wanted = listing_of(chosen)
    found = await store.tally_executions(wanted, TallyKey(label=label or None), MOST_LOOKED_UP)
    by_key: defaultdict[str | None, list[ExecutionTally]] = defaultdict(list)
    for tally in found:
        by_key[tally.key].append(tally)
    groups = [ExecutionGroupDocument(key, _by_status(tallies)) for key, tallies in by_key.items()]
    groups.sort(key=lambda group: (-sum(group.counts.values()), group.value is None, group.value or ""))
    counts = _by_status(found).values()
    complete = (sum(counts) if wanted.terms else max(counts, default=0)) < MOST_LOOKED_UP
    return ExecutionGroupsDocument(groups[:MAX_GROUPS], max(0, len(groups) - MAX_GROUPS), complete)


def _bar_ms(span_ms: int, bars: int) -> int:
    """How long each of at most ``bars`` bars is: aligning the first may take one more."""
    for seconds in BAR_S:
        if seconds * 1000 * max(1, bars - 1) >= span_ms:
            return seconds * 1000
    return -(-span_ms // (max(1, bars - 1) * DAY_MS)) * DAY_MS


def _by_status(found: list[ExecutionTally]) -> dict[ExecutionStatus, int]:
    counted: Counter[ExecutionStatus] = Counter()
    for tally in found:
        counted[tally.status] += tally.executions
    return {status: counted[status] for status in STATUSES if counted[status]}
