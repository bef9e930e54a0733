"""Roles of a real stack, as probes, Prometheus and readers of logs see them, from their start to their end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from watched_role import Watched, watched

from measured import unmoved
from noetl_stream.model.status import LIVE
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

POOL = "watched"
LARGE = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large, path: tests/status/large}
workflow:
  - step: makes
    spec: {pool: watched}
    tool: {kind: python, code: "result = ['x' * 1000] * 200"}
    next: {arcs: [{step: reads}]}
  - step: reads
    spec: {pool: watched}
    tool:
      - {name: reads, kind: python, args: {given: "{{ makes }}"}, code: "result = len(given)"}
      - {name: ends, kind: python, code: "import os; os._exit(7)"}
"""


@pytest.fixture(scope="module")
def roles(shared_home: Path) -> Iterator[dict[str, Watched]]:
    """A server, a worker of a pool of its own and a gateway beside those of the shared stack."""
    with ExitStack() as ending:

        def start(*words: str) -> Watched:
            return ending.enter_context(watched(*words, "--home", str(shared_home)))

        yield {
            "server": start("server"),
            "worker": start("worker", "--pool", POOL, "--slots", "3"),
            "gateway": start("gateway", "--port", "0"),
        }


async def test_each_role_lives_and_becomes_ready(roles: dict[str, Watched]) -> None:
    for name, role in roles.items():
        await role.is_ready()
        assert role.get("/livez") == (200, '{"status": "alive", "reasons": []}\n')
        assert [key for key in role.metrics() if key.startswith(f"noetl_build_info {name} ")]
        start = role.until(f"{name} starts")
        assert start["level"] == "info"
        assert re.fullmatch(r"nats://127\.0\.0\.1:\d+", start["nats"])
        assert start.get("pool") == (POOL if name == "worker" else None)
    assert "took over" in roles["server"].until("took over")["message"]


async def test_a_worker_and_a_gateway_measure_what_runs(
    roles: dict[str, Watched], shared_home: Path, tmp_path: Path
) -> None:
    worker, gateway = roles["worker"], roles["gateway"]
    await worker.is_ready()
    before = worker.metrics()
    playbook = tmp_path / "large.yaml"
    playbook.write_text(LARGE)
    ran = noetl("run", playbook, "--home", shared_home)
    assert ran.returncode == 1, ran.stderr
    after = worker.metrics()
    grown = (
        "noetl_objects_written_bytes_total",
        "noetl_objects_read_bytes_total",
        "noetl_worker_task_duration_seconds_count python ok",
        "noetl_worker_task_duration_seconds_count python error",
        "noetl_worker_python_children_started_total",
        "noetl_worker_python_children_killed_total",
        "noetl_worker_commands_total done",
        f"noetl_worker_queue_wait_seconds_count tests/status/large {POOL}",
    )
    assert unmoved(before, after, *grown) == []
    assert "noetl_worker_python_children" in after
    assert (after["noetl_nats_connected"], after["noetl_nats_reconnects_total"]) == (1, 0)
    failed = worker.until("task failed")
    assert (failed["step"], failed["task"], failed["kind"]) == ("reads", "ends", "crashed")
    seen = gateway.metrics()
    assert seen[f"noetl_pool_workers {POOL}"] == 1 and seen[f"noetl_pool_slots {POOL}"] == 3
    for name in ("noetl_pool_commands_waiting", "noetl_pool_commands_in_flight", "noetl_pool_slots_busy"):
        assert seen[f"{name} {POOL}"] == 0
    assert {f"noetl_executions {status}" for status in LIVE} <= seen.keys()
    assert seen[f"noetl_pool_oldest_command_age_seconds {POOL}"] == 0
    assert {f"noetl_dead_letters {source}" for source in ("events", "inbox", "command")} <= seen.keys()
    assert (seen["noetl_executions_stuck"], seen["noetl_partitions_unowned"]) == (0, 0)


async def test_each_role_says_that_it_stops(roles: dict[str, Watched]) -> None:
    for name, words in (("worker", "worker drains"), ("gateway", "gateway stops"), ("server", "server stops")):
        role = roles[name]
        await role.is_ready()
        role.stop()
        assert role.until(words)["level"] == "info"
        assert role.until(f"{name} stopped")["level"] == "info"
