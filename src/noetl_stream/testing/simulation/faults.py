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
from noetl_stream.testing.simulation.world import SimulatedWorld

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


@dataclass(slots=True)
class InjectedFault:
    """Kills a host at its ``left``-th call from now, or freezes it for a time."""

    left: int
    frozen_s: float | None


class FaultPlan(FaultInjector):
    """The faults of all hosts of one seed.

    Attributes:
        world: What they strike, from :meth:`enter` on.
    """

    world: SimulatedWorld

    def __init__(self, seed: int, kinds: tuple[str, ...] | None = None) -> None:
        self.dice = Random(f"misfortune {seed}")
        chosen = self.dice.sample(HARMLESS, self.dice.randint(1, 4))
        if seed % 2:
            chosen += self.dice.sample(TOUCHING, self.dice.randint(1, 2))
        self.kinds = tuple(chosen) if kinds is None else kinds
        self.is_fair = False
        self.postgres_away = False
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

    def enter(self, world: SimulatedWorld) -> list[tuple[float, Callable[[], None]]]:
        """The faults that strike at a time, which is in seconds from now."""
        self.world = world
        strikes: list[tuple[float, Callable[[], None]]] = []
        for kind, strike in self._strikes().items():
            if kind in self.kinds:
                times = self.dice.randint(1, 3)
                strikes += [(self.dice.uniform(0.5, TROUBLE_S - 5), strike) for _ in range(times)]
        if "idle night" in self.kinds:
            night_s = self.dice.uniform(125, 200)
            strikes.append((self.dice.uniform(3, TROUBLE_S - 5), lambda: world.replace_servers(night_s)))
        return sorted(strikes, key=lambda one: one[0])

    def clear_up(self) -> None:
        """Ends all faults."""
        self.is_fair, self.postgres_away = True, False
        self._dooms.clear()

    async def inject(self, host: SimulatedHost, point: str) -> None:
        latency_s = self.dice.choice(READING_S if point == "log.next_batch.done" else LATENCIES_S)
        if latency_s:
            await self.world.clock.sleep(latency_s)
        if self.is_fair:
            return
        self._schedule_fault(host)
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
            self.world.broker.event_log.double_last()

    def loses(self, host: SimulatedHost, what: str) -> bool:
        if what == "ack":
            return self._happens("acks lost", 0.4)
        if what == subjects.STOP:
            return self._happens("stops lost", 0.5)
        return what.startswith("noetl.claim.") and self._happens("answers lost", 0.4)

    def _happens(self, kind: str, chance: float) -> bool:
        return not self.is_fair and kind in self.kinds and self.dice.random() < chance

    def _strikes(self) -> dict[str, Callable[[], None]]:
        world, broker, queue = self.world, self.world.broker, self.world.broker.command_queue
        return {
            "server killed": lambda: self._condemn("server", None),
            "server frozen": lambda: self._condemn("server", self.dice.uniform(2, 20)),
            "worker killed": lambda: self._condemn("worker", None),
            "worker frozen": lambda: self._condemn("worker", self.dice.uniform(5, 50)),
            "partitions stolen": lambda: world.steal_partitions(self.dice.randint(1, 32)),
            "postgres away": self._postgres_away,
            "nats away": self._nats_away,
            "nats restarted": broker.restart,
            "readers break": broker.event_log.break_readers,
            "leases end": lambda: self._touching(queue.forget_unacked),
            "queue restored": lambda: self._touching(broker.restart, queue.forget_deliveries),
            "command lost": self._lose_command,
            "tail lost": lambda: self._touching(lambda: world.lose_unread_tail(self.dice.uniform(0.5, 5))),
        }

    def _schedule_fault(self, host: SimulatedHost) -> None:
        doom = self._dooms.get(host.name)
        if doom is None:
            return
        doom.left -= 1
        if doom.left > 0:
            return
        del self._dooms[host.name]
        if host.name.startswith("worker"):
            self._touching()
        if doom.frozen_s is None:
            host.kill()
            self.world.replace(host, self.dice.uniform(0.2, 10))
        else:
            host.freeze()
            self._later(doom.frozen_s, lambda: self.world.thaw(host))

    def _condemn(self, role: str, frozen_s: float | None) -> None:
        if hosts := self.world.hosts(role):
            self._dooms[self.dice.choice(hosts).name] = InjectedFault(self.dice.randint(1, POINTS_OF_A_LIFE), frozen_s)

    def _postgres_away(self) -> None:
        self.postgres_away = True
        self._later(self.dice.uniform(0.3, 9), lambda: setattr(self, "postgres_away", False))

    def _nats_away(self) -> None:
        self.world.broker.stop()
        self._later(self.dice.uniform(0.1, 9), self.world.broker.start)

    def _lose_command(self) -> None:
        if under_way := sorted(self.world.under_way):
            lost = self.dice.choice(under_way)
            self.world.touched.add(lost)
            self.world.broker.command_queue.lose(lost)

    def _touching(self, *strikes: Callable[[], None]) -> None:
        self.world.touched |= self.world.under_way
        for strike in strikes:
            strike()

    @staticmethod
    def _later(seconds: float, act: Callable[[], Any]) -> None:
        asyncio.get_running_loop().call_later(seconds, act)
