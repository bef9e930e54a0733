"""The worker role: pulls commands of one pool, runs them, reports (DESIGN §4, PROTOCOL §3)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from noetl_stream.concurrency import first_done
from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.messages import FORMAT, StepCommand
from noetl_stream.ports import subjects
from noetl_stream.ports.blobs import Blobs
from noetl_stream.ports.bus import Bus, Subscription
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.command_queue import CommandQueue, CommandSource, Delivery
from noetl_stream.ports.event_log import EventLog
from noetl_stream.tools.contract import Tool
from noetl_stream.worker.broker_liveness import BrokerLiveness
from noetl_stream.worker.cancellation import Cancellations
from noetl_stream.worker.catalog_client import CatalogClient
from noetl_stream.worker.command.reporter import Channel, Flusher
from noetl_stream.worker.command.run import CommandRun
from noetl_stream.worker.dependencies import Dependencies
from noetl_stream.worker.lease import LeaseKeeper
from noetl_stream.worker.limits import ACK_WAIT_S, FAREWELL_S, GRACE_S, RETURN_DELAY_S, SIGNS_A_LEASE
from noetl_stream.worker.plans import PlanSource
from noetl_stream.worker.presence import Presence
from noetl_stream.worker.pull import Puller
from noetl_stream.worker.secrets.client import SecretsClient
from noetl_stream.worker.secrets.keychain import Credentials, Keychain
from noetl_stream.worker.waiting import persist, within

log = logging.getLogger(__name__)
Value = TypeVar("Value")


class Worker:
    """Runs commands of one pool until :meth:`drain`. The caller closes its dependencies.

    Args:
        name: Shown in events.
        slots: How many commands run at once.
        credential: Resolves the worker's own credentials.
        secrets: The credential store, asked first; without it only ``credential`` is used.
        grace_s: How long running commands may take to finish after :meth:`drain`; the rest is returned.
        ack_wait_s: How long a lease of the queue lasts. It is renewed three times within that.
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
        clock: Clock,
        tools: Mapping[str, Tool],
        plans: PlanSource,
        credential: Credentials,
        secrets: SecretsClient | None = None,
        grace_s: float = GRACE_S,
        ack_wait_s: float = ACK_WAIT_S,
    ) -> None:
        self._pool = pool
        self._slots = slots
        self._queue = queue
        self._bus = bus
        self._clock = clock
        self._grace_s = grace_s
        self._liveness = BrokerLiveness(event_log, clock)
        self._flusher = Flusher(clock)
        self._channel = Channel(event_log, clock, self._liveness, self._flusher)
        self.keychain = Keychain(clock, credential, secrets, tools.get("http"))
        catalog = CatalogClient(bus, clock)
        self._dependencies = Dependencies(
            worker=name,
            channel=self._channel,
            bus=bus,
            blobs=blobs,
            clock=clock,
            tools=tools,
            kinds={kind: tool.spec for kind, tool in tools.items()},
            plans=plans,
            catalog=catalog,
            keychain=self.keychain,
        )
        self._cancellations = Cancellations()
        self._leases = LeaseKeeper(ack_wait_s / SIGNS_A_LEASE)
        self._draining = asyncio.Event()
        self._runs: dict[asyncio.Task[None], CommandRun] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._source: CommandSource | None = None
        self._puller: Puller | None = None
        self._subscriptions: list[Subscription] = []
        self._presence = Presence(
            name=name,
            pool=pool,
            slots=slots,
            since_ms=clock.now_ms(),
            kinds=tools,
            running=lambda: [run.shown for run in self._runs.values()],
            draining=self._draining.is_set,
        )
        self._closed = False

    async def run(self) -> None:
        """Runs until :meth:`drain` has completed. An error raised here is a defect in this project."""
        opening = self._background("open", self._open())
        try:
            if await first_done([opening], self._draining.wait()):
                source, puller = opening.result()
                working = (
                    self._background("pull", puller.run()),
                    self._background("watch contact", self._liveness.watch(self._lose_contact)),
                    self._background("flush", self._flusher.run()),
                )
                for task in await first_done(working, self._draining.wait()):
                    task.result()
                puller.stop()
                await self._finish(source)
        finally:
            await self.close()

    def drain(self) -> None:
        """Stops fetching commands; :meth:`run` returns when running commands have ended or the grace is over."""
        self._draining.set()

    @property
    def busy(self) -> bool:
        """Whether a command is running here."""
        return bool(self._runs)

    async def close(self) -> None:
        """Stops everything at once. Running commands are neither acknowledged nor returned: their leases expire."""
        if self._closed:
            return
        self._closed = True
        if self._puller is not None:
            self._puller.stop()
        for run in self._runs.values():
            run.interrupt("closed")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._runs, return_exceptions=True)
        await self.keychain.close()
        await asyncio.to_thread(self._leases.close)
        if self._source is not None:
            await self._source.close()
        for subscription in self._subscriptions:
            await subscription.close()

    def _background(self, name: str, work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
        task = asyncio.create_task(work, name=f"worker: {name}")
        self._tasks.append(task)
        return task

    async def _open(self) -> tuple[CommandSource, Puller]:
        clock, pool, bus, hear = self._clock, self._pool, self._bus, self._cancellations.hear
        self._subscriptions.append(await persist(clock, "listen for stops", lambda: bus.listen(subjects.STOP, hear)))
        self._source = await persist(clock, f"open pool {pool}", lambda: self._queue.open_source(pool))
        self._leases.start()
        self._puller = Puller(self._source, self._slots, self._channel, self._start)
        self._channel.on_unstuck = self._puller.top_up
        self._subscriptions.append(await persist(clock, "listen for questions", lambda: self._presence.listen(bus)))
        return self._source, self._puller

    async def _finish(self, source: CommandSource) -> None:
        """Waits for running commands, then returns the rest to the queue.

        The source is closed first, so that no credit remains with the queue. A closed source may no longer renew leases
        from another thread, so they are renewed from here too.
        """
        await source.close()
        self._background("renew leases", self._renew_leases())
        if not await self._all_ended(self._grace_s):
            log.warning("%d commands still running after %.0f s are returned", len(self._runs), self._grace_s)
            for run in tuple(self._runs.values()):
                run.interrupt("relinquished")
            await self._all_ended(FAREWELL_S)

    async def _all_ended(self, seconds: float) -> bool:
        if not self._runs:
            return True
        everything = asyncio.ensure_future(asyncio.wait(tuple(self._runs)))
        try:
            return await within(self._clock, seconds, everything)
        finally:
            everything.cancel()

    async def _renew_leases(self) -> None:
        while True:
            await self._clock.sleep(self._leases.interval_s)
            self._leases.renew()

    def _lose_contact(self) -> None:
        for run in tuple(self._runs.values()):
            run.lose_contact()

    def _start(self, delivery: Delivery, connected_ms: int) -> bool:
        command = _readable(delivery)
        if command is None:
            delivery.nak(RETURN_DELAY_S)
            return False
        self._liveness.touch()
        run = CommandRun(self._dependencies, self._cancellations, command, delivery)
        task = asyncio.create_task(self._carry_out(run, connected_ms))
        run.runs_in(task)
        self._runs[task] = run
        self._leases.hold(delivery)
        self._cancellations.enter(run)
        task.add_done_callback(self._ended)
        return True

    async def _carry_out(self, run: CommandRun, connected_ms: int) -> None:
        try:
            disposal = await run.carry_out(connected_ms)
        except Exception:
            log.exception("command %s is returned to the queue: this worker has a defect", run.run.command_id)
            disposal = "return_later"
        if disposal == "done":
            run.delivery.ack()
        else:
            run.delivery.nak(RETURN_DELAY_S if disposal == "return_later" else 0.0)

    def _ended(self, task: asyncio.Task[None]) -> None:
        run = self._runs.pop(task)
        self._cancellations.leave(run)
        self._leases.release(run.delivery)
        if self._puller is not None:
            self._puller.release()


def _readable(delivery: Delivery) -> StepCommand | None:
    """The command, unless it is damaged or of a format only a newer worker reads (PROTOCOL §5)."""
    try:
        command = codec.decode_command(delivery.body)
    except PayloadRefused as error:
        log.error("cannot read a command, returned to the queue: %s", error)
        return None
    if command.format > FORMAT:
        log.error("command %s has format %d, this worker reads up to %d", command.command_id, command.format, FORMAT)
        return None
    return command
