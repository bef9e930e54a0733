"""A worker that stops gives running tasks the time that its setting says."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_program import NOETL, PATIENCE_S, environment
from noetl_testkit.waiting import until
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: long, path: tests/drain/long}
workflow:
  - step: long
    spec: {pool: drained}
    tool: {kind: shell, command: sleep 600}
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.log"


@pytest.fixture
def worker(shared_home: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of a pool of its own that drains for a second."""
    settings = environment(NOETL_LOG_FORMAT="json", NOETL_WORKER_DRAIN_S="1")
    command = [*NOETL, "worker", "--pool", "drained", "--home", str(shared_home)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=output, env=settings)
    yield process
    process.kill()
    process.wait()


def messages(log: Path) -> list[str]:
    return [json.loads(line)["message"] for line in log.read_text().splitlines()]


async def test_a_worker_returns_what_it_has_not_finished_in_its_time(
    shared_home: Path, tmp_path: Path, worker: subprocess.Popen[bytes], log: Path
) -> None:
    playbook = tmp_path / "long.yaml"
    playbook.write_text(PLAYBOOK)
    started = noetl("execution", "start", playbook, "--home", shared_home)
    assert started.returncode == 0, started.stderr
    execution = started.stdout.strip()

    def is_running() -> bool:
        listed = noetl("worker", "list", "-o", "json", "--home", shared_home)
        found = json.loads(listed.stdout) if listed.returncode == 0 else []  # a busy machine may not answer in time
        return any(one["pool"] == "drained" and one["busy"] == 1 for one in found)

    await until(is_running, PATIENCE_S)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == 0
    assert "1 commands still running after 1 s are returned" in messages(log)
    assert noetl("execution", "cancel", execution, "--home", shared_home).returncode == 0
