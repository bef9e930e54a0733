"""On a real nats-server and Postgres: what one team stores and writes takes nothing from another (PROTOCOL §7)."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace
from real_stack import RealStack

from noetl_stream.adapters.nats.streams import LogsBounds, ensure_streams
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.submit import delete_by_server
from noetl_stream.ports.stores.store import ExecutionRow
from noetl_stream.settings.retention_periods import RetentionSettings
from noetl_stream.storage.deletion import delete_execution
from noetl_stream.wiring.stores import Connected
from noetl_testkit.conformance.task_logs import everything

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: only, path: PATH}
workflow:
  - {step: only, tool: TOOL}
"""
SIZE = 120_000
LARGE = f"{{kind: noop, args: {{text: \"{{{{ 'x' * {SIZE} }}}}\"}}}}"
FLOOD_BYTES = 6_000_000
FLOOD = f"{{kind: shell, command: \"head -c {FLOOD_BYTES} /dev/zero | tr '\\\\0' x | fold -w 199\"}}"
SAYS = "{kind: shell, command: echo mine}"


async def run(stack: RealStack, connected: Connected, path: str, tool: str, status: str = "completed") -> ExecutionRow:
    """Runs a playbook of one task until it has this status."""
    execution_id = await stack.submit(connected, PLAYBOOK.replace("PATH", path).replace("TOOL", tool), path)
    return await stack.ended(connected, execution_id, status)


async def lines_of(connected: Connected, row: ExecutionRow) -> list[str]:
    bodies = await everything(connected.task_logs, row.execution_id)
    return [line.text for body in bodies for line in codec.decode_log_batch(body).lines if line.stream != "worker"]


async def test_a_task_that_floods_logs_leaves_the_lines_of_another_team(stack: RealStack) -> None:
    await stack.admin(lambda connection: ensure_streams(connection, logs=LogsBounds(max_bytes=1 << 20)))
    async with stack.running() as connected:
        quiet = await run(stack, connected, "team_a/says", SAYS)
        loud = await run(stack, connected, "team_b/floods", FLOOD)
        assert await lines_of(connected, quiet) == ["mine"]
        assert 100 < len(await lines_of(connected, loud)) < FLOOD_BYTES // 200


async def test_executions_of_a_team_may_store_only_what_the_operator_allows(stack: RealStack) -> None:
    stack.endpoint = replace(stack.endpoint, retention=RetentionSettings(namespace_max_stored_bytes=2 * SIZE + 99))
    async with stack.running() as connected:
        first = await run(stack, connected, "team_a/one", LARGE)
        await run(stack, connected, "team_a/two", LARGE)
    async with stack.running() as connected:  # a worker that knows only what servers say
        await run(stack, connected, "team_b/one", LARGE)
        refused = await run(stack, connected, "team_a/one", LARGE, "failed")
        assert b"limit_exceeded" in (refused.error or b"")
        await delete_execution(connected.store, partial(delete_by_server, connected.bus), first.execution_id)
    async with stack.running() as connected:
        await run(stack, connected, "team_b/two", SAYS)
        await run(stack, connected, "team_a/one", LARGE)
