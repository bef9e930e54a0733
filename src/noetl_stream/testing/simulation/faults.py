"""The faults of a simulation: each seed chooses some of the kinds below and when they strike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from noetl_stream.errors import Fenced, OutcomeUnknown, Unreachable
from noetl_stream.ports import subjects
from noetl_stream.testing.simulation.host import FaultInjector, SimulatedHost
from noetl_stream.testing.simulation.poison import POISONS, Poison
from noetl_stream.testing.simulation.world import SimulatedWorld

FAULTS_S = 30.0
"""How long faults occur."""

HARMLESS = (
    "server killed", "server frozen", "partitions stolen", "commit unknown", "tick fenced", "postgres away",
    "nats away", "nats restarted", "readers break", "acks lost", "stops lost", "answers lost", "reports unknown",
    "reports doubled", "reconcile always", "idle night",
)  # fmt: skip
"""Kinds that affect neither a worker nor the streams: no step may run twice because of them."""

STEADY = frozenset({
    "tick fenced", "nats restarted", "readers break", "acks lost", "stops lost", "answers lost", "reports unknown",
    "reports doubled", "reconcile always",
})  # fmt: skip
"""Kinds that lose no publication: no command may be issued twice because of them."""

TOUCHING = ("worker killed", "worker frozen", "leases end", "queue restored", "command lost", "tail lost")
"""Kinds that may make a running step run again."""

POISONED = {5: "poison kills", 10: "poison refused"}
"""Which seeds, modulo 16, have an execution that cannot be folded."""

LATENCIES_S = (0.0, 0.0, 0.0, 0.001, 0.003, 0.02)
READING_S = (0.0, 0.0, 0.001, 0.02, 0.4)
CALLS_BEFORE = 250
"""A scheduled fault of a host strikes within this many of its calls."""


@dataclass(slots=True)
class InjectedFault:
    """Kills a host after ``calls_left`` calls, or freezes it for ``frozen_s`` seconds."""

    calls_left: int
    frozen_s: float | None


class FaultPlan(FaultInjector):
    """The faults of all hosts of one seed.

    Attributes:
        world: Set by :meth:`enter`.
    """

    world: SimulatedWorld

    def __init__(self, seed: int, kinds: tuple[str, ...] | None = None) -> None:
        self.random = Random(f"misfortune {seed}")
        chosen = self.random.sample(HARMLESS, self.random.randint(1, 4))
        if seed % 2:
            chosen += self.random.sample(TOUCHING, self.random.randint(1, 2))
        if seed % 16 in POISONED:
            chosen.append(POISONED[seed % 16])
        self.kinds = tuple(chosen) if kinds is None else kinds
        self.poison = next((Poison(seed, kind) for kind in self.kinds if kind in POISONS), None)
        self.is_fair = False
        self.postgres_away = False
        self._scheduled: dict[str, InjectedFault] = {}

    @property
    def touches(self) -> bool:
        return any(kind in TOUCHING for kind in self.kinds)

    def enter(self, world: SimulatedWorld) -> list[tuple[float, Callable[[], None]]]:
        """The faults that strike at a given time, in seconds from now."""
        self.world = world
        strikes: list[tuple[float, Callable[[], None]]] = []
        for kind, strike in self._strikes().items():
            if kind in self.kinds:
                times = self.random.randint(1, 3)
                strikes += [(self.random.uniform(0.5, FAULTS_S - 5), strike) for _ in range(times)]
        if "idle night" in self.kinds:
            night_s = self.random.uniform(125, 200)
            strikes.append((self.random.uniform(3, FAULTS_S - 5), lambda: world.replace_servers(night_s)))
        return sorted(strikes, key=lambda one: one[0])

    def clear_up(self) -> None:
        """Ends all faults."""
        self.is_fair, self.postgres_away = True, False
        self._scheduled.clear()

    async def inject(self, host: SimulatedHost, point: str) -> None:
        latency_s = self.random.choice(READING_S if point == "log.next_batch.done" else LATENCIES_S)
        if latency_s:
            await self.world.clock.sleep(latency_s)
        if self.is_fair:
            return
        self._strike_if_due(host)
        if point.startswith("store.") and self.postgres_away:
            if point == "store.commit.done":
                raise OutcomeUnknown("the simulated Postgres went away before its answer")
            raise Unreachable("the simulated Postgres is away")
        if point in ("store.commit", "store.commit.done") and self._happens("commit unknown", 0.1):
            raise OutcomeUnknown("no answer to a simulated commit")
        if point == "store.commit" and self._happens("tick fenced", 0.1):
            raise Fenced("a simulated fence")
        if point.startswith(("log.publish_request", "log.publish_report")) and self._happens("reports unknown", 0.15):
            raise OutcomeUnknown("no acknowledgement of a simulated report")
        if point in ("log.publish_request.done", "log.publish_report.done") and self._happens("reports doubled", 0.3):
            self.world.broker.event_log.double_last()

    def loses(self, host: SimulatedHost, what: str) -> bool:
        if what == "ack":
            return self._happens("acks lost", 0.4)
        if what == subjects.STOP:
            return self._happens("stops lost", 0.5)
        return what.startswith(f"{subjects.CLAIMED}.") and self._happens("answers lost", 0.4)

    def _happens(self, kind: str, chance: float) -> bool:
        return not self.is_fair and kind in self.kinds and self.random.random() < chance

    def _strikes(self) -> dict[str, Callable[[], None]]:
        world, broker, queue = self.world, self.world.broker, self.world.broker.command_queue
        return {
            "server killed": lambda: self._schedule("server", None),
            "server frozen": lambda: self._schedule("server", self.random.uniform(2, 20)),
            "worker killed": lambda: self._schedule("worker", None),
            "worker frozen": lambda: self._schedule("worker", self.random.uniform(5, 50)),
            "partitions stolen": lambda: world.steal_partitions(self.random.randint(1, 32)),
            "postgres away": self._postgres_away,
            "nats away": self._nats_away,
            "nats restarted": broker.restart,
            "readers break": broker.event_log.break_readers,
            "leases end": lambda: self._touching(queue.forget_unacked),
            "queue restored": lambda: self._touching(broker.restart, queue.forget_deliveries),
            "command lost": self._lose_command,
            "tail lost": lambda: self._touching(lambda: world.lose_unread_tail(self.random.uniform(0.5, 5))),
        }

    def _strike_if_due(self, host: SimulatedHost) -> None:
        fault = self._scheduled.get(host.name)
        if fault is None:
            return
        fault.calls_left -= 1
        if fault.calls_left > 0:
            return
        del self._scheduled[host.name]
        if host.name.startswith("worker"):
            self._touching()
        if fault.frozen_s is None:
            host.kill()
            self.world.replace(host, self.random.uniform(0.2, 10))
        else:
            host.freeze()
            self._later(fault.frozen_s, lambda: self.world.thaw(host))

    def _schedule(self, role: str, frozen_s: float | None) -> None:
        if hosts := self.world.hosts(role):
            self._scheduled[self.random.choice(hosts).name] = InjectedFault(
                self.random.randint(1, CALLS_BEFORE), frozen_s
            )

    def _postgres_away(self) -> None:
        self.postgres_away = True
        self._later(self.random.uniform(0.3, 9), lambda: setattr(self, "postgres_away", False))

    def _nats_away(self) -> None:
        self.world.broker.stop()
        self._later(self.random.uniform(0.1, 9), self.world.broker.start)

    def _lose_command(self) -> None:
        if under_way := sorted(self.world.under_way):
            lost = self.random.choice(under_way)
            self.world.touched.add(lost)
            self.world.broker.command_queue.lose(lost)

    def _touching(self, *strikes: Callable[[], None]) -> None:
        self.world.touched |= self.world.under_way
        for strike in strikes:
            strike()

    @staticmethod
    def _later(seconds: float, act: Callable[[], Any]) -> None:
        asyncio.get_running_loop().call_later(seconds, act)
