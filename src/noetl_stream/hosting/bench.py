"""Benchmarks the real stack on this machine: bursts, latency, fan-out, and the cost per process (``bench``)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import psutil

from noetl_stream.errors import UsageError
from noetl_stream.hosting.processes import Supervised
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.ids import uuid7
from noetl_stream.model.messages import FORMAT, Request
from noetl_stream.operations.executions.submit import Client
from noetl_stream.protocol.nats_permissions import SERVER, worker_identity
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.stack import StackAccess
from noetl_stream.wiring.stores import Connected

ALIVE_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Load:
    """The load: bursts of ``executions`` × ``steps``, ``latency_runs`` one at a time, a loop of ``fan_out``."""

    executions: int
    steps: int
    latency_runs: int
    fan_out: int
    in_flight: int
    repeat: int
    servers: int
    workers: int
    slots: int


@dataclass(slots=True)
class Figures:
    """The measurements. CPU is user + system time of the bursts, per step; memory is the PSS at the end."""

    conditions: dict[str, str] = field(default_factory=dict)
    steps_per_s: list[float] = field(default_factory=list)
    executions_per_s: list[float] = field(default_factory=list)
    cpu_us_per_step: dict[str, float] = field(default_factory=dict)
    memory_mib: dict[str, float] = field(default_factory=dict)
    latency_ms: dict[str, float] = field(default_factory=dict)
    fan_out_s: list[float] = field(default_factory=list)


class Bench:
    """Measures a stack: the NATS and Postgres of ``stack``, and its own server and worker processes."""

    def __init__(self, stack: StackAccess, connected: Connected, load: Load) -> None:
        self._stack = stack
        self._connected = connected
        self._client: Client = make_client(connected)
        self._load = load
        self._ended: dict[str, asyncio.Future[float]] = {}
        self._groups: dict[str, list[psutil.Process]] = {}

    async def run(self) -> Figures:
        """Starts servers and workers, warms up, measures, and stops them."""
        if await self._client.alive():
            hint = "use a separate --home: bench starts its own servers"
            raise UsageError("a server is already running here", hint=hint)
        async with AsyncExitStack() as stack:
            await self._start_roles(stack)
            subscription = await self._connected.bus.listen("noetl.events.*.*.decided", self._on_decided)
            stack.push_async_callback(subscription.close)
            chain = await self._client.put(chain_playbook(self._load.steps))
            loop = await self._client.put(loop_playbook(self._load.fan_out, self._load.in_flight))
            await self._burst(chain, min(200, self._load.executions))
            return await self._measure(chain, loop)

    async def _measure(self, chain: str, loop: str) -> Figures:
        figures = Figures(conditions=conditions(self._load))
        before = self._cpu_seconds()
        for _ in range(self._load.repeat):
            seconds = await self._burst(chain, self._load.executions)
            figures.executions_per_s.append(round(self._load.executions / seconds, 1))
            figures.steps_per_s.append(round(self._load.executions * self._load.steps / seconds, 1))
        steps = self._load.repeat * self._load.executions * self._load.steps
        spent = self._cpu_seconds()
        figures.cpu_us_per_step = {k: round((spent[k] - before[k]) / steps * 1e6, 1) for k in spent}
        figures.memory_mib = {k: round(sum(map(_memory, group)) / 2**20, 1) for k, group in self._groups.items()}
        waits = sorted([await self._burst(chain, 1) for _ in range(self._load.latency_runs)])
        if waits:
            at = {"p50": 0.5, "p99": 0.99}
            figures.latency_ms = {k: round(waits[int(q * (len(waits) - 1))] * 1e3, 2) for k, q in at.items()}
        figures.fan_out_s = [round(await self._burst(loop, 1), 3) for _ in range(self._load.repeat)]
        return figures

    async def _start_roles(self, stack: AsyncExitStack) -> None:
        pool = self._stack.settings.pool
        worker, identity = ["worker", "--pool", pool, "--slots", str(self._load.slots)], worker_identity(pool)
        children = [Supervised("server", ["server"], self._stack, SERVER) for _ in range(self._load.servers)]
        children += [Supervised("worker", worker, self._stack, identity) for _ in range(self._load.workers)]
        for child in children:
            task = asyncio.create_task(child.run())
            stack.callback(task.cancel)
            stack.push_async_callback(child.stop)
        while not await self._client.alive():
            await self._connected.clock.sleep(ALIVE_POLL_S)
        pids = [child.pid for child in children]
        self._groups = {
            "server": _processes(pids[: self._load.servers]),
            "worker": _processes(pids[self._load.servers :]),
            "client": _processes([os.getpid()]),
        }
        if self._stack.embedded is not None:
            for name, pid in self._stack.embedded.pids().items():
                root = psutil.Process(pid)
                self._groups[name] = [root, *root.children(recursive=True)]

    async def _burst(self, digest: str, count: int) -> float:
        """Returns the seconds from the first request to the end of the last execution."""
        clock = self._connected.clock
        loop = asyncio.get_running_loop()
        requests = []
        for _ in range(count):
            execution_id = uuid7(clock.now_ms(), clock.random_bytes(10))
            fact = ExecutionRequested(execution_id, digest)
            requests.append(Request(execution_id, execution_id, fact, format=FORMAT))
            self._ended[execution_id] = loop.create_future()
        began_s = time.perf_counter()
        await asyncio.gather(*map(self._connected.requests.publish, requests))
        ends = await asyncio.gather(*self._ended.values())
        self._ended.clear()
        return max(ends) - began_s

    async def _on_decided(self, subject: str, body: bytes, reply: str) -> None:
        if b'"execution.finished"' in body:
            ended = self._ended.get(subject.split(".")[3])
            if ended is not None and not ended.done():
                ended.set_result(time.perf_counter())

    def _cpu_seconds(self) -> dict[str, float]:
        """Returns the CPU seconds used so far, by group of processes."""
        if group := self._groups.get("postgres"):
            self._groups["postgres"] = [group[0], *group[0].children(recursive=True)]
        return {name: sum(map(_cpu, group)) for name, group in self._groups.items()}


def chain_playbook(steps: int) -> str:
    """Returns a playbook of ``steps`` no-op steps in sequence."""
    workflow: list[dict[str, object]] = [{"step": f"step_{n}", "tool": {"kind": "noop"}} for n in range(steps)]
    for number, step in enumerate(workflow[:-1], start=1):
        step["next"] = {"arcs": [{"step": f"step_{number}", "when": "{{ event.name == 'step.done' }}"}]}
    return _playbook("chain", workflow)


def loop_playbook(count: int, in_flight: int) -> str:
    """Returns a playbook with a no-op for each of ``count`` items, ``in_flight`` at a time, on any worker."""
    spec = {"mode": "parallel", "max_in_flight": in_flight}
    loop = {"in": "{{ range(" + str(count) + ") | list }}", "iterator": "item", "spec": spec}
    return _playbook("loop", [{"step": "fan_out", "loop": loop, "tool": {"kind": "noop"}}])


def _playbook(name: str, workflow: list[dict[str, object]]) -> str:
    metadata = {"name": name, "path": f"bench/{name}"}
    return json.dumps({"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": metadata, "workflow": workflow})


def conditions(load: Load) -> dict[str, str]:
    """Returns the conditions of the measurements."""
    return {
        "load": f"{load.executions} executions x {load.steps} noop steps, {load.repeat} bursts",
        "fan-out": f"{load.fan_out} iterations, {load.in_flight} in flight",
        "roles": f"{load.servers} server, {load.workers} worker, {load.slots} slots each",
        "cpus": str(psutil.cpu_count()),
        "python": sys.version.split()[0],
    }


def _processes(pids: list[int | None]) -> list[psutil.Process]:
    return [psutil.Process(pid) for pid in pids if pid is not None]


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _memory(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
    except psutil.NoSuchProcess:
        return 0
    except psutil.AccessDenied:  # processes of noetl-stream show the rest only to root
        return int(process.memory_info().rss)
    return int(getattr(full, "pss", full.rss))
