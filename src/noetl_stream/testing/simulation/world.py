"""Servers, workers and clients of one simulation, on a broker and a store in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.catalog import MemoryCatalog
from noetl_stream.adapters.memory.cursors import MemoryCursors
from noetl_stream.adapters.memory.retention import MemoryRetention
from noetl_stream.adapters.memory.store import MemoryStore
from noetl_stream.client.executions.submit import Client, RequestRefused, Requests, Submission, ask_of
from noetl_stream.errors import NoetlError, Unreachable
from noetl_stream.model import codec, events
from noetl_stream.model.composite import expanded
from noetl_stream.model.events import Fact
from noetl_stream.model.ids import derive
from noetl_stream.model.messages import Report, Request
from noetl_stream.ports.sealed_blobs import SealedBlobs
from noetl_stream.server.parts import ServerTimes
from noetl_stream.server.server import Server
from noetl_stream.server.trimming import Trimmer
from noetl_stream.server.upkeep import Upkeep
from noetl_stream.settings.retention import RetentionSettings
from noetl_stream.testing.conformance.catalog import registered
from noetl_stream.testing.keys import OBJECT_KEYS, SIGNER
from noetl_stream.testing.simulation.host import FaultInjector, SimulatedHost
from noetl_stream.testing.simulation.poison import Poison, PoisonedStore
from noetl_stream.testing.simulation.roles import run_worker, server_on
from noetl_stream.testing.simulation.time import simulated_clock
from noetl_stream.testing.simulation.work import CALLED, CALLED_PATH, SIGNAL, Effect, Job, WorkTool

ENDS_OF_STEPS = (events.StepDone, events.StepFailed, events.LoopDone, events.LoopPagedOut, events.StepSuspended)
ENDS_OF_ITERATIONS = (events.LoopIterationDone, events.LoopIterationFailed)
KINDS = {"work": WorkTool.spec}
SLOTS = 3
STOLEN_S = 1.0
RETRY_S = 0.5
EVENTS_BYTES = 20_000
KEPT_MS = 2_000
TRIM_S = 3.0


class SimulatedWorld:
    """Hosts, and what they share. Faults strike it through its methods.

    Attributes:
        accepted: The job of each execution whose request was accepted or rejected by its job's playbook.
        begun: Servers that have taken partitions.
        ended: Roles that ended unexpectedly, with their error.
        touched: Commands that may run twice.
        poison: What is wrong with one execution, if any.
    """

    def __init__(self, injector: FaultInjector, times: ServerTimes, poison: Poison | None = None) -> None:
        self.clock = simulated_clock()
        self.broker = MemoryBroker(self.clock)
        self.store = MemoryStore(self.clock)
        self.catalog = MemoryCatalog(self.store)
        self.effects: Counter[Effect] = Counter()
        self.accepted: dict[str, tuple[Submission, Job]] = {}
        self.refused: dict[str, tuple[Submission, Job]] = {}
        self.servers: dict[str, Server] = {}
        self.begun: set[str] = set()
        self.ended: list[str] = []
        self.touched: set[str] = set()
        self.poison = poison
        self._servers_store: Any = self.store if poison is None else PoisonedStore(self.store, poison, self._kill)
        self._injector = injector
        self._times = times
        self._requests = Requests(self.broker.event_log, SIGNER)
        self._client = Client(self._requests, SealedBlobs(self.broker.blobs, OBJECT_KEYS), self.broker.bus)
        self._hosts: list[SimulatedHost] = []
        self._tasks: list[asyncio.Task[Any]] = []

    async def register(self) -> None:
        """Registers the playbook that others call."""
        await registered(self.catalog, CALLED, CALLED_PATH)

    def hosts(self, role: str) -> list[SimulatedHost]:
        """The live hosts, in the order of their start."""
        return [host for host in self._hosts if host.alive and host.name.startswith(role)]

    def start(self, role: str) -> None:
        """Starts a server or a worker."""
        host = SimulatedHost(f"{role}-{len(self._hosts) + 1}", self.broker, self._servers_store, self._injector)
        self._hosts.append(host)
        if role == "server":
            upkeep = self._upkeep(host)
            server = self.servers[host.name] = server_on(host, self.catalog, KINDS, self._times, upkeep=upkeep)
            self._begin(self._until_it_ends(host, server.run()))
        else:
            tools = {"work": WorkTool(self.clock, self.effects, host.awake)}
            self._begin(self._until_it_ends(host, run_worker(host, tools, SLOTS)))

    def _upkeep(self, host: SimulatedHost) -> Upkeep:
        """Trims EVENTS whenever it can: a simulation is short and its stream is small."""
        cursors, retention = MemoryCursors(self.store), MemoryRetention(self.store)
        settings = RetentionSettings(events_max_bytes=EVENTS_BYTES)
        trimmer = Trimmer(host.log, cursors, retention, self.clock, settings, kept_ms=KEPT_MS)
        return Upkeep(host.clock, trimmer=trimmer, trim_events_s=TRIM_S)

    def replace(self, host: SimulatedHost, after_s: float) -> None:
        """Starts another host of the same role after ``after_s`` seconds."""
        role = host.name.partition("-")[0]
        asyncio.get_running_loop().call_later(after_s, self.start, role)

    def replace_servers(self, after_s: float) -> None:
        """Kills all servers, and starts others after ``after_s`` seconds."""
        for host in self.hosts("server"):
            host.kill()
            self.replace(host, after_s)

    def lose_unread_tail(self, after_s: float) -> None:
        """Kills all servers; ``after_s`` seconds later loses the messages none has folded, and starts others."""
        self.replace_servers(after_s + 0.5)
        self._begin(self._lose_unread(after_s))

    def steal_partitions(self, count: int) -> None:
        """Lets another owner take over some partitions for a second."""
        self.store.end_leases(range(count))
        self._begin(self.store.take_over("stranger", STOLEN_S, count))

    @property
    def under_way(self) -> set[str]:
        """The commands in the queue whose end is not in the log."""
        queued = self.broker.command_queue.queued
        iterations = {key for key, body in queued.items() if codec.decode_command(body).path}
        last = {report.command_id: _last_fact(report) for report in self._reports()}
        return {
            key
            for key in queued
            if not isinstance(last.get(key), ENDS_OF_STEPS + (ENDS_OF_ITERATIONS if key in iterations else ()))
        }

    async def submit(self, job: Job, delay_s: float) -> None:
        """Submits a job, retrying until there is an answer."""
        await self.clock.sleep(delay_s)
        submission = Submission.new(job.source, f"simulation/{job.name}", {}, self.clock)
        await self._persist(self._submit, submission, job)
        if job.asks:
            for number, fact in enumerate(asked_of(submission.execution_id)):
                await self.clock.sleep(delay_s * number)
                await self._persist(self._ask, submission.execution_id, fact)
        if job.retried is not None:
            await self._retry(submission, job)

    async def submit_poison(self, poison: Poison) -> None:
        """Submits the execution that cannot be folded; its request may be refused."""
        await self.clock.sleep(poison.delay_s)
        submission = Submission.new(poison.job.source, f"simulation/{poison.job.name}", {}, self.clock)
        poison.execution_id = submission.execution_id
        await self._persist(self._submit, submission, poison.job)

    async def release(self, poison: Poison) -> None:
        """Mends what is wrong with it; resumes it and sends what was kept again, as an operator does."""
        poison.event = ""
        if poison.execution_id in self.refused:  # it has not begun
            return
        await self._persist(self._ask, poison.execution_id, events.ResumeRequested(derive(poison.execution_id, "on")))
        letters = self.store.dead_letters
        for letter in reversed(await letters.page(1_000, None)):
            whole = await letters.get(letter.row.id)
            if whole is not None and whole.row.source == "events":
                again = self.broker.event_log.publish_again
                await again(whole.row.execution_id, f"requeue-{whole.row.id}", whole.row.body)
            await letters.requeue(letter.row.id, "operator", self.clock.now_ms())

    def thaw(self, host: SimulatedHost) -> None:
        """Thaws a host, which now runs what it received while frozen."""
        self.touched |= host.fetched
        host.thaw()

    def clear_up(self) -> None:
        """Thaws frozen hosts and starts a stopped broker."""
        self.broker.start()
        for host in self._hosts:
            if host.is_frozen:
                self.thaw(host)

    async def _persist(self, attempt: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        """Repeats the attempt until it has an answer."""
        while True:
            try:
                return await attempt(*arguments)
            except NoetlError:
                await self.clock.sleep(RETRY_S)

    async def _submit(self, submission: Submission, job: Job) -> None:
        follower = await self._client.follow(submission.execution_id).open()
        try:
            await self._client.submit(submission, follower)
            self.accepted[submission.execution_id] = (submission, job)
        except RequestRefused:
            self.refused[submission.execution_id] = (submission, job)
        finally:
            await follower.close()

    async def _retry(self, submission: Submission, job: Job) -> None:
        """Retries the execution once it has ended."""
        while (row := await self.store.execution(submission.execution_id)) is None or row.finished_ms is None:
            await self.clock.sleep(RETRY_S)
        again = Submission.new(job.source, submission.path, {}, self.clock)
        fact = events.ExecutionRequested(
            again.request_id, row.digest, ctx={"mended": True}, rerun=events.Rerun(submission.execution_id)
        )
        self.accepted[again.execution_id] = (again, Job(f"{job.name} again", job.source, "completed", job.retried))
        await self._persist(self._request, Request(again.execution_id, again.request_id, fact))

    async def _request(self, request: Request) -> None:
        follower = await self._client.follow(request.execution_id).open()
        try:
            await self._client.begin(request, follower)
        finally:
            await follower.close()

    async def _ask(self, execution_id: str, fact: events.InterventionFact) -> None:
        try:
            await ask_of(self._requests, self.broker.bus, self.clock, execution_id, fact)
        except RequestRefused as refused:
            if "has ended" not in refused.message:  # some of its requests may come too late
                self.ended.append(f"a client was rejected: {refused}")

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

    def _kill(self, name: str) -> None:
        """Kills a host, and starts another a second later."""
        (host,) = [host for host in self._hosts if host.name == name]
        host.kill()
        self.replace(host, 1.0)

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        self._tasks.append(asyncio.create_task(work))

    def _reports(self, after: int = 0) -> Iterator[Report]:
        for stored in self.broker.event_log.stored[after:]:
            body = codec.decode_reported(stored.message.body) if stored.is_input else None
            if isinstance(body, Report):
                yield body

    async def _lose_unread(self, after_s: float) -> None:
        await self.clock.sleep(after_s)
        self.replace_servers(0.5)  # those that replaced others meanwhile
        folded = max(view.last_seq for view in await self.store.read_partitions())
        log = self.broker.event_log
        self.touched |= {report.command_id for report in self._reports(folded)}
        self.broker.stop()
        log.lose_tail(log.end - folded)
        self.broker.start()


def asked_of(execution_id: str) -> list[events.InterventionFact]:
    """The requests of a client: both are needed, each exactly once; a pause and its end change nothing."""
    return [
        events.PauseRequested(derive(execution_id, "pause")),
        events.SignalReceived(derive(execution_id, "signal"), signal=SIGNAL, payload=SIGNAL),
        events.ResumeRequested(derive(execution_id, "resume")),
        events.CtxPatched(derive(execution_id, "patch"), patch={"approved": True}),
    ]


def _last_fact(report: Report) -> Fact:
    return expanded(report.execution_id, codec.decode_fact(report.events[-1]))[-1]
