"""Servers, workers and clients of one simulation, on a broker and a store in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any

from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.adapters.memory.catalog import MemoryCatalog
from noetl_stream.adapters.memory.store import MemoryStore
from noetl_stream.errors import Unreachable
from noetl_stream.model import codec, events
from noetl_stream.model.composite import expanded
from noetl_stream.model.events import Fact
from noetl_stream.model.messages import Report
from noetl_stream.server.parts import ServerTimes
from noetl_stream.server.server import Server
from noetl_stream.testing.conformance.catalog import registered
from noetl_stream.testing.simulation.clients import SimulatedClients
from noetl_stream.testing.simulation.host import FaultInjector, SimulatedHost
from noetl_stream.testing.simulation.poison import Poison, PoisonedStore
from noetl_stream.testing.simulation.roles import run_worker, server_on
from noetl_stream.testing.simulation.time import simulated_clock
from noetl_stream.testing.simulation.work import REGISTERED, Effect, WorkTool
from noetl_stream.tools.contract import Tool
from noetl_stream.tools.pipeline import NoopTool

ENDS_OF_STEPS = (events.StepDone, events.StepFailed, events.LoopDone, events.LoopPagedOut, events.StepSuspended)
ENDS_OF_ITERATIONS = (events.LoopIterationDone, events.LoopIterationFailed)
KINDS = {"work": WorkTool.spec, "noop": NoopTool.spec}
SLOTS = 3
STOLEN_S = 1.0


class SimulatedWorld:
    """Hosts, and what they share. Faults strike it through its methods.

    Attributes:
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
        self.clients = SimulatedClients(self.clock, self.broker, self.store)
        self.servers: dict[str, Server] = {}
        self.begun: set[str] = set()
        self.ended: list[str] = []
        self.touched: set[str] = set()
        self.poison = poison
        self._servers_store: Any = self.store if poison is None else PoisonedStore(self.store, poison, self._kill)
        self._injector = injector
        self._times = times
        self._hosts: list[SimulatedHost] = []
        self._tasks: list[asyncio.Task[Any]] = []

    async def register(self) -> None:
        """Registers the playbooks that others call."""
        for path, source in REGISTERED.items():
            await registered(self.catalog, source, path)

    def hosts(self, role: str) -> list[SimulatedHost]:
        """The live hosts, in the order of their start."""
        return [host for host in self._hosts if host.alive and host.name.startswith(role)]

    def start(self, role: str) -> None:
        """Starts a server or a worker."""
        host = SimulatedHost(f"{role}-{len(self._hosts) + 1}", self.broker, self._servers_store, self._injector)
        self._hosts.append(host)
        if role == "server":
            server = self.servers[host.name] = server_on(host, self.catalog, KINDS, self._times)
            self._begin(self._until_it_ends(host, server.run()))
        else:
            tools: dict[str, Tool] = {"work": WorkTool(self.clock, self.effects, host.awake), "noop": NoopTool()}
            self._begin(self._until_it_ends(host, run_worker(host, tools, SLOTS)))

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


def _last_fact(report: Report) -> Fact:
    return expanded(report.execution_id, codec.decode_fact(report.events[-1]))[-1]
