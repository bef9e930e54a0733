"""Executions forgotten, with what they alone keep in the object store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from operations_stage import BY, OperationsStage

from noetl_stream.errors import BlobMissing, Conflict, NotFound
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.ports.operations.executions import ExecutionFilter, RerunOptions, Start
from noetl_stream.ports.stores.store import ObjectUseRow, StoredEvent
from noetl_testkit.simulation.work import playbook, then, work

HEAR = {"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 60}
HEARS = playbook("hears", [{"step": "ear", "tool": [HEAR]}])
BIG = "x" * (DEFAULT_LIMITS.max_inline_bytes + 1)
STEPS: list[dict[str, Any]] = [
    {"step": "start", "tool": work(BIG), "next": then("gate")},
    {"step": "gate", "tool": work("{{ ctx.name }}")},
]
AGAIN = RerunOptions(ctx={"name": "ada"})


async def test_an_ended_execution_is_forgotten_with_its_objects(stage: OperationsStage) -> None:
    loop = {"in": [1, 2], "iterator": "n", "spec": {"mode": "parallel"}}
    gone = await stage.run(playbook("big", [{"step": "all", "loop": loop, "tool": work(BIG)}]))
    stays = await stage.run(playbook("big", [{"step": "only", "tool": work(BIG)}]))
    execution_id = gone.execution_id
    keys = [key for key in stage.broker.blobs.keys if key.startswith(f"{execution_id}/")]
    assert len(keys) == 2
    await stage.executions.delete(execution_id, BY)
    with pytest.raises(NotFound):
        await stage.executions.get(execution_id)
    assert await stage.store.journal(execution_id) == []
    for key in keys:
        with pytest.raises(BlobMissing):
            await stage.blobs.get(key)
    assert (await stage.executions.result(stays.execution_id)).result == BIG
    assert len((await stage.executions.page(ExecutionFilter(), 10, None)).items) == 1


async def test_a_deleted_execution_is_forgotten_with_the_items_of_its_loops(stage: OperationsStage) -> None:
    rows = {"in": "{{ range(20000) | list | batch(9999) | list }}", "iterator": "n", "spec": {"mode": "parallel"}}
    loop = {"in": [1], "iterator": "batch", "loop": rows}
    ended = await stage.run(playbook("stored", [{"step": "all", "loop": loop, "tool": work("{{ n | length }}")}]))
    pages = [key for key in stage.broker.blobs.keys if key.startswith(f"{ended.execution_id}/")]
    assert (ended.result, len(pages)) == ([[9999, 9999, 2]], 1)
    await stage.executions.delete(ended.execution_id, BY)
    with pytest.raises(BlobMissing):
        await stage.blobs.get(pages[0])


async def test_one_that_has_not_ended_stays(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=HEARS), BY)
    with pytest.raises(Conflict, match="has not ended"):
        await stage.executions.delete(started.execution_id, BY)


async def test_objects_that_a_caller_uses_of_a_child_are_deleted_with_the_caller(
    stage: OperationsStage,
) -> None:
    child = playbook("child", [{"step": "only", "tool": work(BIG)}])
    await stage.playbooks.register(child.encode(), "child", BY)
    call = {"name": "call", "kind": "playbook", "path": "simulation/child"}
    caller = await stage.run(playbook("caller", [{"step": "only", "tool": [call]}]))
    key = caller.result["$reference"]["key"]
    child_id = key.partition("/")[0]
    found = await stage.executions.get(child_id)
    assert found.parent.execution_id == caller.execution_id
    await stage.executions.delete(child_id, BY)
    assert (await stage.executions.result(caller.execution_id)).result == BIG
    await stage.executions.delete(caller.execution_id, BY)
    with pytest.raises(BlobMissing):
        await stage.blobs.get(key)


async def test_reused_results_outlive_the_original(stage: OperationsStage) -> None:
    failed = await stage.run(playbook("again", STEPS))
    (key,) = (key for key in stage.broker.blobs.keys if key.startswith(failed.execution_id))
    again = await stage.executions.rerun(failed.execution_id, AGAIN, BY)
    await stage.executions.wait(again.execution_id, 60)
    await stage.executions.delete(failed.execution_id, BY)
    assert await stage.blobs.get(key)
    await stage.executions.delete(again.execution_id, BY)
    with pytest.raises(BlobMissing):
        await stage.blobs.get(key)


async def test_an_execution_is_kept_until_its_rerun_has_read_it(stage: OperationsStage) -> None:
    failed = (await stage.run(playbook("again", STEPS))).execution_id
    read, held = stage.store.journal, asyncio.Event()
    reads: list[str] = []

    async def journal(execution_id: str, after: int = 0, limit: int | None = None) -> list[StoredEvent]:
        found = await read(execution_id, after, limit)
        if execution_id == failed and limit is None:
            reads.append(execution_id)
            if len(reads) > 1:  # the first is the client's, which tries it
                await held.wait()
        return found

    stage.store.journal = journal  # type: ignore[method-assign]
    beginning = asyncio.ensure_future(stage.executions.rerun(failed, AGAIN, BY))
    while not (rows := await stage.store.looked_into_by(failed)):
        await stage.clock.sleep(0.1)
    with pytest.raises(Conflict, match=f"{rows[0]}, a rerun of {failed}, is reading its journal"):
        await stage.executions.delete(failed, BY)
    held.set()
    again = (await beginning).execution_id
    await stage.executions.wait(again, 60)
    await stage.executions.delete(failed, BY)
    assert await stage.blobs.get((await stage.store.objects_kept_for(again))[0].key)


async def test_a_rerun_that_begins_while_its_original_is_deleted_loses_nothing(stage: OperationsStage) -> None:
    failed = (await stage.run(playbook("again", STEPS))).execution_id
    (key,) = (key for key in stage.broker.blobs.keys if key.startswith(failed))
    used, again = stage.store.objects_used_elsewhere, ""

    async def objects_used_elsewhere(execution_id: str) -> list[ObjectUseRow]:
        nonlocal again
        found = await used(execution_id)
        again = again or (await stage.executions.rerun(failed, AGAIN, BY)).execution_id
        return found

    stage.store.objects_used_elsewhere = objects_used_elsewhere  # type: ignore[method-assign]
    await stage.executions.delete(failed, BY)
    assert (await stage.executions.wait(again, 60)).status == "completed"
    assert await stage.blobs.get(key)


async def test_an_execution_that_is_being_deleted_cannot_be_rerun(stage: OperationsStage) -> None:
    failed = (await stage.run(playbook("again", STEPS))).execution_id
    await stage.store.begin_deleting(failed)
    with pytest.raises(NotFound, match="is being deleted"):
        await stage.executions.rerun(failed, AGAIN, BY)
    await stage.executions.delete(failed, BY)
    with pytest.raises(NotFound):
        await stage.executions.get(failed)


async def test_a_child_is_kept_while_its_caller_runs_or_reads_its_journal(stage: OperationsStage) -> None:
    loop = {"in": "{{ range(40) | list }}", "iterator": "n", "spec": {"mode": "parallel"}}
    child = playbook("lists", [{"step": "all", "loop": loop, "tool": work("{{ 'x' * 4000 }}")}])
    await stage.playbooks.register(child.encode(), "child", BY)
    steps: list[dict[str, Any]] = [
        {
            "step": "calls",
            "tool": [{"name": "call", "kind": "playbook", "path": "simulation/lists"}],
            "next": then("ear"),
        },
        {"step": "ear", "tool": [HEAR]},
    ]
    caller = (await stage.executions.start(Start(playbook=playbook("caller", steps)), BY)).execution_id
    await stage.until_status(caller, "waiting")
    while len(found := (await stage.executions.page(ExecutionFilter(path="simulation/lists"), 1, None)).items) == 0:
        await stage.clock.sleep(0.1)
    child_id = found[0].execution_id
    await stage.executions.wait(child_id, 60)
    with pytest.raises(Conflict, match=f"{caller}, which called {child_id}, has not ended"):
        await stage.executions.delete(child_id, BY)
    await stage.executions.wait(caller, 600)
    with pytest.raises(Conflict, match=f"{caller} uses results in the journal of {child_id}"):
        await stage.executions.delete(child_id, BY)
    await stage.executions.delete(caller, BY)
    await stage.executions.delete(child_id, BY)
    assert (await stage.executions.page(ExecutionFilter(), 10, None)).items == []
