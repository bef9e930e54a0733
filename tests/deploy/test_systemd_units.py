"""docs/how-to/run-with-systemd.md, followed on a machine with systemd, which is a container: the roles run confined.

In the end the machine is drained as docs/how-to/drain-a-node.md says.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from compose_stack import ComposeStack, compose_stack, until
from container_engine import IMAGES, ROOT, Engine, Images
from walkthrough import steps

from wheel_building import build_wheels

pytestmark = [pytest.mark.xdist_group("containers"), pytest.mark.verify]

PAGE = ROOT / "docs" / "how-to" / "run-with-systemd.md"
INSTALL, START = (step.text for step in steps(PAGE.read_text()))
(STOP,) = re.findall(r"^systemctl stop .+$", (PAGE.parent / "drain-a-node.md").read_text(), re.MULTILINE)
UNITS = ("noetl-server", "noetl-gateway", "noetl-worker@default")
BIN = "/opt/noetl-stream/bin"
READY = f"{BIN}/python -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8080/readyz\").status)'"
CAPABILITIES = ("SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH", "SYS_NICE")
"""What systemd needs to confine others."""

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: units, path: tests/units}
workflow:
  - step: kinds
    tool:
      - one: {kind: shell, command: "printf '#!/bin/sh\\necho ran' > x; chmod +x x; cat x"}
      - two: {kind: duckdb, query: "SELECT 42 AS answer"}
      - three: {kind: python, code: "import os; result = {'root': os.getuid() == 0}"}
"""


@pytest.fixture(scope="module")
def stack(engine: Engine, images: Images, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeStack]:
    """NATS and Postgres, with the schema and the streams."""
    with compose_stack(engine, images, tmp_path_factory.mktemp("units"), "noetl-units", with_roles=False) as started:
        yield started


@pytest.fixture(scope="module")
def machine(
    engine: Engine, images: Images, stack: ComposeStack, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The name of a container with systemd. The page's commands have installed noetl-stream there."""
    machine = f"{stack.project}-machine"
    checkout = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "deploy", checkout / "deploy", ignore=shutil.ignore_patterns("secrets"))
    build_wheels(checkout)
    (checkout / "install").write_text(INSTALL)
    file = shutil.copy(IMAGES / "systemd.Dockerfile", checkout)
    shutil.copy(IMAGES / "boot", checkout)
    base = ("--build-arg", f"BASE={images.build_base}")
    engine.docker("build", "-q", "--network", "host", "-t", "noetl-test/systemd", *base, "-f", file, checkout)
    etc = tmp_path_factory.mktemp("etc") / "noetl-stream"
    made = stack.folder / "deploy" / "compose" / "secrets"
    shutil.copytree(made, etc / "secrets", ignore=shutil.ignore_patterns("nats", "nats-accounts.conf"))
    for seed in (made / "nats").glob("*.nk"):
        shutil.copy(seed, etc / "secrets" / f"nats-{seed.name}")
    (etc / "noetl.env").write_text("NOETL_NATS_URL=nats://nats:4222\n")
    rights = [word for capability in CAPABILITIES for word in ("--cap-add", capability)]
    unconfined = ("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined")
    given = ("--network", stack.network("engine"), "--tmpfs", "/run", "--tmpfs", "/tmp:exec")
    engine.docker("run", "--detach", "--name", machine, *rights, *unconfined, *given, "noetl-test/systemd")
    try:
        engine.docker("cp", etc, f"{machine}:/etc/")
        engine.docker("exec", machine, "chown", "-R", "root:root", "/etc/noetl-stream")
        engine.docker("exec", machine, "chmod", "-R", "go=", "/etc/noetl-stream/secrets")
        until(lambda: systemctl(engine, machine, "is-system-running").strip() in ("running", "degraded"), "booted")
        yield machine
    finally:
        print(engine.docker("exec", machine, "journalctl", "--no-pager", "-n", "100"))
        engine.docker("rm", "--force", machine)


def systemctl(engine: Engine, machine: str, *words: str) -> str:
    """``|| true``: it exits with an error for some of its answers."""
    return engine.docker("exec", machine, "sh", "-c", f"systemctl {' '.join(words)} 2>&1 || true")


def test_the_roles_work_in_their_units_and_end_in_order(
    engine: Engine, machine: str, stack: ComposeStack, tmp_path: Path
) -> None:
    engine.docker("exec", machine, "sh", "-exc", START)
    until(lambda: "200" in engine.docker("exec", machine, "sh", "-c", f"{READY} 2>&1 || true"), "ready")
    (tmp_path / "units.yaml").write_text(PLAYBOOK)
    engine.docker("cp", tmp_path / "units.yaml", f"{machine}:/root/units.yaml")
    given = ("--env", "NOETL_URL=http://127.0.0.1:8080", "--env", f"NOETL_TOKEN={stack.token}")
    ran = engine.docker("exec", *given, machine, f"{BIN}/noetl-stream", "run", "/root/units.yaml", "-o", "json")
    assert json.loads(ran)["result"] == {"root": False}
    started = engine.docker("exec", machine, "journalctl", "--no-pager", "-u", "noetl-worker@default")
    assert "python and shell tasks are confined to level full" in started
    for unit in UNITS:
        pid = systemctl(engine, machine, "show", "--property", "MainPID", "--value", unit).strip()
        status = engine.docker("exec", machine, "cat", f"/proc/{pid}/status")
        assert "CapBnd:\t0000000000000000" in status and "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status
    engine.docker("exec", machine, "sh", "-exc", STOP)
    for unit in UNITS:
        shown = systemctl(engine, machine, "show", "--property", "Result,ExecMainStatus,ActiveState", unit)
        assert set(shown.split()) == {"Result=success", "ExecMainStatus=0", "ActiveState=inactive"}
