"""A step with a placement runs in a pool with its labels, chosen at the start (LANGUAGE §15 *Placement*)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from server_stage import Stage

from noetl_stream.model.events import ExecutionStarted
from noetl_stream.operations.executions.submit import RequestRefused
from noetl_stream.settings.grants import GrantsFile
from noetl_testkit.simulation.work import playbook, then, work

POOLS = {"gpu": {"accelerator": "gpu", "zone": "eu"}, "eu": {"zone": "eu", "memory_mb": "64000"}}


def placed(*needed: dict[str, Any], pool: str | None = None) -> str:
    """Two steps: one that runs in the default pool, and one with this ``spec``."""
    spec = {key: value for one in needed for key, value in one.items()} | ({"pool": pool} if pool else {})
    train = {"step": "train", "tool": work("trained"), "spec": spec}
    return playbook("placed", [{"step": "start", "tool": work(1), "next": then("train")}, train])


GPU = {"placement": {"required": {"accelerator": "gpu"}}}


async def waiting_in(stage: Stage) -> list[str]:
    return [pool.pool for pool in await stage.broker.command_queue.pools() if pool.queued]


async def refusal(stage: Stage, source: str) -> str:
    with pytest.raises(RequestRefused) as refused:
        await stage.submit(source)
    return refused.value.message


async def test_the_pool_with_the_labels_runs_the_step_and_the_start_records_it(stage: Stage) -> None:
    stage.pool_labels = POOLS
    await stage.server()
    stage.start_worker()
    execution_id = await stage.submit(placed(GPU))
    while await waiting_in(stage) != ["gpu"]:
        await stage.clock.sleep(0.1)
    stage.start_worker(pool="gpu")
    assert (await stage.ended(execution_id)).status == "completed"
    started = [one for one in await stage.facts(execution_id) if isinstance(one, ExecutionStarted)]
    assert [one.pools for one in started] == [{"train": "gpu"}]


async def test_a_server_that_takes_over_and_has_other_labels_leaves_the_step_where_it_was(stage: Stage) -> None:
    stage.pool_labels = POOLS
    _, host, _ = stage.start_server()
    execution_id = await stage.submit(placed(GPU))
    host.kill()
    stage.pool_labels = {}
    stage.start_server()
    stage.start_worker()
    stage.start_worker(pool="gpu")
    assert (await stage.ended(execution_id)).status == "completed"


@pytest.mark.parametrize(
    ("needed", "pool", "text"),
    [
        (GPU | {"resources": {"cpu": 8}}, None, "step `train`: no pool has accelerator=gpu cpu>=8"),
        (GPU, "eu", "step `train`: pool `eu` has not accelerator=gpu"),
        ({"placement": {"required": {"zone": "us"}}}, None, "step `train`: no pool has zone=us"),
    ],
)
async def test_a_start_that_no_pool_can_serve_is_refused_with_the_labels_there_are(
    stage: Stage, needed: dict[str, Any], pool: str | None, text: str
) -> None:
    stage.pool_labels = POOLS
    await stage.server()
    message = await refusal(stage, placed(needed, pool=pool))
    assert text in message
    assert "gpu: accelerator=gpu zone=eu; eu: zone=eu memory_mb=64000" in message
    assert "the operator gives pools labels by NOETL_POOL_LABELS" in message


async def test_only_pools_that_the_playbook_was_granted_are_candidates(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "grants.yaml"
    granted = {"paths": ["simulation"], "pools": ["default", "eu"], "kinds": ["work"]}
    file.write_text(json.dumps({"grants": [granted]}))
    stage.grants, stage.pool_labels = GrantsFile(file), POOLS
    await stage.server()
    message = await refusal(stage, placed(GPU))
    assert "no pool has accelerator=gpu" in message and "gpu:" not in message
    execution_id = await stage.submit(placed({"placement": {"required": {"zone": "eu"}}}))
    stage.start_worker()
    stage.start_worker(pool="eu")
    assert (await stage.ended(execution_id)).status == "completed"


async def test_where_nothing_is_known_of_labels_a_step_runs_as_without_a_placement(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    assert (await stage.ended(await stage.submit(placed(GPU)))).status == "completed"
