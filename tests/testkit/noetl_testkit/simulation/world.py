"""Servers, workers and clients of one simulation, on a broker and a store in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.errors import StreamLost, Unreachable
from noetl_stream.model import events
from noetl_stream.model.events import Fact
from noetl_stream.model.events.composite import expand
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Report
from noetl_stream.ports.stores.store import Store
from noetl_stream.server.assembly import ServerTimes, StateBounds
from noetl_stream.server.server import Server
from noetl_stream.server.upkeep.holes import HoleFinder
from noetl_stream.server.upkeep.upkeep import QueueSweeper, Trimmer, Upkeep
from noetl_stream.settings.retention_periods import RetentionSettings
from noetl_stream.tools.contract import Tool
from noetl_stream.tools.pipeline import NoopTool
from noetl_testkit.conformance.catalog import registered
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.journals import MemoryRetention
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.simulation.clients import SimulatedClients
from noetl_testkit.simulation.clocks import WrongClocks
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.poison import Poison
from noetl_testkit.simulation.roles import ServerOfMany, run_worker, server_on
from noetl_testkit.simulation.senders import SimulatedRights, SimulatedSenders
from noetl_testkit.simulation.stores import LateInbox, PoisonedStore
from noetl_testkit.simulation.work import REGISTERED, Effect, WorkTool

ENDS = (events.StepDone, events.StepFailed, events.StepSuspended)
ENDS_OF_LOOPS = (events.LoopDone, events.LoopPagedOut)
ENDS_OF_ITERATIONS = (events.LoopIterationDone, events.LoopIterationFailed, events.LoopPagedOut)
KINDS = {"work": WorkTool.spec, "noop": NoopTool.spec}
SLOTS = 3
STOLEN_S = 1.0
EVENTS_BYTES = 20_000
KEPT_MS = 5_000
"""EVENTS keeps more than a restored Postgres ever lacks."""

TRIM_S = 3.0


class SimulatedWorld:
    """Hosts, and what they share. Faults strike it through its methods.

    Attributes:
        begun: Servers that have taken partitions.
        ended: Roles that ended unexpectedly, with their error.
        touched: Commands that may run twice.
        dumped_s: The time of the state that Postgres was restored to.
        messages_before_look: How often messages came between a lost tail and the next look of a server.
        poison: What is wrong with one execution, if any.
        clocks: Those of servers, where they are wrong.
    """

    def __init__(
        self,
        injector: FaultInjector,
        times: ServerTimes,
        poison: Poison | None,
        states: StateBounds,
        *,
        inbox_is_late: bool = False,
        clocks: Random | None = None,
    ) -> None:
        self.clock = simulated_clock()
        self.broker = StagedBroker(self.clock)
        self.store = StagedStore(self.clock)
        self.catalog = MemoryCatalog(self.store)
        self.effects: Counter[Effect] = Counter()
        self.clients = SimulatedClients(self.clock, self.broker, self.store)
        self.rights = SimulatedRights()
        self.senders = SimulatedSenders(self.clock, self.broker, self.store, self.rights)
        self.clocks = None if clocks is None else WrongClocks(self.clock, clocks)
        self.servers: dict[str, Server] = {}
        self.begun: set[str] = set()
        self.ended: list[str] = []
        self.touched: set[str] = set()
        self.dumped_s: list[float] = []
        self.messages_before_look = 0
        self.poison = poison
        self.inbox = LateInbox(self.store, self.clock, late=inbox_is_late)
        store: Any = self.inbox if poison is None else PoisonedStore(self.inbox, poison, self._kill)
        self._servers_store: Store = store
        self._injector = injector
        self._times = times
        self._states = states
        self._recovering = asyncio.Lock()
        self._hosts: list[SimulatedHost] = []
        self._tasks: list[asyncio.Task[Any]] = []

    async def register(self, started: Mapping[str, str] = {}) -> None:
        """Registers the playbooks that others call, and those that triggers start."""
        for path, source in {**REGISTERED, **started}.items():
            await registered(self.catalog, source, path)

    def hosts(self, role: str) -> list[SimulatedHost]:
        """The live hosts, in the order of their start."""
        return [host for host in self._hosts if host.alive and host.name.startswith(role)]

    def start(self, role: str) -> None:
        """Starts a server or a worker."""
        host = SimulatedHost(f"{role}-{len(self._hosts) + 1}", self.broker, self._servers_store, self._injector)
        self._hosts.append(host)
        if role == "server":
            if self.clocks is not None:
                host.clock = self.clocks.new()
            server = self.servers[host.name] = server_on(
                host,
                self.catalog,
                KINDS,
                self._times,
                states=self._states,
                upkeep=self._upkeep(host),
                rights=self.rights,
                server_type=Server if self._states == StateBounds() else ServerOfMany,
            )
            self._begin(self._until_it_ends(host, server.run()))
        else:
            working = WorkTool(self.clock, self.effects, host.awake, self.clients.saw)
            tools: dict[str, Tool] = {"work": working, "noop": NoopTool()}
            self._begin(self._until_it_ends(host, run_worker(host, tools, SLOTS)))

    def _upkeep(self, host: SimulatedHost) -> Upkeep:
        """Trims EVENTS whenever it can: a simulation is short and its stream is small."""
        store, retention = self.store, MemoryRetention(self.store)
        settings = RetentionSettings(events_max_bytes=EVENTS_BYTES)
        trimmer = Trimmer(host.log, store, store.cursors, retention, self.clock, settings, kept_ms=KEPT_MS)
        sweeper = QueueSweeper(host.queue, host.store)
        holes = HoleFinder(self.broker.event_log, store, store.cursors, retention, store.dead_letters, self.clock)
        return Upkeep(host.clock, trimmer=trimmer, sweeper=sweeper, holes=holes, trim_events_s=TRIM_S)

    def replace(self, host: SimulatedHost, after_s: float) -> None:
        """Starts another host of the same role after ``after_s`` seconds."""
        role = host.name.partition("-")[0]
        asyncio.get_running_loop().call_later(after_s, self.start, role)

    def replace_servers(self, after_s: float) -> None:
        """Kills all servers, and starts others after ``after_s`` seconds."""
        for host in self.hosts("server"):
            host.kill()
            self.replace(host, after_s)

    def lose_tail(self, after_s: float, *, folded: int) -> None:
        """Kills all servers; ``after_s`` seconds later loses the messages that none has folded, and ``folded`` that
        were; then starts as many.
        """
        self._begin(self._lose_tail(after_s, folded))

    def lose_middle(self, random: Random) -> None:
        """Loses some messages one after the other, read or not."""
        log = self.broker.event_log
        if held := log.held_above(0):
            first = random.choice(held).message.sequence
            lost = range(first, min(first + random.randint(1, 15), log.end + 1))
            self.touched |= {report.command_id for report in self.reports(first - 1)}
            log.lose(*lost)

    def restore_postgres(self, ticks_s: float) -> None:
        """After ``ticks_s`` seconds all servers die, and Postgres is as it is now."""
        self._begin(self._restore_postgres(ticks_s))

    def cancel_anything(self) -> None:
        """Lets clients cancel what may be cancelled."""
        self._begin(self.clients.cancel_anything())

    def is_cancelled(self, execution_id: str) -> bool:
        row = self.store.tables.executions.get(execution_id)
        return row is not None and row.status == "cancelled"

    def owner_of(self, partition: int) -> tuple[str | None, int]:
        """Owner and epoch."""
        row = self.store.tables.partitions[partition]
        return row.owner, row.epoch

    def steal_partitions(self, count: int) -> None:
        """Lets another owner take over some partitions for a second."""
        self.store.end_leases(range(count))
        self._begin(self.store.take_over("stranger", STOLEN_S, count))

    @property
    def under_way(self) -> set[str]:
        """The commands in the queue whose end is not in the log."""
        queued = self.broker.command_queue.queued
        last = {report.command_id: _last_fact(report) for report in self.reports()}
        return {key for key, body in queued.items() if not _is_end(last.get(key), codec.decode_command(body).path)}

    def thaw(self, host: SimulatedHost) -> None:
        """Thaws a host, which now runs what it received while frozen."""
        self.touched |= host.fetched
        host.thaw()

    def clear_up(self) -> None:
        """Thaws frozen hosts and starts a stopped broker."""
        self.inbox.is_late = False
        self.broker.start()
        for host in self._hosts:
            if host.is_frozen:
                self.thaw(host)

    async def _until_it_ends(self, host: SimulatedHost, run: Coroutine[Any, Any, None]) -> None:
        try:
            await run
        except (Unreachable, StreamLost) as error:
            never_began = isinstance(error, Unreachable) and host.name not in self.begun
            if never_began or (isinstance(error, StreamLost) and self._recovering.locked()):
                host.kill()  # a process manager starts another
                self.replace(host, 1.0)
            else:
                self.ended.append(f"{host.name}: {error!r}")
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

    def reports(self, after: int = 0) -> Iterator[Report]:
        """The stored reports above a sequence, in order."""
        for stored in self.broker.event_log.stored[after:]:
            body = codec.decode_reported(stored.message.body) if stored.is_input else None
            if isinstance(body, Report):
                yield body

    async def _lose_tail(self, after_s: float, folded: int) -> None:
        async with self._recovering:
            await self._lose_and_recover(after_s, folded)

    async def _restore_postgres(self, ticks_s: float) -> None:
        async with self._recovering:
            dump, through = self.store.dump(), self.broker.event_log.end
            self.dumped_s.append(self.clock.monotonic_s())
            await self.clock.sleep(ticks_s)
            servers = self._kill_servers()
            self.store.restore(dump)
            self.touched |= self.under_way | {report.command_id for report in self.reports(through)}
            await self.clock.sleep(0.5)
            for _ in range(servers):
                self.start("server")

    async def _lose_and_recover(self, after_s: float, folded: int) -> None:
        log, servers = self.broker.event_log, self._kill_servers()
        await self.clock.sleep(after_s)
        servers += self._kill_servers()  # those that replaced others meanwhile
        kept = max(0, max(view.last_seq for view in await self.store.read_partitions()) - folded)
        self.touched |= {report.command_id for report in self.reports(kept)}
        self.broker.stop()
        log.lose_tail(log.end - kept)
        self.broker.start()
        await self.clock.sleep(0.5)
        self.messages_before_look += log.end > kept
        for _ in range(servers):
            self.start("server")

    def _kill_servers(self) -> int:
        servers = self.hosts("server")
        for host in servers:
            host.kill()
        return len(servers)


def _is_end(fact: Fact | None, path: Sequence[int]) -> bool:
    """Whether a command ends with this fact: one of its inner loops, or of their iterations, may end before."""
    if isinstance(fact, ENDS_OF_ITERATIONS if path else ENDS_OF_LOOPS):
        return tuple(fact.path) == tuple(path)
    return isinstance(fact, ENDS)


def _last_fact(report: Report) -> Fact:
    return expand(report.execution_id, codec.decode_fact(report.events[-1]))[-1]
