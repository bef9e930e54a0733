"""A failed execution is retried, and run again from a step, on real NATS and Postgres (LANGUAGE §9 *Rerun*)."""

from __future__ import annotations

import json

import pytest

from noetl_stream.errors import Conflict, UsageError
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.executions import ExecutionDocument, RerunOptions, Start

pytestmark = pytest.mark.xdist_group("stack")

BY = "token:ann"
TEXT = 100_000
PATIENCE_S = 60.0


def playbook() -> str:
    """Two branches, one with a large result and one a loop, that join in a step which fails until ``ctx.mended``."""
    shared = {"do": "continue", "set_shared": {"all": {"op": "append", "value": "{{ iter.n }}"}}}
    loop = {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel"}}
    task = {"name": "one", "kind": "noop", "spec": {"policy": {"rules": [{"else": {"then": shared}}]}}}
    code = "if not mended: raise ValueError('not yet')\nresult = {'length': len(text), 'all': all}"
    read = {"text": "{{ big.text }}", "all": "{{ ctx.all }}", "mended": "{{ ctx.mended | default(false) }}"}
    both = {"arcs": [{"step": "both"}]}
    workflow = [
        {"step": "start", "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": "big"}, {"step": "each"}]}},
        {"step": "big", "tool": {"kind": "python", "code": f"result = {{'text': 'x' * {TEXT}}}"}, "next": both},
        {"step": "each", "loop": loop, "tool": [task], "next": both},
        {"step": "both", "spec": {"join": "all"}, "tool": {"kind": "python", "code": code, "args": read}},
    ]
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "rerun", "path": "tests/rerun"}}
    return json.dumps({**head, "workflow": workflow})


async def test_a_failed_execution_is_retried_and_run_again_from_a_step(operations: Operations) -> None:
    executions = operations.executions

    async def ended(execution_id: str) -> ExecutionDocument:
        return await executions.wait(execution_id, PATIENCE_S)

    started = await executions.start(Start(playbook=playbook()), BY)
    original = await ended(started.execution_id)
    assert original.status == "failed"

    retried = await executions.rerun(original.execution_id, RerunOptions(ctx={"mended": True}), BY)
    again = await ended(retried.execution_id)
    expected = {"length": TEXT, "all": [1, 2, 3]}
    assert (again.status, again.result, again.rerun_of) == ("completed", expected, original.execution_id)
    steps = {step.step: step.status for step in await executions.steps(again.execution_id)}
    assert steps == {"start": "reused", "big": "reused", "each": "reused", "both": "done"}
    assert again.trace_id != original.trace_id

    third = await executions.rerun(again.execution_id, RerunOptions("each"), BY)
    last = await ended(third.execution_id)
    assert (last.status, last.result, last.ctx["all"]) == ("completed", expected, [1, 2, 3])
    statuses = {step.step: step.status for step in last.steps}
    assert statuses == {"start": "reused", "big": "reused", "each": "done", "both": "done"}

    with pytest.raises(Conflict, match="has not failed"):
        await executions.rerun(last.execution_id, RerunOptions(), BY)
    with pytest.raises(UsageError, match="has no step none; it has"):
        await executions.rerun(last.execution_id, RerunOptions("none"), BY)
