"""The operations of people, directly on a whole stack: the journey of one execution from its playbook to oblivion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noetl_stream.errors import BlobMissing, Conflict, NotFound
from noetl_stream.model.events import CtxPatched
from noetl_stream.model.ids import uuid7
from noetl_stream.ports.operations.executions import ExecutionFilter, RerunOptions, Start
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.stack import connected_to, open_stack

pytestmark = pytest.mark.xdist_group("stack")

BY = "token:ada"
SOURCE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: operated, path: journey/operated, version: "1.0", labels: {journey: operated}}
workflow:
  - step: pages
    loop: {in: "{{ range(30) | list }}", iterator: n, spec: {mode: parallel}}
    tool: {kind: noop, args: {page: "{{ 'x' * 4000 ~ iter.n }}"}}
    next: {arcs: [{step: gate}]}
  - step: gate
    spec:
      policy:
        admit:
          rules: [{when: "{{ ctx.approved | default(false) }}", then: {allow: true}}]
          wait: {timeout_s: 600}
    tool:
      kind: python
      args: {good: "{{ ctx.good | default(false) }}"}
      code: |
        if not good:
            raise ValueError("refused by Zanzibar")
        result = "x" * 100000
"""


async def test_an_execution_is_started_looked_at_run_again_and_deleted(shared_home: Path) -> None:
    with open_stack(Settings(home_folder=shared_home)) as place:
        async with connected_to(place, "journey") as connected:
            operations = DirectOperations(connected, place.endpoint)
            executions, playbooks = operations.executions, operations.playbooks
            await playbooks.register(SOURCE.encode(), "operated.yaml", BY)
            started = await executions.start(Start(path="journey/operated", version="1.0", reason="to see"), BY)
            execution_id = started.execution_id

            assert (await executions.wait(execution_id, 0)).status != "completed"
            clock = connected.clock
            while (held := await executions.get(execution_id)).status != "waiting":
                await clock.sleep(0.05)
            assert [wait.what for wait in held.waits] == ["admission"]
            assert "ctx.approved" in str(await executions.why(execution_id))
            with pytest.raises(Conflict):
                await executions.delete(execution_id, BY)
            request_id = uuid7(clock.now_ms(), clock.random_bytes(10))
            fact = CtxPatched(request_id, "token:bob", "looks good", patch={"approved": True})
            assert (await executions.ask(execution_id, fact)).position

            failed = await executions.wait(execution_id, 60)
            assert (failed.status, failed.labels) == ("failed", {"journey": "operated"})
            (change,) = (await executions.ctx(execution_id)).history
            assert (change.principal, change.reason, change.keys) == ("token:bob", "looks good", ["approved"])
            loop, gate = await executions.steps(execution_id)
            assert (loop.loop.ok, gate.status) == (30, "failed")
            first = await executions.iterations(execution_id, loop.step_run_id, 20, None)
            second = await executions.iterations(execution_id, loop.step_run_id, 20, first.next)
            assert [one.path for one in (*first.items, *second.items)] == [[n] for n in range(30)]
            for chosen in (
                ExecutionFilter(error="zanzibar refused"),
                ExecutionFilter(labels={"journey": "operated"}, status=["failed"]),
                ExecutionFilter(path="journey/operated"),
            ):
                assert [one.execution_id for one in (await executions.page(chosen, 9, None)).items] == [execution_id]

            again = await executions.rerun(execution_id, RerunOptions(ctx={"good": True}), BY)
            ended = await executions.wait(again.execution_id, 60)
            assert (ended.status, ended.rerun_of) == ("completed", execution_id)
            result = await executions.result(again.execution_id)
            assert result.result == "x" * 100_000
            await _forget(executions, again.execution_id, connected.blobs, ended.result["$reference"]["key"])
            await _forget(executions, execution_id)
            assert (await executions.page(ExecutionFilter(labels={"journey": "operated"}), 9, None)).items == []
            await playbooks.delete("journey/operated", None, BY)
            with pytest.raises(NotFound):
                await playbooks.get("journey/operated", None)


async def _forget(executions: Any, execution_id: str, blobs: Any = None, key: str = "") -> None:
    await executions.delete(execution_id, BY)
    with pytest.raises(NotFound):
        await executions.get(execution_id)
    if blobs is not None:
        with pytest.raises(BlobMissing):
            await blobs.get(key)
