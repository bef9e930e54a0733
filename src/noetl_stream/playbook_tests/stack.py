"""An installation in memory: a server, workers and the operations of clients on one broker and store, in simulated
time.

The roles are the real ones. Time passes by itself for waits that only time ends: delays, `wait` with `for_s` or
`until`, calls that take time. For waits that somebody must answer it passes only as the test orders.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Literal

from msgspec.structs import replace

from noetl_stream.adapters.evaluation.pool import MemoryEvaluator
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.adapters.memory.stores.store import MemoryStore
from noetl_stream.adapters.simulated_time import simulated_loop
from noetl_stream.engine.state import Execution
from noetl_stream.lru import LruCache
from noetl_stream.model.aggregates import is_limit
from noetl_stream.model.ids import digest_of, timer_of
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.model.status import ENDED
from noetl_stream.operations.cluster import ClusterPorts, DirectCluster
from noetl_stream.operations.executions.direct import DirectExecutions, ExecutionPorts
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.operations.executions.reading.logs import ExecutionLogs
from noetl_stream.operations.executions.submit import Requests
from noetl_stream.operations.playbooks import DirectPlaybooks, PlaybookPorts
from noetl_stream.operations.waiting_on import awaited
from noetl_stream.playbook.compile.compiler import CheckResult, check_again
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.plan import KeychainPlan, Plan
from noetl_stream.ports.stores.store import ExecutionRow
from noetl_stream.protocol.signed_requests import RequestSigner
from noetl_stream.sealing.keys import KEY_BYTES, Key, KeyRing
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.server.answers.capabilities import Capabilities
from noetl_stream.server.assembly import ServerPorts, ServerTimes
from noetl_stream.server.server import Server
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_stream.storage.used_secrets import UsedSecrets
from noetl_stream.tools.contract import Tool
from noetl_stream.worker.child_playbooks import PlanClient
from noetl_stream.worker.worker import Worker

SLOTS: Final = 256
BY: Final = "test"
"""The principal of everything that a test does."""

UNHURRIED: Final = ServerTimes(housekeeping_s=60.0, mark_s=600.0, compare_s=600.0, reconcile_s=600.0)
"""The intervals of a server in a test. Nothing is lost in memory, and a check for losses would cost as much as a step.
"""

PLAYBOOKS_KEPT: Final = 256

STILL_MOMENTS: Final = 20_000
"""The number of times that time may pass while no execution progresses: a call may take days."""

CREEP_S: Final = 0.5
"""The largest drift of simulated time, since the broker gives each message its own moment: timers due this soon after a
moment that a test names are due at it.
"""

MOST_EVENTS: Final = 100_000
"""The most events of all live executions of a test together."""

MOST_YEARS: Final = 100
"""The most simulated time of a test."""

Stopped = Literal["ended", "waiting", "due", "over"]


class EndlessExecution(RuntimeError):
    """An execution does not end within the bounds of a test, or counts as running while nothing happens."""


class MemoryStack:
    """An installation in memory for one test.

    Args:
        pools: The pools of the playbooks, each with a worker.
        secrets: The secrets by lower-case name, as in ``NOETL_CREDENTIAL_<NAME>``.
        is_over: Whether the test has ended, independently of the execution.
    """

    def __init__(
        self,
        tools: Mapping[str, Tool],
        compiled: CompiledPlaybooks,
        *,
        pools: Collection[str],
        secrets: Mapping[str, str],
        is_over: Callable[[], bool],
    ) -> None:
        self._is_over = is_over
        self._loop = simulated_loop()
        self.clock = clock = self._loop.clock
        self._tools, self._compiled, self._pools, self._secrets = tools, compiled, pools, secrets
        self._broker = broker = MemoryBroker(clock)
        self.store = MemoryStore(clock)
        catalog = MemoryCatalog(self.store)
        server_keys = KeyRing(Key("server-key-1", clock.random_bytes(KEY_BYTES)))
        access_keys = KeyRing(Key("access-key-1", clock.random_bytes(KEY_BYTES)))
        object_keys = DerivedKeys(access_keys)
        signer, objects = RequestSigner(access_keys), SealedBlobs(broker.blobs, object_keys)
        ports = ServerPorts(
            log=broker.event_log,
            queue=broker.command_queue,
            store=self.store,
            blobs=objects,
            task_logs=broker.task_logs,
            bus=broker.bus,
            clock=clock,
            catalog=catalog,
            evaluator=MemoryEvaluator(),
            capabilities=Capabilities(server_keys, access_keys),
            signer=signer,
        )
        self._server = Server("server", ports, compiled.kinds, UNHURRIED, compiled.limits, checker=compiled.for_servers)
        hidden = UsedSecrets(MemoryCredentials(clock), None)
        cluster_ports = ClusterPorts(
            broker.event_log, broker.command_queue, broker.bus, self.store, self.store.dead_letters, clock
        )
        execution_ports = ExecutionPorts(
            requests=Requests(broker.event_log, signer),
            bus=broker.bus,
            blobs=objects,
            store=self.store,
            catalog=catalog,
            clock=clock,
            logs=ExecutionLogs(broker.task_logs, hidden, clock),
            object_keys=object_keys,
        )
        checking = compiled.for_clients
        self.executions = DirectExecutions(execution_ports, checking, lambda: DirectCluster(cluster_ports, hidden))
        self.playbooks = DirectPlaybooks(PlaybookPorts(self.store, catalog, clock, objects, broker.bus), checking)
        self._running: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Starts server and workers; returns when they are at work."""
        self._running.append(asyncio.create_task(self._server.run()))
        for pool in sorted(self._pools):
            worker = self._worker(pool)
            self._running.append(asyncio.create_task(worker.run()))
            await worker.opened.wait()
        while not len(self._server.ownership):
            await self._loop.pass_time()

    def _worker(self, pool: str) -> Worker:
        broker = self._broker
        return Worker(
            name="worker" if pool == "default" else f"worker-{pool}",
            pool=pool,
            slots=SLOTS,
            event_log=broker.event_log,
            queue=broker.command_queue,
            bus=broker.bus,
            blobs=broker.blobs,
            task_logs=broker.task_logs,
            clock=self.clock,
            tools=self._tools,
            plans=PlanClient(self._compiled.kinds, checker=self._compiled.for_workers),
            credentials=self._secrets,
        )

    @property
    def execution_ids(self) -> list[str]:
        """The ids of all executions, in the order in which they began."""
        return list(self.store.tables.executions)

    def waits(self, execution_id: str) -> list[str]:
        """The steps at which the execution waits, sorted."""
        cached = self._server.executions.get(execution_id)
        if cached is None or cached.state is None:
            return []
        plan = cached.plan if isinstance(cached.plan, Plan) else None
        return sorted({wait.step for wait in awaited(cached.state, plan)})

    async def row(self, execution_id: str) -> ExecutionRow:
        found = await self.store.execution(execution_id)
        assert found is not None
        return found

    async def run(self, execution_id: str, until_s: float | None) -> Stopped:
        """Lets the execution run until it ends, or until ``until_s``; without that, until it waits for somebody.

        Raises:
            EndlessExecution: neither happens.
        """
        still, reached = 0, 0
        while True:
            await self._loop.until_idle()
            for role in self._running:
                if role.done():
                    role.result()  # raises its defect
            row = await self.row(execution_id)
            if self._is_over():
                return "over"
            if row.status in ENDED:
                return "ended"
            now_s = self.clock.monotonic_s()
            states = list(self._live())
            if until_s is not None and now_s >= until_s:
                due = self._due_s(states, by_somebody=True)
                if due is None or due > until_s + CREEP_S or now_s > until_s + CREEP_S:
                    return "due"
                await self._loop.pass_time(due)
                continue
            moved = sum(one.position for one in states)
            still, reached = (still + 1 if moved == reached else 0), moved
            if still > STILL_MOMENTS:
                raise EndlessExecution(f"nothing has happened in {STILL_MOMENTS:,} moments of simulated time")
            if moved > MOST_EVENTS:
                raise EndlessExecution(f"more than {MOST_EVENTS:,} events: a loop of the playbook does not end")
            if now_s > MOST_YEARS * 366 * 86_400:
                years = f"more than {MOST_YEARS} years of simulated time"
                raise EndlessExecution(f"{years}: a loop of the playbook does not end")
            if any(one.shown_status in ("pending", "running") for one in states):
                await self._loop.pass_time(until_s)
                continue
            due = self._due_s(states, by_somebody=until_s is not None)
            if due is None and until_s is None:
                return "waiting"
            moment = min(one for one in (due, until_s) if one is not None)
            if moment > now_s:
                self.clock.advance_to(moment)
            else:
                await self._loop.pass_time(until_s)

    def _live(self) -> Iterator[Execution]:
        for _, cached in self._server.executions:
            if cached.state is not None and not cached.state.ended:
                yield cached.state

    def _due_s(self, states: Collection[Execution], *, by_somebody: bool) -> float | None:
        """The time of the next timer: of all timers, or of those of waits that nothing else ends."""
        due = [
            timer.due_ms
            for state in states
            if not state.paused_at_ms
            for timer_id, timer in state.timers.items()
            if by_somebody or timer_id in _delays(state)
        ]
        if any(not slot.granted for state in states for slot in state.slots.values()):  # a rate grants them in time
            due += (row.due_ms for row in self.store.tables.timers.values() if is_limit(row.execution_id))
        if not due:
            return None
        return self.clock.monotonic_s() + max(0, min(due) - self.clock.now_ms()) / 1000

    async def close(self) -> None:
        """Closes the installation at once."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for tool in self._tools.values():
            await tool.close()


def _delays(state: Execution) -> set[str]:
    """The ids of timers of waits that nothing else ends."""
    return {
        timer_of(suspended.command_id, "wait", wait.path)
        for suspended in state.suspensions.values()
        for wait in suspended.waits.values()
        if wait.signal is None and wait.child is None
    }


class CompiledPlaybooks:
    """Compiles each playbook once for all tests: for clients, servers and workers."""

    def __init__(self, kinds: Kinds, limits: Limits) -> None:
        self.kinds, self.limits = kinds, limits
        self.for_clients = PlaybookChecker(lambda: kinds, limits, needs_locks=False)
        self._known: LruCache[str, CheckResult] = LruCache(PLAYBOOKS_KEPT)

    def for_servers(
        self, text: str | bytes, kinds: Kinds, *, file: str = "", limits: Limits = DEFAULT_LIMITS
    ) -> CheckResult:
        """Checks a playbook for servers like :func:`check_again`, from the cache."""
        digest = digest_of(text)
        found = self._known.get(digest)
        if found is None:
            found = check_again(text, self.kinds, file=file, limits=self.limits)
            self._known.put(digest, found)
        return found

    def for_workers(
        self, text: str | bytes, kinds: Kinds, *, file: str = "", limits: Limits = DEFAULT_LIMITS
    ) -> CheckResult:
        """Checks a playbook for workers. A keychain entry is the test's credential instead of a variable or file."""
        checked = self.for_servers(text, kinds, file=file)
        if checked.plan is None:
            return checked
        entries = checked.plan.keychain.items()
        keychain = {name: KeychainPlan(name, "credential", {}, entry.line) for name, entry in entries}
        return replace(checked, plan=replace(checked.plan, keychain=keychain))
