"""On a real stack, a step runs in a pool with its labels, and an execution stops at its quotas until it is resumed."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from journey_stack import NOETL, LiveStack

from noetl_testkit.waiting import until

pytestmark = pytest.mark.xdist_group("journeys")

Command = Callable[..., subprocess.CompletedProcess[str]]

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: bounded, path: journeys/bounded }\n"
PLACED = (
    HEAD
    + """
executor: { spec: { placement: { required: { zone: eu } }, resources: { cpu: 2 } } }
workflow: [ { step: start, tool: { kind: noop } } ]
"""
)
QUOTA = (
    HEAD
    + """
executor: { spec: { policy: { quotas: { step_runs: 1, on_exceeded: suspend } } } }
workflow:
  - step: start
    tool: { kind: shell, command: [ "true" ] }
    next: { arcs: [ { step: last } ] }
  - { step: last, tool: { kind: noop } }
"""
)


@pytest.fixture
def command(
    start_stack: Callable[[int, int], LiveStack], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Command]:
    monkeypatch.setenv("NOETL_POOL_LABELS", "default: zone=eu cpu=4; gpu: accelerator=gpu")
    home = str(start_stack(1, 1).home)

    def run(*words: str, playbook: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "bounded.yaml").write_text(playbook)
        command = [*NOETL, *words, "--home", home]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)

    yield run


@pytest.mark.verify
def test_placement_and_quotas_do_what_the_language_says(command: Command) -> None:
    assert command("run", "bounded.yaml", playbook=PLACED).returncode == 0
    refused = command("run", "bounded.yaml", playbook=PLACED.replace("zone: eu", "zone: us"))
    assert refused.returncode != 0
    assert "error[no_pool]: step `start`: no pool has zone=us cpu>=2" in refused.stderr
    assert "hint: default: zone=eu cpu=4; gpu: accelerator=gpu; the operator gives pools labels by" in refused.stderr
    labels = {one["pool"]: one["labels"] for one in json.loads(command("pool", "list", "-o", "json").stdout)}
    assert labels == {"default": {"zone": "eu", "cpu": "4"}, "gpu": {"accelerator": "gpu"}}
    (worker,) = json.loads(command("worker", "list", "-o", "json").stdout)
    assert worker["labels"] == {"zone": "eu", "cpu": "4"}

    execution_id = command("execution", "start", "bounded.yaml", playbook=QUOTA).stdout.strip()
    asyncio.run(until(lambda: '"paused"' in command("execution", "get", execution_id, "-o", "json").stdout))
    why = command("execution", "why", execution_id).stdout
    assert "since quotas.step_runs is 1, and the execution comes to 2" in why.replace("\n", " ")
    assert command("execution", "resume", execution_id).returncode == 0
    ended = command("execution", "wait", execution_id, "-o", "json")
    assert ended.returncode == 0
    assert [one["kind"] for one in json.loads(ended.stdout)["warnings"]] == ["quota_exceeded"]
