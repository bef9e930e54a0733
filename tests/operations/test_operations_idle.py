"""Idle means idle: no time in which something ran, or happened, is ever said to be one in which nothing did."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from operations_stage import BY, OperationsStage

from effort import times
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import StepScheduled, Token, TokenClaimed, TokenEnqueued
from noetl_stream.model.events.composite import StepRan, TaskRan
from noetl_stream.model.events.journal_reader import Recorded
from noetl_stream.model.ids import command_of, step_run_of
from noetl_stream.model.json.codec import payload_of
from noetl_stream.operations.views.busy import LEAST_IDLE_MS, BusyTimes
from noetl_stream.operations.views.index import ExecutionIndex
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.operations.reading.timelines import TimeRange
from noetl_stream.tools.contract import ToolCall, ToolResult
from noetl_testkit.simulation.random_playbooks import random_source
from noetl_testkit.simulation.work import JOBS, REGISTERED, WorkTool

UNHEARD_MS = 200
"""A worker reports what it has begun within so long, and what it reports takes a moment."""


class Watched:
    """A tool that notes when each of its calls ran, by execution: ``None`` for the end of one that runs."""

    spec = WorkTool.spec

    def __init__(self, stage: OperationsStage) -> None:
        self.stage = stage
        self.ran: dict[str, list[list[int | None]]] = {}
        self._tool = WorkTool(stage.clock, stage.effects, self._goes_on)

    async def _goes_on(self) -> None:
        return None

    async def run(self, call: ToolCall) -> ToolResult:
        span: list[int | None] = [self.stage.clock.now_ms(), None]
        self.ran.setdefault(call.execution_id, []).append(span)
        try:
            return await self._tool.run(call)
        finally:
            span[1] = self.stage.clock.now_ms()

    async def close(self) -> None:
        return None


@pytest.fixture
async def watched() -> Any:
    stage = OperationsStage()
    await stage.begin(())
    tool = Watched(stage)
    stage.begin_worker("worker", tool)
    for text in REGISTERED.values():
        await stage.playbooks.register(text.encode(), "playbook", BY)
    yield tool
    await stage.close()


async def idle_times(watched: Watched, execution_id: str, chosen: TimeRange) -> list[tuple[int, int]]:
    """The idle times of a range, in ms since the epoch; one that goes on is as long as it is known to be."""
    found = await watched.stage.views.timeline(execution_id, chosen)
    row = await watched.stage.store.execution(execution_id)
    assert row is not None
    since_ms = row.started_ms if chosen.since_ms is None else chosen.since_ms
    assert found.since == iso(since_ms)
    now_ms = watched.stage.clock.now_ms() - UNHEARD_MS
    spans = [
        (one.offset_ms + since_ms, now_ms if one.ms is None else one.offset_ms + since_ms + one.ms)
        for one in found.idle
    ]
    return [(begin, end) for begin, end in spans if end - begin >= LEAST_IDLE_MS]


async def assert_idle_is_idle(watched: Watched, execution_id: str, chosen: TimeRange) -> int:
    idle = await idle_times(watched, execution_id, chosen)
    now_ms = watched.stage.clock.now_ms()
    for begin, end in idle:
        for ran in watched.ran.get(execution_id, ()):
            assert ran[0] is not None
            assert end <= ran[0] or begin >= (ran[1] or now_ms), (begin, end, ran, chosen)
    return len(idle)


async def looked_at(watched: Watched, source: str) -> int:
    """Runs a playbook, and looks at its timeline all the while and by parts. Returns how many idle times it had."""
    stage = watched.stage
    one = (await stage.executions.start(Start(playbook=source), BY)).execution_id
    found = None
    for _ in range(12):
        await stage.clock.sleep(1.3)
        found = await stage.executions.get(one)
        if found.finished is not None:
            break
        await assert_idle_is_idle(watched, one, TimeRange())
    row = await stage.store.execution(one)
    assert row is not None
    whole = await assert_idle_is_idle(watched, one, TimeRange())
    length = row.updated_ms - row.started_ms
    for part in range(0, length, max(1, length // 4)):
        since_ms = row.started_ms + part
        await assert_idle_is_idle(watched, one, TimeRange(since_ms, since_ms + length // 3 + 1))
    return whole


@pytest.mark.parametrize("shape", JOBS, ids=lambda job: job.name)
async def test_no_time_in_which_a_task_ran_is_idle(watched: Watched, shape: Any) -> None:
    if not shape.accepted:
        return
    found = await looked_at(watched, shape.source)
    if shape.name in ("waiting", "overdue", "signalled", "approved"):
        assert found, "what waits for long is idle"


async def test_no_time_in_which_a_task_of_a_random_playbook_ran_is_idle(watched: Watched) -> None:
    found = [await looked_at(watched, random_source(seed, confluent=True)) for seed in range(times(12))]
    assert sum(found) > 0


def test_work_that_is_reported_late_counts_at_the_time_its_worker_measured() -> None:
    run, token = step_run_of("one", "token"), Token("token", "only", "start")
    task = TaskRan("task", payload_of({}), 4_000, 10_000, 6.0)
    index = ExecutionIndex("one")
    for at_ms, fact in (
        (1_000, TokenEnqueued(token)),
        (1_000, TokenClaimed("token", run)),
        (1_000, StepScheduled(run, command_of(run))),
        (10_000, StepRan(run, "worker", [task])),
    ):
        index.read(Recorded(fact, index.position + 1, at_ms, run, command_of(run)))
        index.busy.add(at_ms, at_ms)
    assert index.busy.idle(1_000, 10_001, 0) == [(1_000, 4_000), (10_000, None)]


class Step(NamedTuple):
    """Something that happens after ``after_ms``: to a command of a run."""

    after_ms: int
    act: str
    run: int
    command: str
    ms: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from([0, 1, 400, 900, 1100, 3000, 60_000]),
        st.sampled_from(["owed", "starts", "ends", "ends_run", "measured", "happens"]),
        st.integers(0, 2),
        st.sampled_from("ab"),
        st.sampled_from([0, 500, 2_500, 10_000]),
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=times(200), deadline=None)
@example([Step(1_100, "happens", 0, "a", 0), Step(400, "measured", 0, "a", 500)], (0.0, 1.0), 0)  # a break of a second
@given(STEPS, st.tuples(st.floats(0, 1), st.floats(0, 1)), st.sampled_from([0, 1_000, 5_000]))
def test_idle_times_are_what_is_left_of_all_commands_that_ran(
    steps: list[Step], part: tuple[float, float], least_ms: int
) -> None:
    busy, at_ms = BusyTimes(), 1_000_000
    owed: dict[tuple[int, str], int] = {}
    began: dict[tuple[int, str], int] = {}
    ran: list[tuple[int, float]] = [(at_ms, at_ms)]
    busy.add(at_ms, at_ms)
    for step in steps:
        at_ms += step.after_ms
        one = (step.run, step.command)
        busy.add(at_ms, at_ms)
        ran.append((at_ms, at_ms))
        if step.act == "owed":
            busy.owed(*one, at_ms, ())
            owed.setdefault(one, at_ms)
        elif step.act == "starts":
            busy.starts(*one, at_ms)
            began.setdefault(one, at_ms)
            owed.setdefault(one, at_ms)
        elif step.act == "measured":
            busy.measured(*one, at_ms - step.ms, at_ms)
            ran.append((max(at_ms - step.ms, owed.get(one, 0)), at_ms))
        elif step.act in ("ends", "ends_run"):
            ended = [one] if step.act == "ends" else [key for key in (*owed,) if key[0] == step.run]
            busy.ends(*one, at_ms) if step.act == "ends" else busy.ends_run(step.run, at_ms)
            for key in ended:
                owed.pop(key, None)
                if key in began:
                    ran.append((began.pop(key), at_ms))
    ran += [(begin, float("inf")) for begin in began.values()]
    length = at_ms - 1_000_000 + 2_000
    since_ms, until_ms = sorted(1_000_000 + round(share * length) for share in part)
    if since_ms == until_ms:
        return
    found = busy.idle(since_ms, until_ms, least_ms)
    assert [(begin, end) for begin, end in found if end is not None] == left_of(ran, since_ms, until_ms, least_ms)
    assert all(end is not None for _, end in found[:-1])
    goes_on = bool(found) and found[-1][1] is None
    assert goes_on == (not began and until_ms > at_ms)


def left_of(ran: list[tuple[int, float]], since_ms: int, until_ms: int, least_ms: int) -> list[tuple[int, int]]:
    """The gaps between times in which something ran, one moment after the other; without the one at the very end."""
    edges = sorted({since_ms, until_ms, *(round(ms) for span in ran for ms in span if since_ms < ms < until_ms)})
    gaps: list[tuple[int, int]] = []
    for begin, end in pairwise(edges):
        if any(of <= begin and to >= end for of, to in ran if to > of):
            continue
        gaps.append((begin, end))
    least_ms = max(least_ms, LEAST_IDLE_MS)
    last_ms = max(to for _, to in ran)
    return [(begin, end) for begin, end in gaps if end - begin >= least_ms and begin < last_ms]
