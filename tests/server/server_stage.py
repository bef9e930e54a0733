"""Servers, workers and clients on a broker and a store in memory, each in a host that can be frozen or killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from measured import samples_of
from noetl_stream.adapters.evaluation.pool import MemoryEvaluator
from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.engine.replay import replay
from noetl_stream.engine.state import Execution
from noetl_stream.errors import NoetlError, Unreachable
from noetl_stream.model.events import (
    ExecutionRequested,
    Fact,
    InterventionFact,
    StepDone,
    StepScheduled,
    StepStarted,
    TaskProcessed,
)
from noetl_stream.model.ids import PARTITIONS, RunId, digest_of, report_id
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AGGREGATES_FORMAT, JournalRecord, Report, Request, StepCommand, Stop
from noetl_stream.model.outcome import Outcome
from noetl_stream.model.placement import PoolLabels
from noetl_stream.operations.executions.submit import Client, RequestRefused, Requests, ask_of
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.ports.evaluator import Evaluator
from noetl_stream.ports.operations.verbs import plain
from noetl_stream.ports.stores.store import ExecutionRow, PartitionAdvance, PartitionLease, StoredEvent, Tick
from noetl_stream.ports.streams.command_queue import Delivery
from noetl_stream.ports.traces import Tracing
from noetl_stream.protocol import subjects
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.server.assembly import ServerTimes, StateBounds
from noetl_stream.server.formats import Formats
from noetl_stream.server.server import Server
from noetl_stream.server.status_report import ServerStatus
from noetl_stream.server.upkeep.upkeep import Upkeep
from noetl_stream.settings.grants import GrantsSource
from noetl_stream.storage.object_places import PlacedBlobs
from noetl_stream.storage.sealed_blobs import SealedBlobs
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.worker.waiting import Asker
from noetl_testkit.conformance.catalog import registered
from noetl_testkit.following import Submission, submit
from noetl_testkit.keys import OBJECT_KEYS, SIGNER
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.rebuilding import rebuilt, rebuilt_differences
from noetl_testkit.simulation.clients import asked_of
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.roles import run_worker, server_on
from noetl_testkit.simulation.work import CALLED, Effect, Job, WorkTool, playbook, work

KINDS = {"work": WorkTool.spec, "noop": NoopTool.spec}
ONE_STEP = playbook("one", [{"step": "only", "tool": work("done", 0.2)}])
PATIENCE_S = 60.0
ASKED_S = 600.0


class Stage:
    """Everything around the servers of a test."""

    def __init__(self) -> None:
        self.clock = simulated_clock()
        self.broker = StagedBroker(self.clock)
        self.blobs = SealedBlobs(self.broker.blobs, OBJECT_KEYS)
        self.requests = Requests(self.broker.event_log, SIGNER)
        self.store = Interrupted(StagedStore(self.clock))
        self.tables = self.store.real.tables
        self.catalog = MemoryCatalog(self.store.real)
        self.effects: Counter[Effect] = Counter()
        self.running: list[asyncio.Task[None]] = []
        self.server_hosts: list[SimulatedHost] = []
        self.stops: list[Stop] = []
        self._names = 0
        self.kinds: Kinds = KINDS
        self.secrets: SecretsResponder | None = None
        self.evaluator: Evaluator = MemoryEvaluator()
        self.grants: GrantsSource | None = None
        self.upkeep: Upkeep | None = None
        self.states = StateBounds()
        self.tracing: Tracing | None = None
        self.open_streams: tuple[str, ...] = ()
        self.max_stored_bytes: int | None = None
        self.pool_labels: PoolLabels | None = None
        self.places: PlacedBlobs | None = None

    def host(self, role: str, injector: FaultInjector | None = None) -> SimulatedHost:
        self._names += 1
        return SimulatedHost(f"{role}-{self._names}", self.broker, self.store, injector or FaultInjector())

    def start_server(
        self, host: SimulatedHost | None = None, *, reads: int = AGGREGATES_FORMAT, **times: float
    ) -> tuple[Server, SimulatedHost, asyncio.Task[None]]:
        """Starts a server; its task ends when the server does."""
        host = host or self.host("server")
        server = self.new_server(host, reads=reads, **times)
        task = asyncio.create_task(server.run())
        self.running.append(task)
        return server, host, task

    def new_server(
        self, host: SimulatedHost | None = None, *, reads: int = AGGREGATES_FORMAT, **times: float
    ) -> Server:
        """A server that does not run. It reads formats up to ``reads``."""
        return server_on(
            host or self.host("server"),
            self.catalog,
            self.kinds,
            ServerTimes(**times),
            evaluator=self.evaluator,
            secrets=self.secrets,
            grants=self.grants,
            upkeep=self.upkeep,
            states=self.states,
            formats=Formats(reads),
            tracing=self.tracing,
            open_streams=self.open_streams,
            max_stored_bytes=self.max_stored_bytes,
            pool_labels=self.pool_labels,
            places=self.places,
        )

    async def server(self, *, reads: int = AGGREGATES_FORMAT, **times: float) -> Server:
        """A server that owns its share of the partitions."""
        server, _, task = self.start_server(reads=reads, **times)
        await self.until(lambda: len(server.ownership) > 0 or task.done())
        return server

    async def server_beside(self, first: Server) -> Server:
        """A second server, once both own their share of the partitions."""
        second = await self.server()
        await self.until(lambda: len(first.ownership) == len(second.ownership) == 16)
        return second

    def expire(self, *partitions: int) -> None:
        """Ends these leases as if they had not been renewed."""
        self.store.real.end_leases(partitions)

    async def steal_ticks(self, leases: list[PartitionLease], count: int) -> None:
        """Commits and publishes ``count`` empty ticks in the name of another owner."""
        for turn in range(count):
            advances = [
                PartitionAdvance(
                    id=one.id,
                    epoch=one.epoch,
                    tick=one.tick + turn,
                    last_seq=one.last_seq,
                    last_ms=one.last_ms,
                    published_tick=one.tick + turn,
                )
                for one in leases
            ]
            await self.store.real.commit(Tick(owner="thief", partitions=advances))

    def start_worker(
        self, slots: int = 8, injector: FaultInjector | None = None, pool: str = "default"
    ) -> SimulatedHost:
        host = self.host("worker", injector)
        tools = {"work": WorkTool(self.clock, self.effects, host.awake), "noop": NoopTool()}
        self.running.append(asyncio.create_task(run_worker(host, tools, slots, self.tracing, pool)))
        return host

    async def submit(self, source: str, workload: dict[str, Any] | None = None) -> str:
        """Submits as a client does; the execution's id once it is accepted."""
        submission = Submission.new(source, "tests/server", workload or {}, self.clock)
        client = Client(self.requests, self.blobs, self.broker.bus)
        follower = await client.follow(submission.execution_id).open()
        try:
            await submit(client, submission, follower)
        finally:
            await follower.close()
        return submission.execution_id

    async def request(
        self,
        execution_id: str,
        request_id: str,
        source: str,
        *,
        known: bool = True,
        path: str = "tests/server",
        **more: Any,
    ) -> bytes:
        """Publishes a request. Returns its bytes."""
        digest = digest_of(source)
        if known:
            await self.blobs.put(subjects.playbook_key(digest), source.encode())
        request = Request(execution_id, request_id, ExecutionRequested(request_id, digest, path, **more))
        await self.requests.publish(request)
        return SIGNER.encode(request)

    async def register(self, source: str) -> str:
        """Registers a playbook. Returns its path."""
        path = compile_playbook(source, self.kinds).path
        return (await registered(self.catalog, source, path)).path

    async def ask(self, execution_id: str, fact: InterventionFact) -> dict[str, Any] | str:
        """Sends a request to an execution until it is answered. Returns the answer, or why it was refused."""
        broker = self.broker
        until_s = self.clock.monotonic_s() + ASKED_S
        while True:
            assert self.clock.monotonic_s() < until_s, "no server answers"
            try:
                answer = await ask_of(self.requests, broker.bus, self.clock, execution_id, fact)
                return dict(plain(answer))
            except RequestRefused as refused:
                return refused.message
            except Unreachable:
                await self.clock.sleep(0.5)

    async def begin(self, execution_id: str, job: Job) -> None:
        """Requests a job, and sends the requests that it needs."""
        await self.register(CALLED)
        await self.request(execution_id, "request-1", job.source)
        if job.asks:
            self.running.append(asyncio.create_task(self._ask_all(execution_id)))

    async def _ask_all(self, execution_id: str) -> None:
        for fact in asked_of(execution_id):
            await self.ask(execution_id, fact)

    async def until(self, condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> None:
        """Lets time pass until ``condition`` holds."""
        until_s = self.clock.monotonic_s() + patience_s
        while not condition():
            assert self.clock.monotonic_s() < until_s, "what the test waits for did not happen"
            await self.clock.sleep(0.01)

    async def pass_time(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    async def ended(self, execution_id: str, patience_s: float = PATIENCE_S) -> ExecutionRow:
        """Its row, once it has ended."""
        rows = self.tables.executions
        await self.until(lambda: execution_id in rows and rows[execution_id].finished_ms is not None, patience_s)
        return rows[execution_id]

    async def store_report_that_no_server_reads(self, execution_id: str) -> None:
        """Runs an execution of one step until its end is reported, after the death of the only server."""
        server, host, _ = self.start_server()
        await self.until(lambda: len(server.ownership) == PARTITIONS)
        self.start_worker()
        await self.request(execution_id, "request-1", ONE_STEP)
        await self.until(lambda: self.tables.executions)
        host.kill()
        stored = self.broker.event_log.stored
        await self.until(lambda: any(fact in stored[-1].message.body for fact in (b"step.done", b"step.ran")))

    async def journal(self, execution_id: str) -> list[StoredEvent]:
        return await self.store.real.journal(execution_id, -1)

    async def facts(self, execution_id: str) -> list[Fact]:
        return [codec.decode_fact(row.data) for row in await self.journal(execution_id)]

    async def issues(self, execution_id: str) -> list[int]:
        """The issue numbers of all ``step.scheduled``, in order."""
        return [fact.issue for fact in await self.facts(execution_id) if isinstance(fact, StepScheduled)]

    async def state(self, execution_id: str) -> Execution | None:
        """The state that its journal yields."""
        return replay(execution_id, await self.journal(execution_id))

    async def owners(self) -> Counter[str | None]:
        """How many partitions each owner has."""
        return Counter(view.owner if view.live else None for view in await self.store.real.read_partitions())

    async def collect_stops(self) -> list[Stop]:
        """Collects stop messages from now on."""

        async def hear(_subject: str, body: bytes, _reply: str) -> None:
            self.stops.append(codec.decode_stop(body))

        await self.broker.bus.listen(subjects.STOP, hear)
        return self.stops

    async def rebuilt(self) -> StagedStore:
        """A store with what EVENTS holds."""
        return await rebuilt(self.broker, self.catalog, self.kinds)

    async def rebuilt_differences(self) -> list[str]:
        """What a store that is rebuilt from EVENTS has other than this one."""
        return await rebuilt_differences(self.broker, self.store.real, self.catalog, self.kinds)

    def records(self) -> list[JournalRecord]:
        """The decided messages of EVENTS."""
        stored = self.broker.event_log.stored
        return [codec.decode_record(one.message.body) for one in stored if one.message.subject.endswith(".decided")]

    def asker(self, command: StepCommand) -> Asker:
        """What a worker asks that has this command."""
        return Asker(self.broker.bus, self.clock, command, "hand")

    async def manual_worker(self, pool: str = "default") -> ManualWorker:
        """A worker that the test drives."""
        return ManualWorker(self, await self.broker.command_queue.open_source(pool))


class ManualWorker:
    """A worker that the test drives: takes commands, reports what the test says."""

    def __init__(self, stage: Stage, source: Any) -> None:
        self._stage = stage
        self._source = source
        self._nonces = 0

    async def take(self) -> tuple[StepCommand, Delivery]:
        self._source.request(1)
        delivery = await self._source.next()
        return codec.decode_command(delivery.body), delivery

    def run_of(self, command: StepCommand, delivery: Delivery) -> RunId:
        self._nonces += 1
        return RunId(command.command_id, command.issue, delivery.num_delivered, f"hand{self._nonces}")

    async def report(
        self, command: StepCommand, run: RunId, number: int, first: int, *facts: Fact, message_id: str = ""
    ) -> None:
        report = Report(
            execution_id=command.execution_id,
            step_run_id=command.step_run_id,
            command_id=command.command_id,
            issue=run.issue,
            num_delivered=run.num_delivered,
            nonce=run.nonce,
            number=number,
            first=first,
            events=[msgspec.Raw(codec.encode(fact)) for fact in facts],
            capability=command.capability,
        )
        identity = message_id or report_id(run, number)
        body = codec.encode(report)
        await self._stage.broker.event_log.publish_report(command.execution_id, command.pool, identity, body)

    async def finish(self, command: StepCommand, run: RunId, number: int = 0, first: int = 0) -> None:
        """Reports a successful step, from its start to its end."""
        done = TaskProcessed("only", 1, Outcome("ok"), "continue")
        await self.report(command, run, number, first, StepStarted("hand"), done, StepDone(command.step_run_id))


class Interrupted:
    """A store that can be unreachable or silent, whose commits can fail. ``calls``: how often each method was
    called. ``stuck``: executions that ever waited for nothing.
    """

    def __init__(self, real: StagedStore) -> None:
        self.real = real
        self.away = False
        self.silent = False
        self.calls: Counter[str] = Counter()
        self.stuck: set[str] = set()
        self.before_commit: Callable[[Any], NoetlError | None] = lambda tick: None
        self.after_commit: Callable[[Any], NoetlError | None] = lambda tick: None

    def __getattr__(self, name: str) -> Any:
        method: Callable[..., Awaitable[Any]] = getattr(self.real, name)
        if not callable(method):
            return method

        async def call(*arguments: Any) -> Any:
            self.calls[name] += 1
            await asyncio.sleep(0)
            if self.silent:
                await asyncio.Event().wait()
            if self.away:
                raise Unreachable("the store is away")
            if name != "commit":
                return await method(*arguments)
            if (error := self.before_commit(arguments[0])) is not None:
                raise error
            await method(*arguments)
            self.stuck.update(await self.real.stuck(10))
            if (error := self.after_commit(arguments[0])) is not None:
                raise error
            return None

        return call


def once(error: NoetlError, wanted: Callable[[Any], bool] = lambda tick: bool(tick.entries)) -> Callable[[Any], Any]:
    """Fails the first tick for which ``wanted`` holds, and no other."""
    left = [error]

    def give(tick: Any) -> NoetlError | None:
        return left.pop() if left and wanted(tick) else None

    return give


def status_of(server: Server) -> ServerStatus:
    """Of one that is connected to NATS."""
    return ServerStatus(server, lambda: True)


async def measured(server: Server) -> dict[str, float]:
    """Its metrics, by name and labels."""
    return samples_of(await status_of(server).readings())
