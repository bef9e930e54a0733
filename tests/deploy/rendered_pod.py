"""A pod as a process on loopback: command, environment, probes and grace period are those of its rendered template."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import aiohttp
from helm import Rendered
from manifests import PodOf

from kubernetes_api import KubernetesApi
from nats_process import free_ports

Secrets = Mapping[tuple[str, str], str]
"""Values by the name of the Secret and the key."""

ANY_ADDRESS = "0.0.0.0"
LOOPBACK = "127.0.0.1"


ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where Kubernetes mounts what a pod has of its account."""


class Site(NamedTuple):
    """What all processes have: where the program is, the Secrets, and a folder for logs. ``kubernetes`` is asked by
    containers that have an account of it.
    """

    program: Path
    secrets: Secrets
    folder: Path
    kubernetes: KubernetesApi | None = None


class Ended(NamedTuple):
    """How a pod ended. ``killed``: it was not done when its grace period had passed."""

    name: str
    code: int
    took_s: float
    killed: bool


def plain_environment(container: Rendered, secrets: Secrets) -> dict[str, str]:
    """The variables of a container. Those that refer to an optional key that is not there are left out."""
    found = {}
    for one in container.get("env", []):
        if "value" in one:
            found[one["name"]] = one["value"]
            continue
        source = one["valueFrom"]["secretKeyRef"]
        value = secrets.get((source["name"], source["key"]))
        assert value is not None or source.get("optional"), f"no key {source['key']} in Secret {source['name']}"
        if value is not None:
            found[one["name"]] = value
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "HOME": "/nonexistent", **found}


async def run_container(container: Rendered, site: Site) -> str:
    """Runs the container of a Job to its end. Returns its output."""
    process = await asyncio.create_subprocess_exec(
        *command_of(container, site),
        env=plain_environment(container, site.secrets),
        cwd=site.folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return output.decode()


def command_of(container: Rendered, site: Site) -> list[str]:
    program, *words = container["command"]
    assert program == site.program.name
    if any(mount["mountPath"] == ACCOUNT for mount in container.get("volumeMounts", [])):
        assert site.kubernetes is not None
        words += ["--api", site.kubernetes.url, "--account", str(site.kubernetes.account)]
    return [str(site.program), *words]


class RunningPod:
    """A process of a Deployment. Each of its ports is mapped to a free one of loopback.

    Args:
        node: The machine on which it would run.
    """

    def __init__(self, name: str, template: PodOf, site: Site, node: str) -> None:
        self.name, self.node, self.role = name, node, template.role
        (self._container,) = template.spec["containers"]
        self._grace_s: int = template.spec["terminationGracePeriodSeconds"]
        self._site = site
        inside = [port["containerPort"] for port in self._container["ports"]]
        self._ports = dict(zip(inside, free_ports(len(inside)), strict=True))
        self._log = site.folder / f"{name}.log"
        self._process: asyncio.subprocess.Process
        self.is_terminating = False
        self.was_ready = False

    def port(self, name: str) -> int:
        """Where it answers on loopback, by the name of the port."""
        (number,) = (port["containerPort"] for port in self._container["ports"] if port["name"] == name)
        return self._ports[number]

    async def start(self) -> None:
        environment = plain_environment(self._container, self._site.secrets)
        for name, value in environment.items():
            host, _, port = value.rpartition(":")
            if host == ANY_ADDRESS:
                environment[name] = f"{LOOPBACK}:{self._ports[int(port)]}"
        mapped = {ANY_ADDRESS: LOOPBACK, **{str(inside): str(port) for inside, port in self._ports.items()}}
        command = [mapped.get(word, word) for word in command_of(self._container, self._site)]
        with self._log.open("wb") as output:
            self._process = await asyncio.create_subprocess_exec(
                *command, env=environment, cwd=self._site.folder, stdout=output, stderr=output
            )

    async def passes(self, probe: str) -> bool:
        """Asks once, as the kubelet does."""
        asked = self._container[probe]
        timeout = aiohttp.ClientTimeout(asked["timeoutSeconds"])
        url = f"http://{LOOPBACK}:{self.port(asked['httpGet']['port'])}{asked['httpGet']['path']}"
        try:
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
                return response.status < 400
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def until_ready(self) -> float:
        """Waits for the start-up and readiness probes. Returns the seconds it took.

        Raises:
            AssertionError: it ended, or the start-up probe failed for too long.
        """
        began = time.monotonic()
        startup = self._container["startupProbe"]
        async with asyncio.timeout(startup["periodSeconds"] * startup["failureThreshold"]):
            for probe in ("startupProbe", "readinessProbe"):
                while not await self.passes(probe):
                    assert self._process.returncode is None, self.log
                    await asyncio.sleep(0.05)
        self.was_ready = True
        return time.monotonic() - began

    async def watch(self) -> None:
        """Asks the liveness probe until it fails as often as the kubelet tolerates, which would then restart it."""
        asked, failures = self._container["livenessProbe"], 0
        while failures < asked["failureThreshold"]:
            await asyncio.sleep(asked["periodSeconds"])
            failures = 0 if await self.passes("livenessProbe") else failures + 1

    async def terminate(self) -> Ended:
        """The preStop action, SIGTERM, and SIGKILL at the end of the grace period."""
        self.is_terminating = True
        began = time.monotonic()
        hook = self._container.get("lifecycle", {}).get("preStop", {})
        await asyncio.sleep(hook.get("sleep", {}).get("seconds", 0))
        self._process.send_signal(signal.SIGTERM)
        killed = False
        try:
            async with asyncio.timeout(self._grace_s - (time.monotonic() - began)):
                await self._process.wait()
        except TimeoutError:
            killed = True
            await self.kill()
        code = await self._process.wait()
        return Ended(self.name, code, time.monotonic() - began, killed)

    async def kill(self) -> None:
        """As when its machine dies."""
        self.is_terminating = True
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")
