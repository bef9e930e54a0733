"""What waiting costs: latency of a signal and of a call, memory and CPU of a server while many wait, timers per second.

    python benchmarks/waiting.py [executions]

Embedded NATS and Postgres, one server and one worker, in a temporary home. All executions wait for the same time. The
server is killed once before it, which shows how long loading them again takes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import psutil

from bench_stack import running, until
from noetl_stream.hosting.processes import Supervised
from noetl_stream.model.events import ExecutionRequested, SignalReceived, StepSuspended, TaskProcessed
from noetl_stream.model.ids import uuid7
from noetl_stream.model.messages import Request
from noetl_stream.operations.executions.submit import Client
from noetl_stream.operations.playbooks import entry_of
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.tools.registry import kinds_of
from noetl_stream.wiring.operations import installed_kinds, make_client
from noetl_stream.wiring.stack import StackAccess, connected_to, open_stack, prepare_embedded
from noetl_stream.wiring.stores import Connected
from noetl_testkit.following import Submission, Watcher, submit

RUNS = 200
AT_ONCE = 500
"""Requests in flight."""

REST_S = 20.0
LOADING_S = 5.0
NAMES = ("timer.set", "timer.fired", "execution.finished")


def playbook(name: str, tasks: list[dict[str, Any]], **more: Any) -> str:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"bench/{name}"}}
    return json.dumps({**head, **more, "workflow": [{"step": "only", "tool": tasks}]})


DONE = {"name": "done", "kind": "noop"}
PLAIN = playbook("plain", [DONE])
CALLS = playbook("calls", [{"name": "call", "kind": "playbook", "path": "bench/plain"}])
HEARS = playbook("hears", [{"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 600}, DONE])
RESTS = playbook(
    "rests", [{"name": "rest", "kind": "wait", "until": "{{ workload.until_s }}"}, DONE], workload={"until_s": 0}
)


class Measured:
    """The stack under measurement; ``counts`` is what its server has decided so far, by event name."""

    def __init__(self, place: StackAccess, connected: Connected) -> None:
        self._connected = connected
        self._client: Client = make_client(connected)
        self._server: Supervised
        self._worker: Supervised
        self._place = place
        self._gone: set[str | None] = set()
        self.counts: Counter[str] = Counter()
        self._last_s: dict[str, float] = {}
        self._first_s: dict[str, float] = {}

    async def start(self, stack: AsyncExitStack) -> None:
        self._server, self._worker = await stack.enter_async_context(running(self._place, ["server"], ["worker"]))
        subscription = await self._connected.bus.listen("noetl.events.*.*.decided", self._on_decided)
        stack.push_async_callback(subscription.close)
        await until(self._all_owned)

    async def signal_to_step_ms(self) -> list[float]:
        """Milliseconds from the publication of a signal to the report of the task after the wait."""
        return [await self._signal_once(number) for number in range(RUNS)]

    async def execution_ms(self, source: str) -> list[float]:
        """Milliseconds from a request to the end, one execution at a time."""
        return [await self._run_once(source) for _ in range(RUNS)]

    async def register(self, source: str) -> None:
        clock = self._connected.clock
        plan = compile_playbook(source, kinds_of(installed_kinds()))
        entry = entry_of(source, plan, registered_ms=clock.now_ms(), registered_by="bench")
        await self._connected.store.catalog.register(entry, source)

    async def wait_many(self, count: int, until_s: float) -> float:
        """Starts ``count`` executions that wait. Returns the seconds until all do."""
        digest = await self._client.put(RESTS)
        began_s, gate, before = time.perf_counter(), asyncio.Semaphore(AT_ONCE), self.counts["timer.set"]

        async def submit() -> None:
            clock = self._connected.clock
            execution_id = uuid7(clock.now_ms(), clock.random_bytes(10))
            fact = ExecutionRequested(execution_id, digest, workload={"until_s": until_s})
            async with gate:
                await self._connected.requests.publish(Request(execution_id, execution_id, fact))

        await asyncio.gather(*(submit() for _ in range(count)))
        await until(lambda: _given(self.counts["timer.set"] >= before + count))
        return time.perf_counter() - began_s

    async def at_rest(self) -> dict[str, float]:
        """Percent of one CPU that each process uses while nothing happens."""
        before = {name: _cpu_s(pid) for name, pid in self._pids().items()}
        await asyncio.sleep(REST_S)
        return {name: 100 * (_cpu_s(pid) - before[name]) / REST_S for name, pid in self._pids().items()}

    def memory_mib(self) -> float:
        """Resident memory of the server."""
        return float(psutil.Process(self._pids()["server"]).memory_info().rss) / 2**20

    async def replace_server(self) -> float:
        """Kills the server; the seconds until another owns everything and has loaded it."""
        self._gone = await self._owners()
        began_s = time.perf_counter()
        os.kill(self._pids()["server"], signal.SIGKILL)
        await until(self._all_owned)
        return time.perf_counter() - began_s

    async def fired_a_second(self, count: int) -> tuple[float, float]:
        """Timers fired and executions ended per second, once all are due."""
        await until(lambda: _given(self.counts["execution.finished"] >= count))
        return tuple(  # type: ignore[return-value]
            count / (self._last_s[name] - self._first_s[name]) for name in ("timer.fired", "execution.finished")
        )

    def forget(self) -> None:
        """Resets the counts."""
        for kept in (self.counts, self._first_s, self._last_s):
            kept.clear()

    async def _signal_once(self, number: int) -> float:
        submission = Submission.new(HEARS, "bench/hears", {}, self._connected.clock)
        follower = await Watcher(self._connected.bus, submission.execution_id).open(reports=True)
        try:
            await submit(self._client, submission, follower)
            began_s = 0.0
            async for news in follower.news():
                if isinstance(news.fact, StepSuspended):
                    fact = SignalReceived(f"signal-{number}", signal="go")
                    began_s = time.perf_counter()
                    await self._connected.requests.publish(Request(submission.execution_id, fact.request_id, fact))
                elif isinstance(news.fact, TaskProcessed) and news.fact.task == "done":
                    return (time.perf_counter() - began_s) * 1e3
            raise AssertionError("the execution has ended without its last task")
        finally:
            await follower.close()

    async def _run_once(self, source: str) -> float:
        submission = Submission.new(source, "bench", {}, self._connected.clock)
        follower = await Watcher(self._connected.bus, submission.execution_id).open()
        began_s = time.perf_counter()
        await submit(self._client, submission, follower)
        await follower.finished.wait()
        took_s = time.perf_counter() - began_s
        await follower.close()
        return took_s * 1e3

    async def _on_decided(self, subject: str, body: bytes, reply: str) -> None:
        now_s = time.perf_counter()
        for name in NAMES:
            if found := body.count(f'"name":"{name}"'.encode()):
                self.counts[name] += found
                self._first_s.setdefault(name, now_s)
                self._last_s[name] = now_s

    async def _owners(self) -> set[str | None]:
        return {view.owner if view.live else None for view in await self._connected.store.read_partitions()}

    async def _all_owned(self) -> bool:
        owners = await self._owners()
        return None not in owners and not owners & self._gone and await self._client.alive(0.5)

    def _pids(self) -> dict[str, int]:
        pids = dict(self._place.embedded.pids()) if self._place.embedded is not None else {}
        assert self._server.pid is not None
        assert self._worker.pid is not None
        return {"server": self._server.pid, "worker": self._worker.pid, **pids}


async def _given(value: bool) -> bool:
    return value


def _cpu_s(pid: int) -> float:
    root = psutil.Process(pid)
    times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def _shown(values: list[float]) -> str:
    cut = statistics.quantiles(values, n=100)
    return f"p50 {cut[49]:.1f} ms, p99 {cut[98]:.1f} ms"


async def measure(count: int, home: Path) -> None:
    with open_stack(Settings(home_folder=home)) as place:
        await prepare_embedded(place)
        async with connected_to(place, "waiting") as connected, AsyncExitStack() as stack:
            measured = Measured(place, connected)
            await measured.start(stack)
            await measured.register(PLAIN)
            await measured.execution_ms(PLAIN)
            print(f"signal to resumed step: {_shown(await measured.signal_to_step_ms())}")
            print(f"execution of one step: {_shown(await measured.execution_ms(PLAIN))}")
            print(f"execution that calls another: {_shown(await measured.execution_ms(CALLS))}")
            await _measure_many(measured, count)


async def _measure_many(measured: Measured, count: int) -> None:
    before_mib = measured.memory_mib()
    until_s = time.time() + 90 + count / 200
    took_s = await measured.wait_many(count, until_s)
    full_mib = measured.memory_mib()
    print(f"{count} wait after {took_s:.1f} s: {before_mib:.0f} MiB before, {full_mib:.0f} with them, "
          f"{(full_mib - before_mib) * 1024 / count:.1f} KiB each")  # fmt: skip
    rest = ", ".join(f"{name} {percent:.1f} %" for name, percent in (await measured.at_rest()).items())
    print(f"CPU at rest: {rest}")
    took_s = await measured.replace_server()
    await asyncio.sleep(LOADING_S)
    print(f"a killed server is replaced after {took_s:.1f} s; the next has {measured.memory_mib():.0f} MiB")
    measured.forget()
    fired, ended = await measured.fired_a_second(count)
    print(f"{fired:.0f} timers fired a second, {ended:.0f} executions ended")


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, Path(tempfile.mkdtemp(prefix="waiting-"))))
