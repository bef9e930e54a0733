"""A playbook may send every result to the object store (LANGUAGE §1, §10 `results.reference_first`)."""

from __future__ import annotations

import pytest
from worker_stage import Stage

from noetl_stream.model.events import TaskProcessed
from noetl_stream.tools.contract import ToolCall

PLAYBOOK = """
- step: start
  tool: [{name: fetch, kind: puppet}]
executor: {spec: {policy: {results: {reference_first: true}}}}
"""


@pytest.mark.parametrize(("characters", "is_kept"), [(1_022, False), (1_023, True)])
async def test_results_over_one_kib_are_references(stage: Stage, characters: int, is_kept: bool) -> None:
    async def text(_call: ToolCall) -> str:
        return "x" * characters

    stage.puppet.acts["fetch"] = text
    await stage.start()
    await stage.issue(stage.command(stage.plan(PLAYBOOK)))
    [processed] = [fact for fact in stage.facts if isinstance(fact, TaskProcessed)]
    assert (processed.outcome.result.reference is not None) is is_kept
