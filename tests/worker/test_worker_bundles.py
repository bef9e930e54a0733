"""The packages of a command's bundle, as tasks read them."""

from __future__ import annotations

import pytest
from worker_stage import Stage, ToolCall

from noetl_stream.model.bundles import named_bundle, zip_of
from noetl_stream.model.events import StepFailed
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.protocol.subjects import bundle_key

DATA = zip_of({"packages/shop.py": b""})
NAME = str(named_bundle("team/shop", DATA))
STEPS = "- step: start\n  tool: {name: use, kind: puppet}\n"


async def read(call: ToolCall) -> str:
    return f"{len(await call.read_bundle())} bytes of {call.bundle}"


async def error_of_run(stage: Stage) -> ErrorInfo | None:
    """Runs a task that reads its packages, and returns the error of its step."""
    stage.puppet.acts["use"] = read
    await stage.start()
    await stage.issue(stage.command(stage.plan(STEPS), bundle=NAME))
    ended = stage.facts[-1]
    return ended.error if isinstance(ended, StepFailed) else None


async def test_a_worker_reads_a_bundle_with_the_key_of_its_command(stage: Stage) -> None:
    await stage.blobs.put(bundle_key(NAME), DATA)
    assert NAME.rpartition("@")[2] not in bundle_key(NAME), "who reads the bucket does not learn the digest"
    assert await error_of_run(stage) is None and stage.puppet.calls[0].bundle == NAME


@pytest.mark.parametrize(
    ("stored", "why"), [(None, f"the packages {NAME} are lost"), (b"other", f"the packages {NAME} are damaged")]
)
async def test_a_bundle_that_is_missing_or_is_another_fails_the_task(
    stage: Stage, stored: bytes | None, why: str
) -> None:
    if stored is not None:
        await stage.blobs.put(bundle_key(NAME), stored)
    error = await error_of_run(stage)
    assert error is not None and error.kind == "bundle_lost" and why in error.message
