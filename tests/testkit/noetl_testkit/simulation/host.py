"""A process of a simulation. Everything it does with the outside passes through here, so that it can be frozen or
killed at any point, and so that its messages take time.

A killed host never returns from its current call, and later calls have no effect. A frozen one continues later where
it was, as a zombie.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, TypeVar, cast

from noetl_stream.adapters.memory.command_queue import MemoryCommandSource
from noetl_stream.model.json import codec
from noetl_stream.ports.stores.store import Store
from noetl_stream.ports.streams.blobs import Blobs
from noetl_stream.ports.streams.bus import Bus, Handler, Subscription
from noetl_stream.ports.streams.command_queue import CommandQueue, CommandSource, Delivery
from noetl_stream.ports.streams.event_log import EventLog, EventReader, ReportedMessage
from noetl_stream.ports.streams.task_logs import TaskLogs
from noetl_stream.ports.streams.trigger_streams import StreamConsumer, StreamWanted, TriggerStreams
from noetl_testkit.memory.broker import StagedBroker

Value = TypeVar("Value")

SENT_AT_ONCE = frozenset({"publish_decided", "issue"})
"""Methods that send when they are called, whether they are awaited or not."""


class FaultInjector:
    """The faults of hosts: none, unless a subclass injects some."""

    async def inject(self, host: SimulatedHost, point: str) -> None:
        """Called where ``host`` is about to do ``point``, and again (``point`` ending in ``.done``) when it has.

        It may take time, :meth:`SimulatedHost.kill`, :meth:`SimulatedHost.freeze`, or raise any error of the port.
        """

    def does(self, host: SimulatedHost, point: str, arguments: tuple[Any, ...]) -> None:
        """Called at the moment at which ``host`` does ``point`` with these arguments."""

    def loses(self, host: SimulatedHost, what: str) -> bool:
        """Whether this unconfirmed message is lost: a bus subject, or ``ack``."""
        return False

    def delay_s(self, host: SimulatedHost, subject: str) -> float:
        """How long a message of the bus is under way; later ones may overtake it."""
        return 0.0


class SimulatedHost:
    """One process. Its ports are given to one role.

    Args:
        queue, log: By default those of the broker.
    """

    def __init__(
        self,
        name: str,
        broker: StagedBroker,
        store: Store,
        injector: FaultInjector,
        queue: CommandQueue | None = None,
        log: EventLog | None = None,
    ) -> None:
        self.name = name
        self.alive = True
        self.injector = injector
        self.clock = broker.clock
        self.log: EventLog = _HostLog(self, "log", log or broker.event_log)
        self.queue: CommandQueue = _HostQueue(self, "queue", queue or broker.command_queue)
        self.bus: Bus = _HostBus(self, "bus", broker.bus)
        self.blobs: Blobs = _HostPort(self, "blobs", broker.blobs)
        self.task_logs: TaskLogs = _HostTaskLogs(self, "task_logs", broker.task_logs)
        self.store: Store = _HostPort(self, "store", store)
        self.trigger_streams: TriggerStreams = _HostStreams(self, "streams", broker.trigger_streams)
        self._awake = asyncio.Event()
        self._awake.set()
        self._later: list[Callable[[], None]] = []
        self._unplug: list[Callable[[], Awaitable[None]]] = []
        self._unplugging: list[asyncio.Future[None]] = []
        self.leased: dict[_HostDelivery, None] = {}
        """Deliveries received and neither acknowledged nor returned."""
        self.sources: list[MemoryCommandSource] = []

    @property
    def is_frozen(self) -> bool:
        return self.alive and not self._awake.is_set()

    def kill(self) -> None:
        """Ends it like ``kill -9``: its connections close, and its calls never return."""
        if self.alive:
            self.alive = False
            self._awake.clear()
            self._unplugging = [asyncio.ensure_future(unplug()) for unplug in self._unplug]

    def freeze(self) -> None:
        """Freezes it until :meth:`thaw`, as in a long garbage collection or a suspended virtual machine."""
        self._awake.clear()

    def thaw(self) -> None:
        if self.alive:
            self._awake.set()
            later, self._later = self._later, []
            for act in later:
                act()

    def when_awake(self, act: Callable[[], None]) -> None:
        """Runs ``act`` now, after the thaw, or never."""
        if self._awake.is_set():
            act()
        elif self.alive:
            self._later.append(act)

    @property
    def fetched(self) -> set[str]:
        """The commands received and not yet begun."""
        return {codec.decode_command(body).command_id for source in self.sources for body in source.waiting}

    def renew_leases(self) -> None:
        """Renews the leases of all running commands."""
        for delivery in tuple(self.leased):
            delivery.in_progress()

    async def around(self, point: str, work: Callable[..., Awaitable[Value]], arguments: tuple[Any, ...] = ()) -> Value:
        """``work(*arguments)``, with the faults of this host before and after it."""
        await self.passes(point)
        self.injector.does(self, point, arguments)
        value = await work(*arguments)
        await self.passes(f"{point}.done")
        return value

    async def awake(self) -> None:
        """Returns when it may continue; never for a dead host."""
        await self._awake.wait()

    def plugged(self, unplug: Callable[[], Awaitable[None]]) -> None:
        """Registers ``unplug``, called when it is killed."""
        self._unplug.append(unplug)

    async def passes(self, point: str) -> None:
        """Passes this point, where a fault may strike."""
        await self._awake.wait()
        await self.injector.inject(self, point)
        await self._awake.wait()


class _HostPort:
    """An adapter of a host. Each call of a method, which is asynchronous, passes the point ``name.method``."""

    def __init__(self, host: SimulatedHost, name: str, real: Any) -> None:
        self._host = host
        self._name = name
        self._real = real

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)

        def call(*arguments: Any, **options: Any) -> Awaitable[Any]:
            work = self._host.around(f"{self._name}.{name}", partial(real, **options), arguments)
            return asyncio.ensure_future(work) if name in SENT_AT_ONCE else work

        return call if callable(real) else real


class _HostLog(_HostPort):
    """:class:`~noetl_stream.ports.streams.event_log.EventLog` of a host."""

    async def open_reader(
        self, partitions: Collection[int], after: int, records: bool = False, bodies: bool = True
    ) -> EventReader:
        work = self._real.open_reader
        reader = await self._host.around("log.open_reader", lambda: work(partitions, after, records, bodies))
        self._host.plugged(reader.close)
        return cast(EventReader, _HostReader(self._host, "reader", reader))


class _HostReader(_HostPort):
    """An event reader of a host."""

    _real: EventReader
    _on_its_way: int | None = None

    @property
    def high_water(self) -> int:
        return self._real.high_water if self._on_its_way is None else self._on_its_way - 1

    async def next_batch(self, limit: int) -> list[ReportedMessage]:
        await self._host.awake()
        batch = await self._real.next_batch(limit)
        self._on_its_way = batch[0].sequence
        await self._host.passes("log.next_batch.done")
        self._on_its_way = None
        return batch


class _HostStreams(_HostPort):
    """:class:`~noetl_stream.ports.streams.trigger_streams.TriggerStreams` of a host."""

    async def open(self, wanted: StreamWanted) -> StreamConsumer:
        consumer = await self._host.around("streams.open", self._real.open, (wanted,))
        return cast(StreamConsumer, _HostPort(self._host, "stream", consumer))


class _HostTaskLogs(_HostPort):
    """:class:`~noetl_stream.ports.streams.task_logs.TaskLogs` of a host."""

    def publish(self, subject: str, message_id: str, body: bytes, done: Callable[[str], None]) -> None:
        self._host.when_awake(lambda: self._real.publish(subject, message_id, body, done))


class _HostQueue(_HostPort):
    """:class:`~noetl_stream.ports.streams.command_queue.CommandQueue` of a host."""

    async def open_source(self, pool: str) -> CommandSource:
        source = await self._host.around("queue.open_source", lambda: self._real.open_source(pool))
        self._host.plugged(source.close)
        self._host.sources.append(source)
        return cast(CommandSource, _HostSource(self._host, "source", source))


class _HostSource(_HostPort):
    """A command source of a host."""

    _real: CommandSource

    def request(self, count: int) -> None:
        self._host.when_awake(lambda: self._real.request(count))

    async def next(self) -> Delivery:
        await self._host.awake()
        delivery = await self._real.next()
        await self._host.awake()
        leased = _HostDelivery(self._host, "delivery", delivery)
        self._host.leased[leased] = None
        return cast(Delivery, leased)


class _HostDelivery(_HostPort):
    """A delivery of a host."""

    _real: Delivery

    def ack(self) -> None:
        self._host.leased.pop(self, None)
        if not self._host.injector.loses(self._host, "ack"):
            self._host.when_awake(self._real.ack)

    def nak(self, delay_s: float = 0.0) -> None:
        self._host.leased.pop(self, None)
        self._host.when_awake(lambda: self._real.nak(delay_s))

    def in_progress(self) -> None:
        self._host.when_awake(self._real.in_progress)


class _HostBus(_HostPort):
    """:class:`~noetl_stream.ports.streams.bus.Bus` of a host."""

    def send(self, subject: str, body: bytes) -> None:
        injector = self._host.injector
        if injector.loses(self._host, subject):
            return
        delay_s = injector.delay_s(self._host, subject)
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._real.send, subject, body)
        else:
            self._host.when_awake(lambda: self._real.send(subject, body))

    async def listen(self, subject: str, handler: Handler, group: str = "") -> Subscription:
        async def hear(subject: str, body: bytes, reply: str) -> None:
            await self._host.awake()
            await handler(subject, body, reply)

        work = self._real.listen
        subscription: Subscription = await self._host.around("bus.listen", lambda: work(subject, hear, group))
        self._host.plugged(subscription.close)
        return subscription
