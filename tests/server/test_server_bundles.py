"""Bundles that nothing names are deleted by the upkeep, and stored again by whoever deploys them."""

from __future__ import annotations

import asyncio

import pytest
from server_stage import Stage

from noetl_stream.errors import BlobMissing, Unreachable
from noetl_stream.model.bundles import named_bundle, zip_of
from noetl_stream.protocol.subjects import bundle_key
from noetl_stream.server.upkeep.bundles import KEPT_MS, BundleSweeper
from noetl_stream.server.upkeep.upkeep import Upkeep
from noetl_testkit.conformance.catalog import naming, registered

PACKAGES = [zip_of({"packages/shop.py": f"VERSION = {number}".encode()}) for number in range(2)]
NAMES = [str(named_bundle("team/shop", data)) for data in PACKAGES]


async def deploy(stage: Stage, number: int) -> None:
    """Stores packages, and registers a playbook that names them."""
    assert await stage.catalog.want_bundle(NAMES[number], stage.clock.now_ms())
    await stage.blobs.put(bundle_key(NAMES[number]), PACKAGES[number])
    await registered(stage.catalog, naming(NAMES[number]), "team/shop")


async def is_stored(stage: Stage, number: int) -> bool:
    try:
        return await stage.blobs.get(bundle_key(NAMES[number])) == PACKAGES[number]
    except BlobMissing:
        return False


async def test_the_upkeep_deletes_what_no_latest_playbook_has_named_for_a_day(stage: Stage) -> None:
    upkeep = Upkeep(stage.clock, bundles=BundleSweeper(stage.catalog, stage.broker.blobs, stage.clock))
    await deploy(stage, 0)
    stage.running.append(asyncio.create_task(upkeep.run(5.0, lambda: True)))
    await stage.clock.sleep(2 * KEPT_MS / 1000)
    assert await is_stored(stage, 0)
    await deploy(stage, 1)
    await stage.clock.sleep(0.9 * KEPT_MS / 1000)
    assert await is_stored(stage, 0), "an execution of its text may be about to start"
    await stage.clock.sleep(0.2 * KEPT_MS / 1000)
    assert [await is_stored(stage, number) for number in (0, 1)] == [False, True]
    await deploy(stage, 0)
    await stage.clock.sleep(2 * KEPT_MS / 1000)
    assert [await is_stored(stage, number) for number in (0, 1)] == [True, False], "the way back is open"


async def test_an_object_under_deletion_is_not_stored(stage: Stage) -> None:
    assert await stage.catalog.want_bundle(NAMES[0], 1)
    sweeper = BundleSweeper(stage.catalog, stage.broker.blobs, stage.clock)
    stage.broker.stop()
    with pytest.raises(Unreachable):
        await sweeper.sweep()
    assert not await stage.catalog.want_bundle(NAMES[0], stage.clock.now_ms())
    stage.broker.start()
    assert await sweeper.sweep() == 1
    assert await stage.catalog.want_bundle(NAMES[0], stage.clock.now_ms())
