"""What went on when in an execution, and the iterations of its loops, in answers of bounded size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.errors import NotFound, Unreachable, UsageError
from noetl_stream.model.events import CtxPatched, PauseRequested, ResumeRequested, SignalReceived
from noetl_stream.model.json import codec
from noetl_stream.operations.views import index as indexes
from noetl_stream.operations.views import timeline as timelines
from noetl_stream.operations.views.direct import DirectViews
from noetl_stream.operations.views.index import ExecutionIndexes
from noetl_stream.ports.operations.executions import ExecutionDocument, Start
from noetl_stream.ports.operations.reading.timelines import (
    IterationRange,
    TimelineDocument,
    TimelineRowDocument,
    TimeRange,
)
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_testkit.simulation.work import playbook, then, work

HELD = {"wait": {"timeout_s": 600}, "rules": [{"when": "{{ ctx.go is defined }}", "then": {"allow": True}}]}
AGAIN = {"rules": [{"when": "{{ outcome.error }}", "then": {"do": "retry", "attempts": 3, "delay": 2}}]}
WAITS = playbook(
    "waits",
    [
        {
            "step": "start",
            "tool": {"name": "try", **work("first", 1.0, failures=1, spec={"policy": AGAIN})},
            "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": "gate"}, {"step": "ear"}, {"step": "meet"}]},
        },
        {"step": "gate", "spec": {"policy": {"admit": HELD}}, "tool": work("gated"), "next": then("meet")},
        {
            "step": "ear",
            "tool": [{"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 600}],
            "next": then("meet"),
        },
        {"step": "meet", "spec": {"join": "all"}, "tool": {"name": "last", **work("met", 2.0)}},
    ],
)
LOOP = playbook(
    "loop",
    [
        {
            "step": "each",
            "loop": {
                "in": "{{ range(workload.count) | list }}",
                "iterator": "n",
                "spec": {"mode": "parallel", "max_in_flight": 4, "policy": {"failure": {"mode": "best_effort"}}},
            },
            "tool": {"name": "go", **work("{{ 1 // (iter.n % 10) }}", 0.5)},
        }
    ],
    workload={"count": 40},
)


async def waited(stage: OperationsStage) -> str:
    """An execution whose tokens have waited, each in its way, and that was paused."""
    started = await stage.executions.start(Start(playbook=WAITS), BY)
    one = started.execution_id
    await stage.until_status(one, "waiting")
    while not any(wait.what == "join" for wait in (await stage.executions.get(one)).waits or ()):
        await stage.clock.sleep(0.1)
    await stage.clock.sleep(10)
    await stage.ask(one, PauseRequested)
    await stage.clock.sleep(5)
    await stage.ask(one, ResumeRequested)
    await stage.ask(one, SignalReceived, signal="go")
    await stage.clock.sleep(3)
    await stage.ask(one, CtxPatched, patch={"go": 1})
    await stage.executions.wait(one, 600)
    return one


def rows_of(found: TimelineDocument) -> dict[tuple[str, str, str], TimelineRowDocument]:
    return {(row.kind, row.step, row.task): row for row in found.rows}


async def test_every_run_attempt_and_wait_has_a_span(stage: OperationsStage) -> None:
    one = await waited(stage)
    found = await stage.views.timeline(one, TimeRange())
    rows = rows_of(found)
    assert {key[:2] for key in rows} >= {
        ("step", "start"), ("task", "start"), ("step", "gate"), ("admission", "gate"), ("signal", "ear"),
        ("join", "meet"), ("step", "meet"), ("paused", ""), ("queued", "start"),
    }  # fmt: skip
    tried = rows["task", "start", "try"].spans or []
    assert [(span.status, span.ms) for span in tried] == [("failed", 1000), ("done", 1000)]
    assert tried[1].offset_ms >= tried[0].offset_ms + 2000, "the delay before the retry"
    [last] = rows["task", "meet", "last"].spans or []
    assert last.ms is not None and 1990 <= last.ms <= 2000, "as the worker measured it"
    for kind, step, task, at_least in (
        ("signal", "ear", "hear", 14_990),
        ("admission", "gate", "", 17_990),
        ("paused", "", "", 4_990),
    ):
        [span] = rows[kind, step, task].spans or []
        assert span.ms is not None and span.ms >= at_least, kind
    assert all(span.ms is not None for row in found.rows for span in row.spans or ()), "nothing goes on after the end"


async def test_running_work_has_no_end_yet_and_the_index_grows_with_the_journal(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=WAITS), BY)
    one = started.execution_id
    await stage.until_status(one, "waiting")
    before = await stage.views.timeline(one, TimeRange())
    [span] = rows_of(before)["signal", "ear", "hear"].spans or []
    assert (span.ms, span.status) == (None, "running")
    await stage.ask(one, SignalReceived, signal="go")
    await stage.ask(one, CtxPatched, patch={"go": 1})
    await stage.executions.wait(one, 600)
    after = await stage.views.timeline(one, TimeRange())
    fresh = await stage.fresh_views().timeline(one, TimeRange())
    assert after == fresh, "read in two parts or at once"


async def test_a_range_and_a_step_narrow_the_timeline(stage: OperationsStage) -> None:
    one = await waited(stage)
    whole = await stage.views.timeline(one, TimeRange())
    assert {row.step for row in (await stage.views.timeline(one, TimeRange(step="meet"))).rows} == {"meet"}
    row = await stage.store.execution(one)
    assert row is not None
    early = await stage.views.timeline(one, TimeRange(row.started_ms, row.started_ms + 500))
    assert {row.step for row in early.rows} == {"start"} < {row.step for row in whole.rows}
    with pytest.raises(UsageError, match="range of the timeline is empty"):
        await stage.views.timeline(one, TimeRange(2, 2))


WIDE = playbook(
    "wide",
    [
        {"step": "start", "next": then(*(f"step_{n:03}" for n in range(40)), mode="inclusive")},
        *({"step": f"step_{n:03}", "tool": work(n, 1.0 + n % 7)} for n in range(40)),
    ],
)


async def test_rows_that_are_left_out_are_counted_and_reached_by_rows_and_by_time(stage: OperationsStage) -> None:
    one = (await stage.run(WIDE)).execution_id
    whole = await stage.views.timeline(one, TimeRange())
    assert (whole.first, whole.more) == (0, 0)
    pages = [await stage.views.timeline(one, TimeRange(first=first, limit=25)) for first in range(0, 200, 25)]
    assert [row for page in pages for row in page.rows] == whole.rows
    assert all((page.more, page.first) == (len(whole.rows) - len(page.rows), n * 25) for n, page in enumerate(pages))
    last = max(whole.rows, key=lambda row: row.spans[0].offset_ms if row.spans else 0)
    assert last.spans is not None
    row = await stage.store.execution(one)
    assert row is not None
    at_ms = row.started_ms + last.spans[0].offset_ms
    near = await stage.views.timeline(one, TimeRange(at_ms, at_ms + 10, limit=25))
    assert (last.kind, last.step) in {(row.kind, row.step) for row in near.rows}, "zooming in reaches every row"


async def test_the_density_counts_the_step_runs_of_all_rows(stage: OperationsStage) -> None:
    one = (await stage.run(WIDE)).execution_id
    whole = await stage.views.timeline(one, TimeRange(width=60))
    part = await stage.views.timeline(one, TimeRange(width=60, first=30, limit=1))
    assert (part.runs, part.idle) == (whole.runs, whole.idle) and len(part.rows) == 1
    row = await stage.store.execution(one)
    assert row is not None
    length = row.updated_ms - row.started_ms + 1
    expected = [0] * 60
    for span in (span for row in whole.rows if row.kind == "step" for span in row.spans or ()):
        assert span.ms is not None
        for column in range(span.offset_ms * 60 // length, (span.offset_ms + span.ms) * 60 // length + 1):
            expected[column] += 1
    found = [0] * 60
    for activity in whole.runs:
        for column, columns, count in activity.columns:
            for at in range(column, column + columns):
                found[at] += count
    assert found == expected and max(found) > 5


async def test_steps_are_folded_and_single_ones_opened(stage: OperationsStage) -> None:
    one = await waited(stage)
    whole = await stage.views.timeline(one, TimeRange())
    folded = await stage.views.timeline(one, TimeRange(folded=True))
    assert {row.kind for row in folded.rows} == {"paused", "step"}
    opened = await stage.views.timeline(one, TimeRange(folded=True, toggled=("meet",)))
    assert [row for row in opened.rows if row.step == "meet"] == [row for row in whole.rows if row.step == "meet"]
    assert {row.kind for row in opened.rows if row.step not in ("meet", "")} == {"step"}
    closed = await stage.views.timeline(one, TimeRange(toggled=("meet",)))
    assert [row.kind for row in closed.rows if row.step == "meet"] == ["step"]
    assert (folded.runs, folded.idle) == (whole.runs, whole.idle), "what is folded went on all the same"


@pytest.fixture
async def looped(stage: OperationsStage) -> ExecutionDocument:
    return await stage.run(LOOP)


@pytest.mark.parametrize("width", [1, 7, 100])
async def test_many_are_counted_by_column(
    stage: OperationsStage, looped: ExecutionDocument, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns say how many were going on, as counted from the spans."""
    whole = rows_of(await stage.views.timeline(looped.execution_id, TimeRange(width=width)))
    spans = whole["task", "each", "go"].spans
    assert spans is not None
    monkeypatch.setattr(timelines, "SPANS_OF_ROW", 10)
    found = await stage.views.timeline(looped.execution_id, TimeRange(width=width))
    row = rows_of(found)["task", "each", "go"]
    assert row.spans is None and row.count == len(spans) == 40
    row_of = await stage.store.execution(looped.execution_id)
    assert row_of is not None
    total_ms = row_of.updated_ms - row_of.started_ms + 1
    for activity in row.activity or ():
        expected = [0] * width
        for span in spans:
            if span.status == activity.status:
                first = span.offset_ms * width // total_ms
                last = (span.offset_ms + (span.ms or 0)) * width // total_ms
                for column in range(first, last + 1):
                    expected[column] += 1
        shown = [0] * width
        for column, columns, count in activity.columns:
            shown[column : column + columns] = [count] * columns
        assert shown == expected, activity.status


