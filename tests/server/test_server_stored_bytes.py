"""What all executions of a namespace have in the object store is bounded, if the operator says so (PROTOCOL §7)."""

from __future__ import annotations

import pytest
from server_stage import Stage, measured

from noetl_stream.ports.stores.store import ExecutionRow
from noetl_stream.server.ticks.namespace_shares import LOOK_S
from noetl_testkit.simulation.work import playbook, work

SIZE = 100_002
BIG = playbook("big", [{"step": "only", "tool": work("x" * (SIZE - 2))}])


def of(path: str) -> str:
    return BIG.replace("simulation/big", path)


async def run(stage: Stage, path: str) -> ExecutionRow:
    """Runs a playbook that stores an object, and lets a server see it."""
    row = await stage.ended(await stage.submit(of(path)))
    await stage.pass_time(2 * LOOK_S)
    return row


async def test_a_result_beyond_what_a_namespace_may_store_fails_its_task(stage: Stage) -> None:
    stage.max_stored_bytes = 2 * SIZE
    await stage.server()
    await stage.pass_time(1)
    rows = []
    for path in ("team_a/one", "team_a/two", "team_a/one", "team_b/one"):
        worker = stage.start_worker()  # it does not know what others have stored
        rows.append(await run(stage, path))
        worker.kill()
    assert [row.status for row in rows] == ["completed", "completed", "failed", "completed"]
    assert rows[2].error is not None
    assert b"limit_exceeded" in rows[2].error
    assert b"beside the 200,004 of all executions of the namespace team_a, which may store 200,004" in rows[2].error


async def test_deleted_executions_give_back_what_they_stored(stage: Stage) -> None:
    stage.max_stored_bytes = SIZE
    await stage.server()
    stage.start_worker()
    await stage.pass_time(1)
    first = await run(stage, "team_a/one")
    assert (await run(stage, "team_a/one")).status == "failed"
    del stage.tables.executions[first.execution_id]
    await stage.pass_time(2 * LOOK_S)
    assert (await run(stage, "team_a/one")).status == "completed"


async def test_without_a_bound_nothing_is_added_up(stage: Stage) -> None:
    server = await stage.server()
    stage.start_worker()
    assert (await run(stage, "team_a/one")).status == "completed"
    assert stage.store.calls["stored_by_path"] == 0
    assert (server.memory_use().stored, server.memory_use().max_stored_bytes) == ({}, 0)


async def test_namespaces_with_little_room_are_shown(stage: Stage) -> None:
    stage.max_stored_bytes = 3 * SIZE
    server = await stage.server()
    stage.start_worker()
    for path in ("team_b/one", "team_a/one", "team_a/two"):
        await run(stage, path)
    assert server.memory_use().stored == {}
    await run(stage, "team_a/one")
    assert (server.memory_use().stored, server.memory_use().max_stored_bytes) == ({"team_a": 3 * SIZE}, 3 * SIZE)
    assert (await measured(server))["noetl_server_namespaces_nearly_full"] == 1


async def test_a_server_that_cannot_look_goes_on_with_what_it_knows(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.max_stored_bytes = SIZE
    server = await stage.server()
    stage.start_worker()
    await run(stage, "team_a/one")
    stage.store.away = True
    await stage.pass_time(2 * LOOK_S)
    assert "cannot look at what namespaces hold, will retry: the store is away" in caplog.text
    assert server.shares.of("team_a/one").stored_bytes == SIZE
