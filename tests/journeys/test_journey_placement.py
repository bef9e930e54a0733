"""On a real stack whose pools have labels, a step runs where they are, and one that no pool serves is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from journey_stack import NOETL, LiveStack

pytestmark = pytest.mark.xdist_group("journeys")

SOURCE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{ name: placed, path: journeys/placed }}
executor: {{ spec: {{ placement: {{ required: {{ zone: {zone} }} }}, resources: {{ cpu: 2 }} }} }}
workflow: [ {{ step: start, tool: {{ kind: noop }} }} ]
"""


def test_a_step_runs_in_the_pool_with_its_labels_and_one_that_no_pool_serves_is_refused(
    start_stack: Callable[[int, int], LiveStack], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOETL_POOL_LABELS", "default: zone=eu cpu=4; gpu: accelerator=gpu")
    stack = start_stack(1, 1)

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*NOETL, *words, "--home", str(stack.home)], capture_output=True, text=True, timeout=120)

    def run(zone: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / f"{zone}.yaml"
        file.write_text(SOURCE.format(zone=zone))
        return command("run", str(file))

    assert run("eu").returncode == 0
    refused = run("us")
    assert refused.returncode != 0
    assert "error[no_pool]: step `start`: no pool has zone=us cpu>=2" in refused.stderr
    assert "hint: default: zone=eu cpu=4; gpu: accelerator=gpu; the operator gives pools labels by" in refused.stderr
    labels = {one["pool"]: one["labels"] for one in json.loads(command("pool", "list", "-o", "json").stdout)}
    assert labels == {"default": {"zone": "eu", "cpu": "4"}, "gpu": {"accelerator": "gpu"}}
