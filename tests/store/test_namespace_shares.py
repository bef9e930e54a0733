"""On a real nats-server and Postgres: what one team writes takes nothing from another (PROTOCOL §7)."""

from __future__ import annotations

from real_stack import RealStack

from noetl_stream.adapters.nats.streams import LogsBounds, ensure_streams
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import ExecutionRow
from noetl_stream.wiring.stores import Connected
from noetl_testkit.conformance.task_logs import everything

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: only, path: PATH}
workflow:
  - {step: only, tool: TOOL}
"""
FLOOD_BYTES = 6_000_000
FLOOD = f"{{kind: shell, command: \"head -c {FLOOD_BYTES} /dev/zero | tr '\\\\0' x | fold -w 199\"}}"
SAYS = "{kind: shell, command: echo mine}"


async def run(stack: RealStack, connected: Connected, path: str, tool: str) -> ExecutionRow:
    """Runs a playbook of one task."""
    execution_id = await stack.submit(connected, PLAYBOOK.replace("PATH", path).replace("TOOL", tool), path)
    return await stack.ended(connected, execution_id)


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
