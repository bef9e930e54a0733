"""Statistics of a playbook: what is counted, what is read, and what is said of how much of it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from operations_stage import OperationsStage

from noetl_stream.errors import NotFound
from noetl_stream.model.envelope import iso
from noetl_stream.operations.statistics import PlaybookStatistics, StatisticsBounds, durations
from noetl_stream.ports.operations.playbooks import DurationsDocument, PlaybookDocument
from noetl_testkit.conformance.store_rows import committed, execution_row
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.simulation.work import playbook, then, work

FLOW = playbook(
    "flow",
    [
        {"step": "start", "tool": work(1, 2.0), "next": then("end")},
        {"step": "end", "tool": {"kind": "noop", "args": {"x": "{{ workload.x.y }}"}}},
    ],
    workload={"x": {"y": 1}},
)
PATH = "simulation/flow"


async def registered(stage: OperationsStage, source: str = FLOW) -> PlaybookDocument:
    return await stage.playbooks.register(source.encode(), "file.yaml", "token:ada")


async def test_executions_and_steps_are_counted_with_their_durations(stage: OperationsStage) -> None:
    await stage.run(FLOW)
    await stage.run(FLOW)
    failed = await stage.run(FLOW, workload={"x": None})
    assert failed.status == "failed"
    found = await stage.playbooks.statistics(PATH)
    assert (found.executions, found.is_sample, found.statuses) == (3, False, {"completed": 2, "failed": 1})
    assert found.failure_rate == pytest.approx(1 / 3)
    assert found.duration is not None and found.duration.count == 2 and found.duration.p50 > 1.9
    assert found.sampled_executions == 3
    first, second = found.steps
    assert (first.step, first.done, first.failed, first.failure_rate) == ("start", 3, 0, 0.0)
    assert first.duration.p50 > 1.9 and first.duration.longest >= first.duration.p99
    assert (second.step, second.done, second.failed) == ("end", 2, 1)
    counted = [sum(bucket.statuses.values()) for bucket in found.buckets]
    assert sum(counted) == 3 and found.buckets[0].start <= found.until


async def test_only_executions_since_a_time_count(stage: OperationsStage) -> None:
    await registered(stage)
    await stage.run(FLOW)
    await stage.clock.sleep(1)
    now_ms = stage.clock.now_ms()
    await stage.run(FLOW)
    found = await stage.playbooks.statistics(PATH, now_ms)
    assert (found.executions, found.since) == (1, iso(now_ms))
    later = await stage.playbooks.statistics(PATH, stage.clock.now_ms() + 1)
    assert (later.executions, later.failure_rate, later.duration, later.steps) == (0, None, None, [])


async def test_a_path_without_executions_and_without_a_playbook_is_not_found(stage: OperationsStage) -> None:
    with pytest.raises(NotFound, match="no playbook simulation/flow"):
        await stage.playbooks.statistics(PATH)


async def test_a_count_of_too_many_executions_is_marked_as_a_sample(stage: OperationsStage) -> None:
    store = StagedStore(stage.clock)
    await committed(store, executions=[execution_row(name, path=PATH, started_ms=5) for name in "abc"])
    found = await PlaybookStatistics(store, StatisticsBounds(counted=2)).of(PATH, 0, 9)
    assert (found.executions, found.is_sample) == (2, True)


@pytest.mark.parametrize(("bounds", "sampled"), [({"sampled": 2}, 2), ({"events": 1}, 1), ({}, 3)])
async def test_journals_are_read_of_the_newest_until_there_is_enough(
    stage: OperationsStage, bounds: dict[str, int], sampled: int
) -> None:
    for _ in range(3):
        await stage.run(FLOW)
    counting = PlaybookStatistics(stage.store, StatisticsBounds(**bounds))
    found = await counting.of(PATH, 0, stage.clock.now_ms())
    assert (found.executions, found.sampled_executions, found.steps[0].done) == (3, sampled, sampled)


async def test_a_journal_of_an_execution_that_has_ended_is_read_once(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.run(FLOW)
    first = await stage.playbooks.statistics(PATH)

    async def unread(*_: Any) -> Any:
        raise AssertionError("the journal is read again")

    monkeypatch.setattr(stage.store, "journal", unread)
    assert (await stage.playbooks.statistics(PATH)).steps == first.steps


def test_percentiles_are_durations_that_were_measured() -> None:
    assert durations([]) is None
    assert durations([3]) == DurationsDocument(1, 3, 3, 3, 3)
    numbers = count(1)
    assert durations(next(numbers) for _ in range(200)) == DurationsDocument(200, 100, 180, 198, 200)
