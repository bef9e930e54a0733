"""The faults of a simulation: each seed chooses some of the kinds below and when they strike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.adapters.memory.broker import MemoryBroker
from noetl_stream.errors import Fenced, OutcomeUnknown, Unreachable
from noetl_stream.ports import subjects
from noetl_stream.testing.simulation.host import SimulatedHost

TROUBLE_S = 30.0
"""How long faults occur; after that there are none."""

HARMLESS = (
    "server killed", "server frozen", "partitions stolen", "commit unknown", "tick fenced", "postgres away",
    "nats away", "nats restarted", "readers break", "acks lost", "stops lost", "answers lost", "reports unknown",
    "reports doubled", "reconcile always", "idle night",
)  # fmt: skip
"""Kinds that touch neither a worker nor the streams: no step may run twice for them."""

STEADY = frozenset({
    "tick fenced", "nats restarted", "readers break", "acks lost", "stops lost", "answers lost", "reports unknown",
    "reports doubled", "reconcile always",
})  # fmt: skip
"""Kinds that lose no publication: no command may be issued twice for them."""

TOUCHING = ("worker killed", "worker frozen", "leases end", "queue restored", "command lost", "tail lost")
"""Kinds that may make a running step run again."""

LATENCIES_S = (0.0, 0.0, 0.0, 0.001, 0.003, 0.02)
READING_S = (0.0, 0.0, 0.001, 0.02, 0.4)
POINTS_OF_A_LIFE = 250
"""A host to be killed is killed within this many calls from its start."""


class World(Protocol):
    """The world that faults strike."""

    broker: MemoryBroker
    clock: ManualClock

    def hosts(self, role: str) -> list[SimulatedHost]:
        """The live hosts, in the order of their start."""
        ...

    def replace(self, host: SimulatedHost, after_s: float) -> None:
        """Starts another host of the same role after ``after_s`` seconds."""
        ...

    def touch(self, command_ids: set[str]) -> None:
        """Marks commands that may run twice from now on."""
        ...

    def night(self, length_s: float) -> None:
        """Kills all servers, and starts others after ``length_s`` seconds."""
        ...

    def lose_unread_tail(self, after_s: float) -> None:
        """Kills all servers; ``after_s`` seconds later loses the messages none has folded, and starts others."""
        ...

    def steal_partitions(self, count: int) -> None:
        """Lets another owner take over some partitions for a second."""
        ...

    @property
    def under_way(self) -> set[str]:
        """The commands in the queue whose end is not in the log."""
        ...


@dataclass(slots=True)
class InjectedFault:
    """Kills a host at its ``left``-th call from now, or freezes it for a time."""

    left: int
    frozen_s: float | None


class FaultPlan:
    """The :class:`~noetl_stream.testing.simulation.host.FaultInjector` of all hosts of one seed."""

    def __init__(self, seed: int, kinds: tuple[str, ...] | None = None) -> None:
        self.dice = Random(f"misfortune {seed}")
        chosen = self.dice.sample(HARMLESS, self.dice.randint(1, 4))
        if seed % 2:
            chosen += self.dice.sample(TOUCHING, self.dice.randint(1, 2))
        self.kinds = tuple(chosen) if kinds is None else kinds
        self.is_fair = False
        self.postgres_away = False
        self._world: World | None = None
        self._dooms: dict[str, InjectedFault] = {}

    @property
    def touches(self) -> bool:
        return any(kind in TOUCHING for kind in self.kinds)

    @property
    def publishes_late(self) -> bool:
        """Whether a server may publish what its successor has reissued: only a fence at the queue (PROTOCOL §5) could
        keep such a first issue, which runs without a claim, from running beside the other.
        """
        leaves = {"server killed", "idle night", "tail lost"} & set(self.kinds)
        late = {"server frozen", "partitions stolen"} & set(self.kinds)
        return bool(late) or ("nats away" in self.kinds and bool(leaves))

    def enter(self, world: World) -> list[tuple[float, Callable[[], None]]]:
        """The faults that strike by themselves, and when (seconds from now)."""
        self._world = world
        strikes: list[tuple[float, Callable[[], None]]] = []
        for kind, strike in self._strikes(world).items():
            if kind in self.kinds:
                times = self.dice.randint(1, 3)
                strikes += [(self.dice.uniform(0.5, TROUBLE_S - 5), strike) for _ in range(times)]
        if "idle night" in self.kinds:
            strikes.append((self.dice.uniform(3, TROUBLE_S - 5), lambda: world.night(self.dice.uniform(125, 200))))
        return sorted(strikes, key=lambda one: one[0])

    def clear_up(self) -> None:
        """Ends all faults."""
        self.is_fair, self.postgres_away = True, False
        self._dooms.clear()

    async def inject(self, host: SimulatedHost, point: str) -> None:
        assert self._world is not None
        latency_s = self.dice.choice(READING_S if point == "log.next_batch.done" else LATENCIES_S)
        if latency_s:
            await self._world.clock.sleep(latency_s)
        if self.is_fair:
            return
        self._schedule_fault(host, self._world)
        if point.startswith("store.") and self.postgres_away:
            if point == "store.commit.done":
                raise OutcomeUnknown("the simulated Postgres went away before its answer")
            raise Unreachable("the simulated Postgres is away")
        if point in ("store.commit", "store.commit.done") and self._happens("commit unknown", 0.1):
            raise OutcomeUnknown("no answer to a simulated commit")
        if point == "store.commit" and self._happens("tick fenced", 0.1):
            raise Fenced("a simulated fence")
        if point.startswith("log.publish_reported") and self._happens("reports unknown", 0.15):
            raise OutcomeUnknown("no acknowledgement of a simulated report")
        if point == "log.publish_reported.done" and self._happens("reports doubled", 0.3):
            self._world.broker.event_log.double_last()

    def loses(self, host: SimulatedHost, what: str) -> bool:
        if what == "ack":
            return self._happens("acks lost", 0.4)
        if what == subjects.STOP:
            return self._happens("stops lost", 0.5)
        return what.startswith("noetl.claim.") and self._happens("answers lost", 0.4)

    def _happens(self, kind: str, chance: float) -> bool:
        return not self.is_fair and kind in self.kinds and self.dice.random() < chance

    def _strikes(self, world: World) -> dict[str, Callable[[], None]]:
        broker = world.broker
        return {
            "server killed": lambda: self._condemn(world.hosts("server"), None),
            "server frozen": lambda: self._condemn(world.hosts("server"), self.dice.uniform(2, 20)),
            "worker killed": lambda: self._condemn(world.hosts("worker"), None),
            "worker frozen": lambda: self._condemn(world.hosts("worker"), self.dice.uniform(5, 50)),
            "partitions stolen": lambda: world.steal_partitions(self.dice.randint(1, 32)),
            "postgres away": self._away,
            "nats away": lambda: self._down(world, broker.stop),
            "nats restarted": broker.restart,
            "readers break": broker.event_log.break_readers,
            "leases end": lambda: self._touching(world, broker.command_queue.forget_unacked),
            "queue restored": lambda: self._touching(world, self._restore_queue),
            "command lost": lambda: self._lose_command(world),
            "tail lost": lambda: self._touching(world, lambda: world.lose_unread_tail(self.dice.uniform(0.5, 5))),
        }

    def _schedule_fault(self, host: SimulatedHost, world: World) -> None:
        doom = self._dooms.get(host.name)
        if doom is None:
            return
        doom.left -= 1
        if doom.left > 0:
            return
        del self._dooms[host.name]
        if host.name.startswith("worker"):
            world.touch(world.under_way)
        if doom.frozen_s is None:
            host.kill()
            world.replace(host, self.dice.uniform(0.2, 10))
        else:
            host.freeze()
            self._later(doom.frozen_s, lambda: self._thaw(host))

    def _thaw(self, host: SimulatedHost) -> None:
        assert self._world is not None
        self._world.touch(host.fetched)  # it now runs what it received while frozen
        host.thaw()

    def _condemn(self, hosts: list[SimulatedHost], frozen_s: float | None) -> None:
        if hosts:
            self._dooms[self.dice.choice(hosts).name] = InjectedFault(self.dice.randint(1, POINTS_OF_A_LIFE), frozen_s)

    def _away(self) -> None:
        self.postgres_away = True
        self._later(self.dice.uniform(0.3, 9), lambda: setattr(self, "postgres_away", False))

    def _down(self, world: World, stop: Callable[[], None]) -> None:
        stop()
        self._later(self.dice.uniform(0.1, 9), world.broker.start)

    def _restore_queue(self) -> None:
        assert self._world is not None
        self._world.broker.restart()
        self._world.broker.command_queue.forget_deliveries()

    def _lose_command(self, world: World) -> None:
        under_way = sorted(world.under_way)
        if under_way:
            lost = self.dice.choice(under_way)
            world.touch({lost})
            world.broker.command_queue.lose(lost)

    @staticmethod
    def _touching(world: World, strike: Callable[[], None]) -> None:
        world.touch(world.under_way)
        strike()

    @staticmethod
    def _later(seconds: float, act: Callable[[], Any]) -> None:
        asyncio.get_running_loop().call_later(seconds, act)
