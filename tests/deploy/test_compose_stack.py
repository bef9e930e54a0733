"""deploy/compose.yaml, up as containers: confined as it says, and nothing is lost whatever is replaced or cut off."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from compose_stack import ComposeStack, compose_stack, until
from container_engine import ROOT, Engine, Images, build_stream
from gateway_load import GatewayLoad

pytestmark = [pytest.mark.xdist_group("containers"), pytest.mark.verify]

ROLES = ("server", "gateway", "worker")


@pytest.fixture(scope="module")
def stack(engine: Engine, images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeStack]:
    with compose_stack(engine, images, tmp_path_factory.mktemp("compose"), "noetl-test") as started:
        yield started


def noetl(stack: ComposeStack, *words: str | Path) -> str:
    """Runs a command on the gateway, as a user would."""
    given = {"NOETL_URL": stack.url, "NOETL_TOKEN": stack.token}
    ran = subprocess.run(
        [sys.executable, "-m", "noetl_stream", *words],
        env=stack.engine.environment(given),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@asynccontextmanager
async def under_load(stack: ComposeStack) -> AsyncIterator[GatewayLoad]:
    """At the end, everything that was asked for has been started once, and has completed."""
    load = GatewayLoad(stack.url, stack.token)
    try:
        before = await load.known()
        async with load.running():
            yield load
        known = await load.known()
    finally:
        await load.close()
    assert Counter(load.ended.values()) == {"completed": len(load.ended)}
    assert known.keys() - before.keys() == load.ended.keys()


@pytest.mark.containers
@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_confined(stack: ComposeStack, role: str) -> None:
    for container in stack.containers(role):
        found = stack.inspect(container)
        host = found["HostConfig"]
        assert found["Config"]["User"] == "10001:10001"
        assert host["ReadonlyRootfs"] and not host["Privileged"]
        assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], None)
        first, *more = host["SecurityOpt"]
        assert first == "no-new-privileges:true"
        # A worker confines its tasks, for which it has a filter of its own.
        wanted = ["seccomp", "apparmor"] if role == "worker" else []
        assert [option.partition("=")[0].partition(":")[0] for option in more] == wanted
        assert host["Memory"] > 0 and host["PidsLimit"] > 0 and host["NanoCpus"] > 0
        secrets = [one["Source"] for one in found["Mounts"] if one["Destination"].startswith("/run/secrets/")]
        assert secrets and not any("SU" in one or "postgresql://" in one for one in found["Config"]["Env"])


@pytest.mark.containers
def test_a_playbook_runs_on_the_compose_stack(stack: ComposeStack) -> None:
    assert "HELLO, ADA" in noetl(stack, "run", ROOT / "playbooks" / "hello.yaml", "--set", "name=Ada")


LOOK_AROUND = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: look-around, path: tests/look-around}
workflow:
  - step: run
    tool: {kind: shell, command: "printf '#!/bin/sh\\necho a program of its own' > x; chmod +x x; ./x"}
    next: {arcs: [{step: look}]}
  - step: look
    tool:
      kind: python
      args: {ran: "{{ run.stdout | trim }}"}
      code: |
        import os, socket
        result = {"uid": os.getuid(), "ran": ran}
        for path in ("/run/secrets/nats-worker-default", "/proc/1/environ", "/tmp"):
            try:
                os.listdir(path) if os.path.isdir(path) else open(path).close()
                result[path] = "open"
            except OSError:
                result[path] = "closed"
        for host, port in (("nats", 4222), ("postgres", 5432), ("server", 9464), ("gateway", 8080)):
            try:
                socket.create_connection((host, port), 2).close()
                result[host] = "reached"
            except OSError:
                result[host] = "away"
"""


