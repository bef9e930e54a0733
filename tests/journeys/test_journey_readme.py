"""What the README tells somebody who has read nothing else, done as it stands there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from journey_stack import ROOT

pytestmark = [
    pytest.mark.xdist_group("stack"),
    pytest.mark.skipif(
        shutil.which("curl") is None, reason="the README's commands are for curl, which is not installed"
    ),
]

SHOWN = "http://127.0.0.1:8080"
PATIENCE_S = 60


def answers(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line]


def test_a_reader_registers_starts_patches_reruns_and_cancels(shared_home: Path) -> None:
    section = (ROOT / "README.md").read_text().split("\n## Operate it\n")[1].split("\n## ")[0]
    (commands,) = re.findall(r"^```bash\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    gateway = re.search(r"listening on (http://\S+)", (shared_home / "dev.log").read_text())
    assert gateway is not None
    assert SHOWN in commands
    script = (
        commands.replace(SHOWN, gateway[1])
        .replace("~/.noetl", str(shared_home))
        .replace("curl -s", "curl -sS --fail-with-body -w '\\n'")
    )
    ended = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.returncode == 0, ended
    registered, why, patched, paid, again, cancelled = answers(ended.stdout)
    assert registered["path"] == "examples/approval"
    assert (why["status"], why["reasons"][0]["kind"]) == ("waiting", "admission")
    assert (paid["execution_id"], paid["status"], paid["result"]["paid"]) == (patched["execution_id"], "completed", 250)
    assert (again["rerun_of"], again["status"], again["result"]["paid"]) == (paid["execution_id"], "completed", 0)
    assert cancelled["execution_id"] not in (paid["execution_id"], again["execution_id"])
