"""Namespaces have their turns in a pool: who has thousands of commands there holds up nobody (LANGUAGE §15)."""

from __future__ import annotations

from pathlib import Path

import pytest
from server_stage import Stage

from noetl_stream.model.priorities import DEFAULT_PRIORITY, PASSED_OVER
from noetl_stream.server.ticks.namespace_turns import CROWD, LESS
from noetl_stream.settings.grants import GrantsFile
from noetl_testkit.simulation.work import playbook, work

MANY = 200
SLOTS = 4
TAKES_S = 1.0


def of(path: str, priority: int = 5) -> str:
    """A playbook of one command, at this path."""
    text = playbook("one", [{"step": "only", "tool": work("done", TAKES_S)}], executor={"spec": {"priority": priority}})
    return text.replace("simulation/one", path)


async def flooded(stage: Stage, path: str = "loud/work", count: int = MANY, priority: int = 5) -> list[str]:
    """Many executions of a namespace, whose commands all wait in the pool."""
    before = len(stage.broker.command_queue.queued)
    ids = [await stage.submit(of(path, priority)) for _ in range(count)]
    await stage.until(lambda: len(stage.broker.command_queue.queued) == before + count)
    return ids


async def ended_before(stage: Stage, ids: list[str], last: str) -> int:
    """How many of these executions end before another one."""
    await stage.ended(last)
    return sum(stage.tables.executions[one].finished_ms is not None for one in ids)


@pytest.mark.parametrize(("loud_at", "quiet_at"), [(5, 5), (6, 5), (9, 9), (0, 0), (9, 5)])
async def test_the_first_command_of_a_namespace_does_not_wait_for_hundreds_of_another(
    stage: Stage, loud_at: int, quiet_at: int
) -> None:
    await stage.server()
    loud = await flooded(stage, priority=loud_at)
    quiet = await stage.submit(of("quiet/work", quiet_at))
    stage.start_worker(SLOTS)
    assert await ended_before(stage, loud, quiet) <= PASSED_OVER + 2 * SLOTS


async def test_a_namespace_with_far_fewer_commands_than_another_passes_it_with_all_of_them(stage: Stage) -> None:
    await stage.server()
    loud = await flooded(stage)
    quiet = await flooded(stage, "quiet/work", MANY // LESS)
    stage.start_worker(SLOTS)
    assert await ended_before(stage, loud, quiet[-1]) <= len(quiet) // PASSED_OVER + 3 * SLOTS


async def test_two_namespaces_with_many_commands_wait_for_each_other_in_the_order_of_issue(stage: Stage) -> None:
    await stage.server()
    await flooded(stage)
    await flooded(stage, "second/work")
    [pool] = await stage.broker.command_queue.pools()
    passing = -(-MANY // LESS)
    assert pool.by_priority == {DEFAULT_PRIORITY + 1: passing, DEFAULT_PRIORITY: 2 * MANY - passing}


async def test_a_namespace_that_is_passed_still_has_its_turns(stage: Stage) -> None:
    await stage.server()
    loud = await flooded(stage)
    await flooded(stage, "quiet/work", MANY // LESS)
    stage.start_worker(SLOTS)
    assert [(await stage.ended(one)).status for one in loud] == ["completed"] * MANY


async def test_a_pool_that_one_namespace_uses_alone_keeps_its_order_and_its_only_line(stage: Stage) -> None:
    await stage.server()
    alone = await flooded(stage, count=CROWD + SLOTS)
    [pool] = await stage.broker.command_queue.pools()
    assert pool.by_priority == {DEFAULT_PRIORITY: len(alone)}
    stage.start_worker(1)
    await stage.ended(alone[-1])
    ends = [stage.tables.executions[one].finished_ms or 0 for one in alone]
    assert ends == sorted(ends)


async def test_the_operator_says_which_paths_are_namespaces(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "grants.yaml"
    granted = "{ paths: [ team ], pools: [ default ], kinds: [ work ] }"
    file.write_text(f"namespaces: [ team/loud, team/quiet ]\ngrants: [ {granted} ]\n")
    stage.grants = GrantsFile(file)
    await stage.server()
    loud = await flooded(stage, "team/loud/work")
    quiet = await stage.submit(of("team/quiet/work"))
    stage.start_worker(SLOTS)
    assert await ended_before(stage, loud, quiet) <= 2 * SLOTS


async def test_a_server_forgets_commands_that_are_over(stage: Stage) -> None:
    server = await stage.server()
    loud = await flooded(stage)
    assert server.turns.owed == MANY
    stage.start_worker(SLOTS)
    for one in loud:
        await stage.ended(one)
    assert server.turns.owed == 0