def test_a_task_reads_no_secret_and_reaches_nats_alone(stack: ComposeStack, tmp_path: Path) -> None:
    playbook = tmp_path / "look.yaml"
    playbook.write_text(LOOK_AROUND)
    result = json.loads(noetl(stack, "run", playbook, "-o", "json"))["result"]
    (worker,) = json.loads(noetl(stack, "worker", "list", "-o", "json"))
    assert worker["confinement"] == "full"
    assert result == {
        "uid": 10001,
        "ran": "a program of its own",
        "/run/secrets/nats-worker-default": "closed",
        "/proc/1/environ": "closed",
        "/tmp": "open",  # its own
        "nats": "reached",
        "postgres": "away",
        "server": "away",
        "gateway": "away",
    }


def test_a_worker_confines_its_tasks_by_landlock_in_a_container(stack: ComposeStack) -> None:
    shown = stack.compose("exec", "-T", "worker", "noetl-stream", "worker", "--isolation")
    held = {line.split("  ")[0]: line for line in shown.splitlines()}
    for measure in ("files", "signals", "memory of others", "privileges", "limits"):
        assert " yes " in held[measure]


async def expect_owners(stack: ComposeStack, count: int) -> None:
    """Waits until so many servers own partitions; those on their way to another server have no owner."""

    def are_owners() -> bool:
        return len(set(re.findall(r"server-\S+", noetl(stack, "partition", "list")))) == count

    await asyncio.to_thread(until, are_owners, f"{count} servers that own partitions")


async def test_scaled_up_the_parts_share_the_work(stack: ComposeStack) -> None:
    async with under_load(stack) as load:
        await load.more()
        await asyncio.to_thread(
            stack.compose, "up", "-d", "--no-recreate", "--scale", "server=3", "--scale", "worker=3"
        )
        await asyncio.to_thread(until, lambda: noetl(stack, "worker", "list").count("worker-") == 3, "three workers")
        await load.more()
        await expect_owners(stack, 3)


async def test_an_upgrade_loses_nothing(stack: ComposeStack, images: Images) -> None:
    await asyncio.to_thread(build_stream, stack.engine, images, f"{images.stream}:next", "--build-arg", "REVISION=next")
    async with under_load(stack) as load:
        await load.more()
        stack.image = f"{images.stream}:next"
        await asyncio.to_thread(stack.compose, "run", "--rm", "migrate")
        for role in ("server", "worker"):
            old = stack.containers(role)
            twice = f"{role}={2 * len(old)}"
            await asyncio.to_thread(stack.compose, "up", "-d", "--no-deps", "--no-recreate", "--scale", twice, role)
            await asyncio.to_thread(until, stack.is_healthy, "healthy")
            await load.more()
            for container in old:
                await asyncio.to_thread(stack.stop, container)
                await load.more()
        await asyncio.to_thread(stack.compose, "up", "-d", "--no-deps", "gateway")
        await load.more()
    for role in ROLES:
        revisions = {
            stack.inspect(one)["Config"]["Labels"]["org.opencontainers.image.revision"]
            for one in stack.containers(role)
        }
        assert revisions == {"next"}


CUTS = [
    ("server", "engine"),
    ("worker", "workers"),
    ("gateway", "engine"),
    ("gateway", "edge"),
    ("nats", "workers"),
    ("nats", "engine"),
    ("postgres", "engine"),
]


@pytest.mark.parametrize(("service", "network"), CUTS)
async def test_a_part_that_is_cut_off_comes_back_and_nothing_is_lost(
    stack: ComposeStack, service: str, network: str
) -> None:
    async with under_load(stack) as load:
        await load.more()
        part = stack.containers(service)[0]
        await asyncio.to_thread(stack.disconnect, part, network)
        if service in ("server", "worker"):
            await load.more()  # the others of its kind do the work
        await asyncio.to_thread(stack.connect, part, network)
        await load.more()
    assert part in stack.containers(service)  # the same one


@pytest.mark.containers
@pytest.mark.parametrize("role", ROLES)
def test_a_role_ends_in_order_on_sigterm(stack: ComposeStack, role: str) -> None:
    for container in stack.containers(role):
        stack.stop(container, remove=False)
        assert stack.inspect(container)["State"]["ExitCode"] == 0, stack.engine.docker("logs", container)
