"""What Kubernetes would do with the rendered objects, as far as processes on one machine go.

Deployments roll out by their surge, Services have the pods that are ready, evictions ask disruption budgets. There
is no API server here, no network policy, no image.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from helm import Rendered
from manifests import PodOf, matches, named, of_kind, pods
from rendered_pod import LOOPBACK, Ended, RunningPod, Site, run_container

NODES = ("node-a", "node-b", "node-c")
CHUNK_BYTES = 65536


class Deployment:
    """The pods of a Deployment."""

    def __init__(self, one: Rendered, template: PodOf, site: Site) -> None:
        self.name: str = one["metadata"]["name"]
        self.wanted: int = one["spec"].get("replicas", 1)
        self.running: list[RunningPod] = []
        self.ended: list[Ended] = []
        self.unlive: list[str] = []
        self.template = template
        self._rolling = one["spec"]["strategy"]["rollingUpdate"]
        self._site = site
        self._numbers = count(1)
        self._watching: list[asyncio.Task[None]] = []
        self.cordoned: set[str] = set()

    async def add(self) -> RunningPod:
        """Starts a pod, and waits until it is ready."""
        pod = await self.start()
        await pod.until_ready()
        return pod

    async def start(self) -> RunningPod:
        """Starts a pod on the machine that has the fewest."""
        nodes = [node for node in NODES if node not in self.cordoned]
        node = min(nodes, key=lambda one: sum(pod.node == one for pod in self.running))
        pod = RunningPod(f"{self.name}-{next(self._numbers)}", self.template, self._site, node)
        self.running.append(pod)
        await pod.start()
        self._watching.append(asyncio.create_task(self._watch(pod)))
        return pod

    async def _watch(self, pod: RunningPod) -> None:
        await pod.watch()
        if not pod.is_terminating:
            self.unlive.append(pod.name)

    async def remove(self, pod: RunningPod) -> None:
        self.ended.append(await pod.terminate())
        self.running.remove(pod)

    async def scale(self, wanted: int) -> None:
        self.wanted = wanted
        await asyncio.gather(*(self.add() for _ in range(wanted - len(self.running))))
        await asyncio.gather(*(self.remove(pod) for pod in self.running[wanted:]))

    async def roll(self) -> None:
        """Replaces every pod: a new one is ready before an old one ends."""
        assert self._rolling == {"maxSurge": 1, "maxUnavailable": 0}
        for old in list(self.running):
            await self.add()
            await self.remove(old)

    async def evict(self, node: str, budget: Rendered) -> None:
        """Drains a machine of its pods, as far as their budget allows at a time; each is replaced elsewhere."""
        assert matches(budget["spec"]["selector"], self.template.labels)
        self.cordoned.add(node)
        for pod in [one for one in self.running if one.node == node]:
            ready = [one for one in self.running if not one.is_terminating and await one.passes("readinessProbe")]
            assert len(ready) - 1 >= self.wanted - budget["spec"]["maxUnavailable"], "the budget blocks the drain"
            await asyncio.gather(self.remove(pod), self.add())
        self.cordoned.discard(node)

    async def close(self) -> None:
        for watching in self._watching:
            watching.cancel()
        await asyncio.gather(*(pod.kill() for pod in self.running))


class Service:
    """Sends each connection to the next pod that is ready and does not end."""

    def __init__(self, deployment: Deployment, port: str) -> None:
        self._deployment, self._port = deployment, port
        self._server: asyncio.Server
        self._turns = count()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)

    async def close(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(client, to_client))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        turn = next(self._turns)
        # One that starts may take its time to answer a probe: no connection waits for that.
        endpoints = [pod for pod in self._deployment.running if pod.was_ready and not pod.is_terminating]
        for pod in (*endpoints[turn % len(endpoints) :], *endpoints[: turn % len(endpoints)]):
            if await pod.passes("readinessProbe"):
                with contextlib.suppress(OSError), contextlib.closing(to_client):
                    server, to_server = await asyncio.open_connection(LOOPBACK, pod.port(self._port))
                    with contextlib.closing(to_server):
                        await first_to_end(carry(client, to_server), carry(server, to_client))
                return
        to_client.close()


async def first_to_end(*works: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(CHUNK_BYTES):
        target.write(data)
        await target.drain()


class RenderedCluster:
    """All Deployments of a rendering, and the Service of the gateways."""

    def __init__(self, found: Sequence[Rendered], site: Site) -> None:
        templates = {pod.owner: pod for pod in pods(found)}
        self.deployments = {
            one["metadata"]["name"]: Deployment(one, templates[f"Deployment/{one['metadata']['name']}"], site)
            for one in of_kind(found, "Deployment")
        }
        self._found = found
        self._site = site
        service = named(found, "Service", "noetl-gateway")
        self.service = Service(self.deployments["noetl-gateway"], service["spec"]["ports"][0]["targetPort"])

    @asynccontextmanager
    async def installed(self) -> AsyncIterator[None]:
        """With as many pods as the objects want; not all are ready yet. The stores are migrated before."""
        await self.service.open()
        try:
            for one in self.deployments.values():
                await asyncio.gather(*(one.start() for _ in range(one.wanted)))
            yield
        finally:
            await self.service.close()
            await asyncio.gather(*(one.close() for one in self.deployments.values()))

    async def until_ready(self) -> None:
        await asyncio.gather(*(pod.until_ready() for one in self.deployments.values() for pod in one.running))

    async def migrate(self) -> None:
        """Runs the hook."""
        (job,) = (pod for pod in pods(self._found) if pod.role == "migration")
        for container in job.containers:
            await run_container(container, self._site)

    async def exec(self, deployment: str, *command: str) -> str:
        """Runs a command as in a pod, which has the same environment. Returns its output."""
        (container,) = self.deployments[deployment].template.spec["containers"]
        return await run_container({**container, "command": ["noetl-stream", *command]}, self._site)

    async def drain(self, node: str) -> None:
        """Evicts all pods of a machine, those of each Deployment at the same time."""
        budgets = {name: named(self._found, "PodDisruptionBudget", name) for name in self.deployments}
        await asyncio.gather(*(one.evict(node, budgets[name]) for name, one in self.deployments.items()))

    @property
    def ended(self) -> list[Ended]:
        return [ended for one in self.deployments.values() for ended in one.ended]

    @property
    def unlive(self) -> list[str]:
        """Pods that Kubernetes would have restarted."""
        return [name for one in self.deployments.values() for name in one.unlive]
