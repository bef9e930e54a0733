"""A schedule on a real nats-server and a real Postgres that is restored, or lost (ADR 30)."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from real_stack import TIMEOUT_S, RealStack, rows

from noetl_stream.hosting import maintenance
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.stores import Connected

HEAD = b"apiVersion: noetl.io/v2\nmetadata: { name: one, path: %b }\n"
TICK = HEAD % b"tests/tick" + b"kind: Playbook\nworkflow: [ { step: tick, tool: { kind: noop } } ]\n"
EVERY_SECOND = HEAD % b"tests/often" + b"kind: Schedule\nspec: { playbook: tests/tick, every: 1s, overlap: allow }\n"
STARTED = "select execution_id from noetl.execution"
COMPLETED = "select execution_id from noetl.aggregate_history where status = 'completed'"


async def completed(stack: RealStack, connected: Connected, count: int) -> list[str]:
    """The executions of the history that have ended, once there are so many."""
    async with asyncio.timeout(TIMEOUT_S):
        while len(found := await rows(stack.endpoint.postgres_dsn, COMPLETED)) < count:
            await connected.clock.sleep(0.1)
    return [execution_id for (execution_id,) in found]


@pytest.mark.verify
async def test_occurrences_started_after_a_backup_are_in_the_history_once_and_not_started_again(
    stack: RealStack,
) -> None:
    async with stack.running() as connected:
        operations = DirectOperations(connected, stack.endpoint)
        for document in (TICK, EVERY_SECOND):
            await operations.playbooks.register(document, "test", "ann")
        await completed(stack, connected, 2)
    name = urlsplit(str(stack.endpoint.postgres_dsn)).path.strip("/")
    kept = await stack.database("kept", name)
    async with stack.running() as connected:
        await completed(stack, connected, 6)
    started = {execution_id for (execution_id,) in await rows(stack.endpoint.postgres_dsn, STARTED)}
    lost = await stack.database("lost", "migrated")
    rebuilt = await maintenance.rebuild_database(replace(stack.endpoint, postgres_dsn=lost))
    assert list(map(str, rebuilt.starters)) == ["schedule tests/often: starts tests/tick, registered by ann"]

    stack.endpoint = replace(stack.endpoint, postgres_dsn=kept)
    async with stack.running() as connected:
        again = await completed(stack, connected, len(started) + 2)
    assert len(set(again)) == len(again)
    assert started <= set(again)
