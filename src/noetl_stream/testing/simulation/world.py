"""Servers, workers and clients of one simulation, on a broker and a store in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any

from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.catalog import MemoryCatalog
from noetl_stream.adapters.memory.store import MemoryStore
from noetl_stream.client.executions.submit import Client, RequestRefused, Submission, ask_of
from noetl_stream.errors import NoetlError, Unreachable
from noetl_stream.model import codec
from noetl_stream.model.events import (
    CtxPatched,
    ExecutionRequested,
    InterventionFact,
    LoopDone,
    LoopIterationDone,
    LoopIterationFailed,
    LoopPagedOut,
    PauseRequested,
    Rerun,
    ResumeRequested,
    SignalReceived,
    StepDone,
    StepFailed,
    StepSuspended,
)
from noetl_stream.model.ids import derive
from noetl_stream.model.messages import Report, Request
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.ports.catalog import CatalogEntry
from noetl_stream.server.housekeeping import ServerTimes
from noetl_stream.server.server import Server, ServerPorts
from noetl_stream.testing.simulation.faults import FaultPlan
from noetl_stream.testing.simulation.host import SimulatedHost
from noetl_stream.testing.simulation.plans import check_once
from noetl_stream.testing.simulation.time import simulated_clock
from noetl_stream.testing.simulation.work import CALLED, SIGNAL, Effect, Job, WorkTool
from noetl_stream.worker.plan_client import PlanClient
from noetl_stream.worker.worker import Worker

ENDS_OF_STEPS = (StepDone, StepFailed, LoopDone, LoopPagedOut, StepSuspended)
ENDS_OF_ITERATIONS = (LoopIterationDone, LoopIterationFailed)
KINDS = {"work": WorkTool.spec}
SLOTS = 3
RENEWAL_S = 10.0
STOLEN_S = 1.0
ROUNDS_OF_CANCELLING = 20


class SimulatedWorld:
    """See :class:`~noetl_stream.testing.simulation.faults.World`.

    Attributes:
        accepted: The job of each execution whose request was accepted or rejected by its job's playbook.
        begun: Servers that have taken partitions.
        ended: Roles that ended unexpectedly, with their error.
        touched: Commands that may run twice.
    """

    def __init__(self, faults: FaultPlan) -> None:
        self.clock = simulated_clock()
        self.broker = MemoryBroker(self.clock)
        self.store = MemoryStore(self.clock)
        self.catalog = MemoryCatalog(self.store)
        self.faults = faults
        self.effects: Counter[Effect] = Counter()
        self.accepted: dict[str, tuple[Submission, Job]] = {}
        self.refused: dict[str, tuple[Submission, Job]] = {}
        self.servers: dict[str, Server] = {}
        self.begun: set[str] = set()
        self.ended: list[str] = []
        self.touched: set[str] = set()
        self._hosts: list[SimulatedHost] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._names = 0

    async def register(self) -> None:
        """Registers the playbook that others call."""
        plan = compile_playbook(CALLED, KINDS)
        now_ms = self.clock.now_ms()
        entry = CatalogEntry(
            path=plan.path,
            version=None,
            revision=0,
            digest=plan.digest,
            name=plan.name,
            description=None,
            labels={},
            tags=[],
            registered_ms=now_ms,
            registered_by="simulation",
        )
        await self.catalog.register(entry, CALLED)

    def hosts(self, role: str) -> list[SimulatedHost]:
        return [host for host in self._hosts if host.alive and host.name.startswith(role)]

    def start(self, role: str) -> SimulatedHost:
        """Starts a server or a worker."""
        self._names += 1
        host = SimulatedHost(f"{role}-{self._names}", self.broker, self.store, self.faults)
        self._hosts.append(host)
        run = self._serve(host) if role == "server" else self._work(host)
        self._tasks.append(asyncio.create_task(run, name=host.name))
        return host

    def replace(self, host: SimulatedHost, after_s: float) -> None:
        role = host.name.partition("-")[0]
        asyncio.get_running_loop().call_later(after_s, self.start, role)

    def touch(self, command_ids: set[str]) -> None:
        self.touched |= command_ids

    def night(self, length_s: float) -> None:
        self._kill_servers(length_s)

    def lose_unread_tail(self, after_s: float) -> None:
        self._kill_servers(after_s + 0.5)
        self._tasks.append(asyncio.create_task(self._lose_unread(after_s)))

    def steal_partitions(self, count: int) -> None:
        self._tasks.append(asyncio.create_task(self._steal(count)))

    @property
    def under_way(self) -> set[str]:
        standing = self.broker.command_queue.standing
        iterations = {key for key, body in standing.items() if codec.decode_command(body).path}
        last = {report.command_id: codec.decode_fact(report.events[-1]) for report in self._reports()}
        return {
            key
            for key in standing
            if not isinstance(last.get(key), ENDS_OF_STEPS + (ENDS_OF_ITERATIONS if key in iterations else ()))
        }

    async def submit(self, job: Job, delay_s: float) -> None:
        """Submits a job, retrying until there is an answer."""
        await self.clock.sleep(delay_s)
        submission = Submission.new(job.source, f"simulation/{job.name}", {}, self.clock)
        while True:
            try:
                await self._submit(submission, job)
                break
            except NoetlError:
                await self.clock.sleep(0.5)
        if job.asks:
            for number, fact in enumerate(asked_of(submission.execution_id)):
                await self.clock.sleep(delay_s * number)
                await self._ask(submission.execution_id, fact)
        if job.retried is not None:
            await self._retry(submission, job)

    async def clear_up(self) -> None:
        """Ends all faults: thaws frozen hosts, and ensures at least one of each role."""
        self.faults.clear_up()
        self.broker.start()
        for host in self._hosts:
            self.touch(host.fetched if host.is_frozen else set())
            host.thaw()

    async def close(self) -> None:
        """Ends all tasks of this simulation."""
        for _ in range(ROUNDS_OF_CANCELLING):
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if not others:
                return
            for task in others:
                task.cancel()
            await asyncio.wait(others, timeout=0.001)

    async def _submit(self, submission: Submission, job: Job) -> None:
        client = Client(self.broker.event_log, self.broker.blobs, self.broker.bus)
        follower = await client.follow(submission.execution_id).open()
        try:
            await client.submit(submission, follower)
            self.accepted[submission.execution_id] = (submission, job)
        except RequestRefused:
            self.refused[submission.execution_id] = (submission, job)
        finally:
            await follower.close()

    async def _retry(self, submission: Submission, job: Job) -> None:
        """Retries the execution once it has ended."""
        while (row := await self.store.execution(submission.execution_id)) is None or row.finished_ms is None:
            await self.clock.sleep(0.5)
        again = Submission.new(job.source, submission.path, {}, self.clock)
        fact = ExecutionRequested(
            again.request_id, row.digest, ctx={"mended": True}, rerun=Rerun(submission.execution_id)
        )
        self.accepted[again.execution_id] = (again, Job(f"{job.name} again", job.source, "completed", job.retried))
        client = Client(self.broker.event_log, self.broker.blobs, self.broker.bus)
        while True:
            follower = client.follow(again.execution_id)
            try:
                await follower.open()
                await client.begin(Request(again.execution_id, again.request_id, fact), follower)
                return
            except Unreachable:
                await self.clock.sleep(0.5)
            finally:
                await follower.close()

    async def _ask(self, execution_id: str, fact: InterventionFact) -> None:
        broker = self.broker
        while True:
            try:
                await ask_of(broker.event_log, broker.bus, self.clock, execution_id, fact)
                return
            except RequestRefused as refused:
                if "has ended" not in refused.message:  # some of its requests may come too late
                    self.ended.append(f"a client was rejected: {refused}")
                return
            except NoetlError:
                await self.clock.sleep(0.5)

    async def _serve(self, host: SimulatedHost) -> None:
        ports = ServerPorts(
            log=host.log,
            queue=host.queue,
            store=host.store,
            blobs=host.blobs,
            bus=host.bus,
            clock=self.clock,
            catalog=self.catalog,
        )
        always = "reconcile always" in self.faults.kinds
        server = Server(host.name, ports, KINDS, ServerTimes(reconcile_s=0.0 if always else 10.0), checker=check_once)
        self.servers[host.name] = server
        await self._until_it_ends(host, server.run())

    async def _work(self, host: SimulatedHost) -> None:
        worker = Worker(
            name=host.name,
            pool="default",
            slots=SLOTS,
            event_log=host.log,
            queue=host.queue,
            bus=host.bus,
            blobs=host.blobs,
            clock=self.clock,
            tools={"work": WorkTool(self.clock, self.effects, host.awake)},
            plans=PlanClient(host.bus, self.clock, KINDS, checker=check_once),
            credential=_no_credential,
        )
        self._tasks.append(asyncio.create_task(self._renew(host)))
        await self._until_it_ends(host, worker.run())

    async def _until_it_ends(self, host: SimulatedHost, run: Coroutine[Any, Any, None]) -> None:
        try:
            await run
        except Unreachable as error:
            if host.name in self.begun:
                self.ended.append(f"{host.name}: {error!r}")
            else:  # it never started work; a process manager starts another
                host.kill()
                self.replace(host, 1.0)
        except Exception as error:
            self.ended.append(f"{host.name}: {error!r}")
        else:
            self.ended.append(f"{host.name} ended")

    async def _renew(self, host: SimulatedHost) -> None:
        while host.alive:
            await self.clock.sleep(RENEWAL_S)
            host.renew_leases()

    def _kill_servers(self, others_after_s: float) -> None:
        for host in self.hosts("server"):
            host.kill()
            self.replace(host, others_after_s)

    def _reports(self, after: int = 0) -> Iterator[Report]:
        for stored in self.broker.event_log.stored[after:]:
            body = codec.decode_reported(stored.message.body) if stored.is_reported else None
            if isinstance(body, Report):
                yield body

    async def _steal(self, count: int) -> None:
        self.store.end_leases(range(count))
        await self.store.take_over("stranger", STOLEN_S, count)

    async def _lose_unread(self, after_s: float) -> None:
        await self.clock.sleep(after_s)
        self._kill_servers(0.5)  # those that replaced others meanwhile
        folded = max(view.last_seq for view in await self.store.read_partitions())
        log = self.broker.event_log
        self.touch({report.command_id for report in self._reports(folded)})
        self.broker.stop()
        log.lose_tail(log.end - folded)
        self.broker.start()


def asked_of(execution_id: str) -> list[InterventionFact]:
    """The requests of a client: both are needed, each exactly once; a pause and its end change nothing."""
    return [
        PauseRequested(derive(execution_id, "pause")),
        SignalReceived(derive(execution_id, "signal"), signal=SIGNAL, payload=SIGNAL),
        ResumeRequested(derive(execution_id, "resume")),
        CtxPatched(derive(execution_id, "patch"), patch={"approved": True}),
    ]


async def _no_credential(name: str) -> str | dict[str, Any]:
    raise AssertionError(f"no task of a simulation has a credential {name}")