async def test_the_iterations_of_a_loop_are_one_row(stage: OperationsStage, looped: ExecutionDocument) -> None:
    row = rows_of(await stage.views.timeline(looped.execution_id, TimeRange(width=50)))["iterations", "each", ""]
    assert (row.count, row.spans) == (40, None)
    assert {one.status for one in row.activity or ()} == {"done", "failed"}


async def run_of(stage: OperationsStage, execution_id: str) -> str:
    [run] = await stage.executions.steps(execution_id)
    return run.step_run_id


@pytest.mark.parametrize("buckets", [1, 7, 40, 1000])
async def test_a_strip_counts_each_iteration_once(
    stage: OperationsStage, looped: ExecutionDocument, buckets: int
) -> None:
    run = await run_of(stage, looped.execution_id)
    found = await stage.views.strip(looped.execution_id, run, IterationRange(), buckets)
    sums = {one.status: sum(one.counts) for one in found.strips}
    assert sums == {"done": 36, "failed": 4} == {"done": found.totals.done, "failed": found.totals.failed}
    assert {len(one.counts) for one in found.strips} == {-(-40 // found.size)}
    assert len(found.strips[0].counts) <= buckets
    part = await stage.views.strip(looped.execution_id, run, IterationRange(10, 15), 5)
    assert [(one.status, one.counts) for one in part.strips] == [("done", [0, 1, 1, 1, 1]), ("failed", [1, 0, 0, 0, 0])]


async def test_iterations_are_listed_by_range_and_status(stage: OperationsStage, looped: ExecutionDocument) -> None:
    run = await run_of(stage, looped.execution_id)
    first = await stage.views.iterations(looped.execution_id, run, IterationRange(8, status="failed"), 2)
    assert ([one.path for one in first.items], first.next) == ([[10], [20]], 30)
    error = first.items[0].error
    assert error is not None and error.kind == "expression_error"
    rest = await stage.views.iterations(looped.execution_id, run, IterationRange(30, 32), 10)
    assert [(one.path, one.status, one.attempts) for one in rest.items] == [([30], "failed", 1), ([31], "done", 1)]
    assert rest.items[1].duration_s is not None and rest.items[1].duration_s >= 0.5
    old = {
        tuple(one.path): one for one in (await stage.executions.iterations(looped.execution_id, run, 100, None)).items
    }
    every = await stage.views.iterations(looped.execution_id, run, IterationRange(), 100)
    assert [(old[tuple(one.path)].status, old[tuple(one.path)].attempts) for one in every.items] == [
        (one.status, one.attempts) for one in every.items
    ]


async def test_loops_inside_loops_have_strips_of_their_own(stage: OperationsStage) -> None:
    inner = {"in": [1, 2], "iterator": "m"}
    nested = playbook(
        "nested",
        [{"step": "each", "loop": {"in": [1, 2, 3], "iterator": "n", "loop": inner}, "tool": work("{{ iter.m }}")}],
    )
    ended = await stage.run(nested)
    assert ended.status == "completed", ended.error
    run = await run_of(stage, ended.execution_id)
    outer = await stage.views.strip(ended.execution_id, run, IterationRange(), 10)
    within = await stage.views.strip(ended.execution_id, run, IterationRange(within=(1,)), 10)
    assert (outer.count, within.count, within.totals.done) == (3, 2, 2)
    listed = await stage.views.iterations(ended.execution_id, run, IterationRange(within=(2,)), 10)
    assert [one.path for one in listed.items] == [[2, 0], [2, 1]]


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
async def test_an_iteration_around_an_inner_loop_begins_and_ends_with_it(stage: OperationsStage, mode: str) -> None:
    inner = {"in": [1, 2], "iterator": "m"}
    around = {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": mode}, "loop": inner}
    ended = await stage.run(playbook("around", [{"step": "each", "loop": around, "tool": work("{{ iter.m }}")}]))
    run = await run_of(stage, ended.execution_id)
    outer = await stage.views.strip(ended.execution_id, run, IterationRange(), 10)
    assert outer.totals.done == outer.count == 3
    pages = await stage.executions.iterations(ended.execution_id, run, 100, None)
    assert [tuple(one.path) for one in pages.items] == [path for n in range(3) for path in ((n,), (n, 0), (n, 1))]
    assert {one.status for one in pages.items} == {"done"}
    assert all(one.started and one.finished and one.started <= one.finished for one in pages.items)
    listed = await stage.views.iterations(ended.execution_id, run, IterationRange(), 100)
    assert [one.started for one in listed.items] == [one.started for one in pages.items if len(one.path) == 1]


async def test_iterations_that_never_began_are_skipped(stage: OperationsStage) -> None:
    fast = LOOP.replace("best_effort", "fail_fast").replace('"max_in_flight": 4', '"max_in_flight": 1')
    ended = await stage.run(fast)
    run = await run_of(stage, ended.execution_id)
    found = await stage.views.strip(ended.execution_id, run, IterationRange(), 40)
    assert (found.totals.failed, found.totals.waiting, found.totals.running) == (1, 0, 0)
    assert found.totals.skipped + found.totals.cancelled + found.totals.done == 39


async def test_a_step_that_is_no_loop_has_no_strip(stage: OperationsStage, looped: ExecutionDocument) -> None:
    run = await run_of(stage, looped.execution_id)
    for step_run_id, within in (("other", ()), (run, (3,))):
        with pytest.raises(NotFound):
            await stage.views.strip(looped.execution_id, step_run_id, IterationRange(within=within), 10)


async def test_the_answers_are_bounded_however_long_the_journal_is(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, int]] = []
    for count in (150, 900):
        ended = await stage.run(LOOP, workload={"count": count})
        run = await run_of(stage, ended.execution_id)
        line = await stage.views.timeline(ended.execution_id, TimeRange(width=100))
        strip = await stage.views.strip(ended.execution_id, run, IterationRange(), 100)
        sizes.append((len(codec.encode(line)), len(codec.encode(strip))))
    assert all(large < 2 * small for small, large in zip(*sizes, strict=True)), sizes
    monkeypatch.setattr(indexes, "MOST_ITERATIONS", 10)
    strip = await stage.fresh_views().strip(ended.execution_id, run, IterationRange(), 100)
    assert strip.totals.done + strip.totals.failed == 10
    monkeypatch.setattr(indexes, "MOST_SPANS", 50)
    line = await stage.fresh_views().timeline(ended.execution_id, TimeRange())
    assert line.left_out > 0 and sum(row.count for row in line.rows if row.kind != "iterations") == 50


async def test_indexes_are_kept_within_their_bytes_and_read_only_what_is_new(stage: OperationsStage) -> None:
    ended = await stage.run(LOOP, workload={"count": 100})
    reads: Any = CountingEntries(stage.store)
    kept = ExecutionIndexes(reads)
    whole = await kept.of(ended.execution_id)
    read = reads.read
    assert read > 0 and whole.position == ended.position
    assert await kept.of(ended.execution_id) is whole and reads.read == read
    small = ExecutionIndexes(reads, max_bytes=1)
    first = await small.of(ended.execution_id)
    assert await small.of(ended.execution_id) is not first, "one that has no room is not kept"


async def test_the_indexes_used_last_stay_and_their_bytes_are_known(stage: OperationsStage) -> None:
    first, second, third = [(await stage.run(LOOP, workload={"count": 100})).execution_id for _ in range(3)]
    wide = ExecutionIndexes(stage.store)
    sizes = [(await wide.of(one)).size for one in (first, second)]
    assert wide.held_bytes == sum(sizes) and wide.max_bytes == indexes.MAX_INDEX_BYTES
    kept = ExecutionIndexes(stage.store, max_bytes=sum(sizes) + 500)
    of_first, of_second = await kept.of(first), await kept.of(second)
    assert await kept.of(first) is of_first
    await kept.of(third)
    assert kept.held_bytes <= kept.max_bytes
    assert await kept.of(first) is of_first and await kept.of(second) is not of_second


async def test_an_index_that_is_being_read_counts_for_what_it_has_grown_to(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "ENTRIES_AT_ONCE", 2)
    monkeypatch.setattr(indexes, "COUNTED_EVERY", 1)
    one = (await stage.run(LOOP, workload={"count": 100})).execution_id
    grown: list[int] = []

    class Watched(CountingEntries):
        async def journals(self, *args: Any) -> Any:
            grown.append(kept.held_bytes)
            return await super().journals(*args)

    watched: Any = Watched(stage.store)
    kept = ExecutionIndexes(watched)
    await kept.of(one)
    assert len(set(grown)) > 3 and grown[-1] > grown[0]


async def test_events_read_so_far_are_answered_while_a_long_journal_is_read(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "FIRST_ENTRIES", 2)
    monkeypatch.setattr(indexes, "ENTRIES_AT_ONCE", 2)
    ended = await stage.run(LOOP, workload={"count": 100})
    one, held = ended.execution_id, asyncio.Event()

    class Slow(CountingEntries):
        async def journals(self, *args: Any) -> Any:
            if self.read > 3:
                await held.wait()
            return await super().journals(*args)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    slow: Any = Slow(stage.store)
    views = DirectViews(slow, stage.checking, UsedSecrets(MemoryCredentials(stage.clock), None))
    graph, _ = await asyncio.gather(*(views.graph(one, so_far=True) for _ in range(2)))
    assert 0 < graph.position < ended.position
    line = await views.timeline(one, TimeRange(), so_far=True)
    assert graph.position <= line.position < ended.position

    held.set()
    while (await views.graph(one, so_far=True)).position < ended.position:
        await stage.clock.sleep(0.01)
    assert await views.graph(one) == await stage.views.graph(one)
    assert slow.read == len((await stage.store.journals({one: 0}))[one]), "each entry is read once"


async def test_an_index_that_could_not_be_read_is_read_when_it_is_asked_for_again(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "FIRST_ENTRIES", 2)
    ended = await stage.run(LOOP, workload={"count": 100})
    one = ended.execution_id

    class Away(CountingEntries):
        is_away = False

        async def journals(self, *args: Any) -> Any:
            if self.read and self.is_away:
                raise Unreachable("the store is away")
            return await super().journals(*args)

    away: Any = Away(stage.store)
    away.is_away = True
    kept = ExecutionIndexes(away)
    index = await kept.so_far(one)
    await stage.clock.sleep(1)
    with pytest.raises(Unreachable):
        await kept.so_far(one)
    away.is_away = False
    assert (await kept.of(one)) is index and index.position == ended.position


class CountingEntries:
    """A store that counts the entries that are read of journals."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.read = 0

    async def journals(self, *args: Any) -> Any:
        found = await self._store.journals(*args)
        self.read += sum(map(len, found.values()))
        return found
