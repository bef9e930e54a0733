"""The worker role: pulls commands of one pool, runs them, reports (DESIGN §4, PROTOCOL §3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import noetl_stream
from noetl_stream.concurrency import end_tasks, first_done, let_loop_switch_soon
from noetl_stream.errors import NotReady, PayloadRefused, StoreMissing
from noetl_stream.model.json import codec
from noetl_stream.model.messages import AGGREGATES_FORMAT, ChildUse, MemoryUse, WorkerPresence
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.streams.blobs import Blobs, ObjectsByAddress
from noetl_stream.ports.streams.bus import Bus, Handler, Subscription
from noetl_stream.ports.streams.command_queue import CommandQueue, CommandSource, Delivery
from noetl_stream.ports.streams.event_log import EventLog
from noetl_stream.ports.streams.task_logs import TaskLogs
from noetl_stream.ports.traces import Tracing
from noetl_stream.protocol import subjects
from noetl_stream.settings.sources.environment import DEFAULT_WORKER_DRAIN_S
from noetl_stream.settings.tools import DEFAULT_MAX_RESULT_BYTES
from noetl_stream.tools.capacity import Bounded
from noetl_stream.tools.contract import Tool, WorkerUnfit
from noetl_stream.tools.registry import KindOff
from noetl_stream.worker import worker_limits as limits
from noetl_stream.worker.cancellation import Cancellations
from noetl_stream.worker.child_playbooks import PlanClient
from noetl_stream.worker.command.reporter import Channel
from noetl_stream.worker.command.run import CommandRun
from noetl_stream.worker.command.unreadable import UnreadableCommands
from noetl_stream.worker.dependencies import Dependencies, Nonces
from noetl_stream.worker.fitness import Fitness
from noetl_stream.worker.lease import BrokerLiveness, LeaseKeeper
from noetl_stream.worker.secrets.keychain import FindStored, Keychain
from noetl_stream.worker.task_logs.publisher import LogPublisher
from noetl_stream.worker.waiting import done_within, persist

log = logging.getLogger(__name__)
Value = TypeVar("Value")

_REFILLS_A_ROUND: Final = 4


class Worker:
    """Runs commands of one pool until :meth:`drain`. The caller closes its dependencies.

    Args:
        name: The worker's name as events show it.
        slots: The number of commands that run at once.
        credentials: The worker's own credentials, by lower-case name (``NOETL_CREDENTIAL_<NAME>``): DSNs or JSON
            objects.
        secrets: The credential store, asked first; without it only ``credentials`` are used.
        keychain_folders: The folders whose files entries of kind ``file`` may read.
        max_result_bytes: The upper bound of the knobs ``max_…_bytes`` of one task.
        grace_s: The time in seconds for running commands to finish after :meth:`drain`; the rest is returned.
        objects: Access to objects outside NATS.
        ack_wait_s: The duration of a lease of the queue, in seconds; it is renewed three times meanwhile.

    Attributes:
        opened: Set when the worker takes commands.
        channel, counts, fitness, leases, liveness: The parts that the status of the worker is read from.
        logs: The publisher of task logs; its counters are for monitoring.
        tracing: The exporter of attempts' spans, if any.
    """

    def __init__(
        self,
        *,
        name: str,
        pool: str,
        slots: int,
        event_log: EventLog,
        queue: CommandQueue,
        bus: Bus,
        blobs: Blobs,
        task_logs: TaskLogs,
        clock: Clock,
        tools: Mapping[str, Tool],
        plans: PlanClient,
        credentials: Mapping[str, str] | None = None,
        secrets: FindStored | None = None,
        keychain_folders: Sequence[Path] = (),
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
        grace_s: float = DEFAULT_WORKER_DRAIN_S,
        ack_wait_s: float = limits.ACK_WAIT_S,
        tracing: Tracing | None = None,
        objects: ObjectsByAddress | None = None,
        confinement: str = "",
        network: str = "",
    ) -> None:
        self.pool = pool
        self.slots = slots
        self._queue = queue
        self._bus = bus
        self._clock = clock
        self._grace_s = grace_s
        self.liveness = BrokerLiveness(queue, pool, clock)
        self.channel = Channel(event_log, pool, clock, self.liveness)
        self._unreadable = UnreadableCommands(self.channel)
        self.keychain = Keychain(clock, credentials or {}, secrets, tools.get("http"), folders=keychain_folders)
        self.logs = LogPublisher(task_logs, name, pool, clock)
        self._dependencies = Dependencies(
            worker=name,
            channel=self.channel,
            bus=bus,
            blobs=blobs,
            clock=clock,
            nonces=Nonces(clock),
            tools=tools,
            kinds={kind: tool.spec for kind, tool in tools.items()},
            plans=plans,
            keychain=self.keychain,
            log_publisher=self.logs,
            max_result_bytes=max_result_bytes,
            tracing=tracing,
            objects=objects,
        )
        self.counts = self._dependencies.counts
        self.tools = tools
        self.tracing = tracing
        self._confinement = confinement
        self._network = network
        self.opened = asyncio.Event()
        self._draining = asyncio.Event()
        self._runs: dict[asyncio.Task[None], CommandRun] = {}
        self._cancellations = Cancellations(self._runs.values())
        self.leases = LeaseKeeper(self._runs.values(), ack_wait_s / limits.RENEWALS_PER_LEASE)
        self._tasks: list[asyncio.Task[Any]] = []
        self._source: CommandSource | None = None
        self._puller: Puller | None = None
        self._subscriptions: list[Subscription] = []
        self._since_ms = clock.now_ms()
        self._closed = False
        self.fitness = Fitness(tools, clock)
        self._broken: WorkerUnfit | None = None

    async def run(self) -> None:
        """Runs the worker until :meth:`drain` has completed. Another error raised here is a defect in this project.

        Raises:
            NotReady: The worker could no longer work, and has drained itself.
        """
        let_loop_switch_soon()
        opening = self._background("open", self._open())
        try:
            if await first_done([opening], self._draining.wait()):
                source, puller = opening.result()
                working = (
                    self._background("pull", puller.run()),
                    self._background("watch contact", self.liveness.watch(self._lose_contact)),
                    self._background("flush", self.channel.flusher.run()),
                    self._background("logs", self.logs.run()),
                    self._background("self-tests", self.fitness.run(puller.pause, puller.resume)),
                )
                for task in await first_done(working, self._draining.wait()):
                    task.result()
                puller.stop()
                await self._finish(source, puller)
        finally:
            await self.close()
        if self._broken is not None:
            raise NotReady(str(self._broken), hint="restart the worker")

    @property
    def is_draining(self) -> bool:
        return self._draining.is_set()

    @property
    def running(self) -> int:
        """The number of commands that this worker runs."""
        return len(self._runs)

    @property
    def results_waiting(self) -> int:
        """The number of commands whose result is not stored or reported yet, since NATS does not take it."""
        return sum(bool(run.trouble.why) for run in self._runs.values())

    @property
    def unstored(self) -> str:
        """The reason why a result has been unstored for :data:`~noetl_stream.worker.worker_limits.UNSTORED_S`; else
        empty.
        """
        late = (run.trouble.why for run in self._runs.values() if run.trouble.lasts_s > limits.UNSTORED_S)
        return next(late, "")

    def memory_use(self) -> MemoryUse:
        """Returns how much memory the bounded parts of the worker use."""
        if self._source is None:
            return MemoryUse("worker", self._dependencies.worker, {})
        held, most = {"commands": self._source.held_bytes}, {"commands": self._source.max_held_bytes}
        return MemoryUse("worker", self._dependencies.worker, held, most)

    def drain(self) -> None:
        """Stops fetching commands; :meth:`run` returns when all running commands, or the grace period, have ended."""
        self._draining.set()

    async def close(self) -> None:
        """Stops the worker at once. Running commands are neither acknowledged nor returned: their leases expire."""
        if self._closed:
            return
        self._closed = True
        if self._puller is not None:
            self._puller.end()
        for run in self._runs.values():
            run.interrupt("closed")
        await end_tasks(self._tasks)
        await asyncio.gather(*self._runs, return_exceptions=True)
        await self._unreadable.close()
        await self.keychain.close()
        await asyncio.to_thread(self.leases.close)
        if self._source is not None:
            await self._source.close()
        for subscription in self._subscriptions:
            await subscription.close()
        if self.tracing is not None:
            await self.tracing.close()

    def _background(self, name: str, work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
        task = asyncio.create_task(work, name=f"worker: {name}")
        self._tasks.append(task)
        return task

    async def _open(self) -> tuple[CommandSource, Puller]:
        clock, pool = self._clock, self.pool
        await self._listen(subjects.STOP, self._cancellations.on_stop)
        self._source = await persist(clock, f"open pool {pool}", self._open_source)
        self.leases.start()
        self._puller = Puller(self._source, self.slots, self.channel, self._start)
        self.channel.on_recovered = self._puller.top_up
        await self._listen(f"{subjects.ASK_WORKERS}.{pool}", self._answer_presence)
        self.opened.set()
        return self._source, self._puller

    async def _open_source(self) -> CommandSource:
        """Opens the pool's queue. A stream that is missing when a worker starts is for the operator to create."""
        try:
            return await self._queue.open_source(self.pool)
        except StoreMissing as error:
            raise NotReady(error.message, hint=error.hint) from error

    async def _listen(self, subject: str, handler: Handler) -> None:
        listening = persist(self._clock, f"listen on {subject}", lambda: self._bus.listen(subject, handler))
        self._subscriptions.append(await listening)

    async def _answer_presence(self, _subject: str, _body: bytes, reply: str) -> None:
        """Answers for this worker alone, so that a drained or dead one disappears from the list by its silence."""
        if not reply:
            return
        presence = WorkerPresence(
            name=self._dependencies.worker,
            pool=self.pool,
            slots=self.slots,
            busy=len(self._runs),
            since_ms=self._since_ms,
            kinds=sorted(kind for kind, tool in self.tools.items() if not isinstance(tool, KindOff)),
            version=noetl_stream.__version__,
            draining=self._draining.is_set(),
            running=[run.summary for run in islice(self._runs.values(), limits.MAX_RUNNING_SHOWN)],
            held_bytes=self._source.held_bytes if self._source is not None else 0,
            at_ms=self._clock.now_ms(),
            children={
                kind: ChildUse(tool.capacity.busy, tool.capacity.most, tool.capacity.waiting)
                for kind, tool in self._dependencies.tools.items()
                if isinstance(tool, Bounded)
            },
            confinement=self._confinement,
            network=self._network,
            unfit=self.fitness.why_not,
        )
        self._bus.send(reply, codec.encode(presence))

    async def _finish(self, source: CommandSource, puller: Puller) -> None:
        """Waits until no delivery can arrive and running commands have ended; then returns the rest to the queue.

        Leases are renewed here too, since the thread for it may have ended.
        """
        finishing = self._background("finish", source.finish())
        self._background("renew leases", self._renew_leases())
        in_time = await self._all_ended(self._grace_s, finishing)
        puller.end()
        if not in_time and self._runs:
            log.warning("%d commands still running after %.0f s are returned", len(self._runs), self._grace_s)
            for run in tuple(self._runs.values()):
                run.interrupt("relinquished")
            await self._all_ended(limits.LAST_REPORTS_S)
        await finishing
        await done_within(self._clock, limits.LAST_REPORTS_S, self._background("drain logs", self.logs.drain()))

    async def _all_ended(self, seconds: float, *others: asyncio.Task[None]) -> bool:
        """Returns whether these tasks and then all runs have ended within this time."""

        async def end() -> None:
            while waiting := [task for task in (*others, *self._runs) if not task.done()]:
                await asyncio.wait(waiting)

        everything = asyncio.ensure_future(end())
        try:
            return await done_within(self._clock, seconds, everything)
        finally:
            everything.cancel()

    async def _renew_leases(self) -> None:
        while True:
            await self._clock.sleep(self.leases.interval_s)
            self.leases.renew()

    def _lose_contact(self) -> None:
        for run in tuple(self._runs.values()):
            run.lose_contact()

    def _start(self, delivery: Delivery, connected_ms: int) -> bool:
        try:
            command = codec.decode_command(delivery.body)
        except PayloadRefused as error:
            self._unreadable.refuse(delivery, str(error))
            return False
        if command.format > AGGREGATES_FORMAT:
            reason = f"it has format {command.format}, this worker reads up to {AGGREGATES_FORMAT}"
            self._unreadable.refuse(delivery, reason)
            return False
        if not command.capability:
            # Its reports would be rejected. Servers find the command missing and issue it again (PROTOCOL §2
            # *Reconcile*).
            log.warning("command %s is dropped: it was issued before commands had capabilities", command.command_id)
            delivery.ack()
            return False
        run = CommandRun(self._dependencies, self._cancellations.stop_of, command, delivery)
        task = asyncio.get_running_loop().create_task(self._execute(run, connected_ms))
        run.task = task
        self._runs[task] = run
        task.add_done_callback(self._remove_run)
        return True

    async def _execute(self, run: CommandRun, connected_ms: int) -> None:
        try:
            disposal = await run.execute(connected_ms)
        except Exception:
            log.exception("command %s is returned to the queue: this worker has a defect", run.run.command_id)
            disposal = "return_later"
        if run.unfit is not None:
            kind, unfit = run.unfit
            if unfit.for_good:
                self._broken = unfit
                self.drain()
            else:  # before the command is returned, so that another worker gets it
                await self.fitness.note(kind, str(unfit))
        if disposal == "done":
            self.counts.commands["done"] += 1
            run.delivery.ack()
        else:
            self.counts.commands["returned"] += 1
            run.delivery.nak(limits.RETURN_DELAY_S if disposal == "return_later" else 0.0)

    def _remove_run(self, task: asyncio.Task[None]) -> None:
        del self._runs[task]
        if self._puller is not None:
            self._puller.release()


