"""deploy/compose.yaml as containers, in a project of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from container_engine import ROOT, Engine, Images, compose_program

from noetl_stream.local.processes import choose_port

PATIENCE_S = 180.0
"""Far beyond what anything here needs; only a failing test takes this long."""


def until(holds: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up_at, f"it never was: {what}"


@dataclass
class ComposeStack:
    """
    Attributes:
        folder: Has ``deploy/compose.yaml`` and what it needs, with secrets of its own.
        image: What the roles run; set it and call :meth:`up` to change it.
        token: Of an administrator, for the gateway on :attr:`url`.
    """

    engine: Engine
    folder: Path
    project: str
    images: Images
    image: str
    port: int = field(default_factory=choose_port)
    token: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def _given(self) -> dict[str, str]:
        images = {"NOETL_IMAGE": self.image, "NATS_IMAGE": self.images.nats, "POSTGRES_IMAGE": self.images.postgres}
        # docker-compose 1 looks for it in the current folder.
        seccomp = ROOT / "deploy" / "seccomp" / "worker.json"
        return {**images, "NOETL_PORT": str(self.port), "NOETL_SECCOMP": str(seccomp)}

    def compose(self, *words: str) -> str:
        file = str(self.folder / "deploy" / "compose.yaml")
        ran = subprocess.run(
            [*compose_program(), "-p", self.project, "-f", file, *words],
            env=self.engine.environment(self._given),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ran.returncode == 0, f"compose {' '.join(words)}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}"
        return ran.stdout

    def prepare(self) -> None:
        """Makes the secrets, the schema, the streams and :attr:`token`. NATS and Postgres are up then."""
        prepare = self.folder / "deploy" / "compose" / "prepare"
        subprocess.run([prepare], env=self.engine.environment(self._given), check=True)
        created = self.compose("run", "--rm", "gateway", "token", "create", "tests", "--role", "admin")
        self.token = created.split()[-1]

    def start(self) -> None:
        self.compose("up", "-d")
        until(self.is_healthy, "healthy")

    def containers(self, service: str, *, ended: bool = False) -> list[str]:
        labels = (f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}")
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        return sorted(self.engine.docker("ps", *filters, *(["--all"] if ended else []), "-q").split())

    def inspect(self, container: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.engine.docker("inspect", container))[0]
        return found

    def is_healthy(self) -> bool:
        """Whether all containers that have a health check are healthy."""
        services = ("nats", "postgres", "server", "gateway", "worker")
        found = [self.inspect(one) for service in services for one in self.containers(service)]
        return all(one["State"].get("Health", {}).get("Status") == "healthy" for one in found)

    def stop(self, container: str, *, remove: bool = True) -> None:
        """Ends it in order, within the grace that compose.yaml gives it."""
        self.engine.docker("stop", container)
        if remove:
            self.engine.docker("rm", container)

    def network(self, name: str) -> str:
        return f"{self.project}_{name}"

    def disconnect(self, container: str, network: str) -> None:
        self.engine.docker("network", "disconnect", self.network(network), container)

    def connect(self, container: str, network: str) -> None:
        """Back, by the name of its service."""
        service = self.inspect(container)["Config"]["Labels"]["com.docker.compose.service"]
        self.engine.docker("network", "connect", "--alias", service, self.network(network), container)

    def logs(self) -> str:
        return self.compose("logs", "--no-color", "--tail", "200")


@contextmanager
def compose_stack(
    engine: Engine, images: Images, folder: Path, project: str, *, with_roles: bool = True
) -> Iterator[ComposeStack]:
    """A stack that is up and healthy, and removed at the end."""
    (folder / "deploy").mkdir()
    shutil.copy(ROOT / "nats.conf", folder)
    shutil.copy(ROOT / "deploy" / "compose.yaml", folder / "deploy")
    unwanted = shutil.ignore_patterns("secrets")
    shutil.copytree(ROOT / "deploy" / "compose", folder / "deploy" / "compose", ignore=unwanted)
    stack = ComposeStack(engine, folder, project, images, images.stream)
    try:
        stack.prepare()
        if with_roles:
            stack.start()
        yield stack
    finally:
        print(stack.logs())
        stack.compose("down", "--volumes", "--timeout", "5")