class Puller:
    """Keeps credit with the source and starts what arrives: as many commands as there are free slots (DESIGN §4).

    Credit is requested when none is left, or for a quarter of the slots at once: one request per step would cost NATS
    an extra message per step.

    Args:
        start: Starts a command and returns whether it took a slot; :meth:`release` is called when the slot is free
            again.
    """

    def __init__(
        self, source: CommandSource, slots: int, channel: Channel, start: Callable[[Delivery, int], bool]
    ) -> None:
        self._source = source
        self._slots = slots
        self.channel = channel
        self._start = start
        self._refill = max(1, slots // _REFILLS_A_ROUND)
        self._running = 0
        self._credit = 0
        self._stopped = self._ended = self._paused = False

    async def run(self) -> None:
        """Fetches commands until cancelled."""
        self.top_up()
        while True:
            delivery = await self._source.next()
            self._credit = max(0, self._credit - 1)
            if self._ended or (self._stopped and delivery.num_delivered == 1):
                delivery.nak()
            elif self._start(delivery, self._source.connected_ms):
                self._running += 1
            self.top_up()

    def release(self) -> None:
        self._running -= 1
        self.top_up()

    async def pause(self) -> None:
        """Withdraws its requests, and makes none until :meth:`resume`. Commands that still arrive are started."""
        self._paused, self._credit = True, 0
        await self._source.pause()

    def resume(self) -> None:
        self._paused = False
        self.top_up()

    def stop(self) -> None:
        """Stops requesting commands. Those that still arrive are returned at once, but redelivered ones are started:
        NATS may send them here repeatedly, until they have come too often (PROTOCOL §3 *Limit of deliveries*).
        """
        self._stopped = True

    def end(self) -> None:
        """Returns every delivery that arrives from now on to the queue."""
        self._stopped = self._ended = True

    def top_up(self) -> None:
        """Requests more commands if slots are free, unless a report is being retried (PROTOCOL §3 *Order*)."""
        free = self._slots - self._running - self._credit
        if free < self._refill and (self._credit or free <= 0):
            return
        if not self._stopped and not self._paused and not self.channel.retrying:
            self._credit += free
            self._source.request(free)
